//! Logins of browsers: links that are used once, tokens, sessions and their end.

use http::Method;
use ironmesh_tests::Response;
use serde_json::{Value, json};

use crate::operators::{issue, network, ok, start, token_text};
use crate::server::Server;

/// A browser, which has no client certificate.
struct Browser<'a> {
    server: &'a Server,
    origin: String,
    cookie: Option<String>,
}

impl<'a> Browser<'a> {
    fn open(server: &'a Server) -> Self {
        let origin = format!("https://{}", server.loopback.socket(1, 15130));
        Self { server, origin, cookie: None }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        origin: Option<&str>,
    ) -> Response {
        let host = self.origin.trim_start_matches("https://").to_owned();
        let cookie = self.cookie.clone().unwrap_or_default();
        let mut headers = vec![("host", &*host), ("content-type", "application/json")];
        headers.extend(origin.map(|origin| ("origin", origin)));
        if !cookie.is_empty() {
            headers.push(("cookie", &cookie));
        }
        let body = serde_json::to_vec(body).unwrap();
        network(self.server).await.send(method, path, &headers, body).await.unwrap()
    }

    async fn get(&self, path: &str) -> Response {
        self.send(Method::GET, path, &Value::Null, None).await
    }

    async fn post(&self, path: &str, body: &Value) -> Response {
        let origin = self.origin.clone();
        self.send(Method::POST, path, body, Some(&origin)).await
    }

    /// Logs in, and keeps the cookie.
    async fn log_in(&mut self, body: &Value) -> Response {
        let response = self.post("/v1/login", body).await;
        if response.status == 200 {
            let cookie = response.headers.get("set-cookie").unwrap().to_str().unwrap();
            for attribute in ["Secure", "HttpOnly", "SameSite=Strict", "Path=/"] {
                assert!(cookie.contains(attribute), "{cookie}");
            }
            self.cookie = Some(cookie.split(';').next().unwrap().to_owned());
        }
        response
    }
}

/// A new login link: its id, and the request that uses it.
fn link(server: &Server, role: &str) -> (String, Value) {
    let link = server.json(&["ui", "--role", role]);
    let url = link["links"][0].as_str().unwrap();
    let (page, secret) = url.split_once('#').unwrap();
    assert!(page.starts_with("https://") && page.ends_with("/login"), "{url}");
    (link["id"].as_str().unwrap().to_owned(), json!({ "link": secret }))
}

#[tokio::test]
async fn link_logs_in_once_with_its_role() {
    let Some((server, mut child)) = start().await else { return };
    issue(&server, "root", "admin", "1h");
    let mut browser = Browser::open(&server);
    let page = browser.get("/login").await;
    assert_eq!(page.status, 200);
    assert!(
        page.headers["content-security-policy"].to_str().unwrap().contains("default-src 'none'")
    );
    assert_eq!(browser.get("/v1/proxies").await.status, 401);

    let (id, secret) = link(&server, "viewer");
    let answer = browser.log_in(&secret).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["role"], "viewer");
    assert_eq!(browser.get("/v1/proxies").await.status, 200);
    // The session has no more than its role, and no page of a different site uses it.
    assert_eq!(browser.get("/v1/journal").await.status, 403);
    let foreign =
        browser.send(Method::POST, "/v1/logout", &Value::Null, Some("https://evil.example"));
    assert_eq!(foreign.await.status, 403);
    assert_eq!(browser.send(Method::POST, "/v1/logout", &Value::Null, None).await.status, 403);

    let mut second = Browser::open(&server);
    let used = second.log_in(&secret).await;
    assert_eq!(used.status, 401);
    assert!(used.text().contains("was used at"), "{}", used.text());

    // The session outlives the process, not its revocation.
    child.kill_hard().await;
    let _child = server.start().await;
    server.ready().await;
    assert_eq!(browser.get("/v1/proxies").await.status, 200);
    assert!(ok(server.run(&["session", "list"])).contains(&id));
    ok(server.run(&["session", "revoke", &id]));
    let revoked = browser.get("/v1/proxies").await;
    assert_eq!(revoked.status, 401, "{}", revoked.text());
    assert!(revoked.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    let journal = ok(server.run(&["journal", "--kind", "login"]));
    for text in ["created login link", "logged in", "revoked: session"] {
        assert!(journal.contains(text), "{journal}");
    }
}

#[tokio::test]
async fn session_of_an_operator_ends_with_the_credential() {
    let Some((server, _child)) = start().await else { return };
    issue(&server, "root", "admin", "1h");
    let request = json!({ "token": token_text(&server, "ann", "operator", "1h") });
    let mut browser = Browser::open(&server);
    assert_eq!(browser.log_in(&request).await.json()["user"], "operator ann");
    assert_eq!(browser.get("/v1/journal").await.status, 200);
    // A session makes no links, and those of an operator have no higher role.
    let by_session = browser.post("/v1/login-links", &json!({})).await;
    assert_eq!(by_session.status, 403, "{}", by_session.text());
    let bearer = format!("Bearer {}", request["token"].as_str().unwrap());
    let links = async |body: Value| {
        let host = server.loopback.socket(1, 15130).to_string();
        let headers =
            [("host", &*host), ("content-type", "application/json"), ("authorization", &*bearer)];
        let body = serde_json::to_vec(&body).unwrap();
        let mut connection = network(&server).await;
        connection.send(Method::POST, "/v1/login-links", &headers, body).await.unwrap()
    };
    let more = links(json!({ "role": "admin" })).await;
    assert_eq!(more.status, 403, "{}", more.text());
    let made = links(json!({})).await;
    assert_eq!((made.status.as_u16(), &made.json()["role"]), (201, &json!("operator")));

    // Its user ends a login of the same name, also with a different role, and none of another user.
    let (of_root, _) = link(&server, "viewer");
    let viewer = json!({ "token": token_text(&server, "vic", "viewer", "1h") });
    let (mut one, mut two) = (Browser::open(&server), Browser::open(&server));
    let id = one.log_in(&viewer).await.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(two.log_in(&viewer).await.status, 200);
    let seen = two.get("/v1/sessions").await.json();
    let users: Vec<_> =
        seen["sessions"].as_array().unwrap().iter().map(|one| &one["user"]).collect();
    assert_eq!(users, ["operator vic", "operator vic"]);
    let revoke = |id: &str| format!("/v1/sessions/{id}/revoke");
    let foreign = two.post(&revoke(&of_root), &json!({})).await;
    assert_eq!(foreign.status, 403, "{}", foreign.text());
    let own = two.post(&revoke(&id), &json!({})).await;
    assert_eq!(own.status, 200, "{}", own.text());
    assert_eq!(one.get("/v1/proxies").await.status, 401);
    assert_eq!(two.get("/v1/proxies").await.status, 200);

    let mut leaving = Browser::open(&server);
    assert_eq!(leaving.log_in(&request).await.status, 200);
    let out = leaving.post("/v1/logout", &Value::Null).await;
    assert_eq!(out.status, 200, "{}", out.text());
    assert_eq!(leaving.get("/v1/proxies").await.status, 401);

    ok(server.run(&["operator", "revoke", "ann"]));
    let ended = browser.get("/v1/proxies").await;
    assert_eq!(ended.status, 401, "{}", ended.text());
    assert!(ended.text().contains("revoked"), "{}", ended.text());
    let logins = server.json(&["session", "list"])["sessions"].clone();
    let of_ann = logins.as_array().unwrap().iter().filter(|login| login["user"] == "operator ann");
    let states: Vec<_> = of_ann.map(|login| &login["state"]).collect();
    assert!(states.len() >= 3 && states.iter().all(|state| *state == "revoked"), "{logins:#}");
    // Its link is of no use either.
    let secret = made.json()["links"][0].as_str().unwrap().split_once('#').unwrap().1.to_owned();
    let mut late = Browser::open(&server);
    assert_eq!(late.log_in(&json!({ "link": secret })).await.status, 401);
    assert_eq!(late.log_in(&request).await.status, 401);
}

#[tokio::test]
async fn session_of_the_owner_has_no_more_than_the_network() {
    let Some((server, _child)) = start().await else { return };
    issue(&server, "root", "admin", "1h");
    let (_, secret) = link(&server, "admin");
    let mut browser = Browser::open(&server);
    assert_eq!(browser.log_in(&secret).await.status, 200);
    let last = browser.post("/v1/operators/root/revoke", &json!({})).await;
    assert_eq!(last.status, 409, "{}", last.text());
    assert!(last.text().contains("the last admin"), "{}", last.text());
    // Bad logins: no form, both forms, of the wrong listener.
    for body in [json!({}), json!({ "link": "x", "token": "y" }), json!({ "password": "x" })] {
        let status = Browser::open(&server).log_in(&body).await.status.as_u16();
        assert!(matches!(status, 400 | 422), "{body}: {status}");
    }
    let none = server.run(&["session", "revoke", "0123456789abcdef"]);
    assert_eq!(none.code, 1, "{none:?}");
}
