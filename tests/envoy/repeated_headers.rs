//! Repeated headers: a route match condition compares what the application receives.

use http::Method;
use ironmesh_tests::{App, Http1Connection, Mesh, Programs, ProxyOptions};

use crate::bookstore::wait_for_endpoint;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]

[[service]]
name = "ben"

[[http_route_group]]
name = "store"
[[http_route_group.matches]]
name = "vip"
path_regex = "/vip"
headers = { x-tier = "gold|silver" }
[[http_route_group.matches]]
name = "scoped"
path_regex = "/scoped"
headers = { x-scope = "read.*" }

[[traffic_target]]
name = "ben"
destination = { name = "store" }
sources = [{ name = "ben" }]
rules = [{ kind = "HTTPRouteGroup", name = "store", matches = ["vip", "scoped"] }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn repeated_header_is_compared_and_delivered_as_one_value() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    let app = App::http1("store", mesh.loopback().socket(21, 8080)).await;
    let _server = mesh.envoy(&ProxyOptions::new("default/store", 21)).await;
    let ben = ProxyOptions::new("default/ben", 11).upstream("default/store=8000");
    let ben = mesh.envoy(&ben).await;
    wait_for_endpoint(&ben, "default/store|80").await;

    let mut connection = Http1Connection::connect(ben.socket(8000)).await.unwrap();
    // A path, the values of the header in a condition, and the value that the application receives;
    // `None` if denied.
    let requests: [(&str, &str, &[&str], Option<&str>); 8] = [
        ("/vip", "x-tier", &["gold"], Some("gold")),
        ("/vip", "x-tier", &["lead"], None),
        ("/vip", "x-tier", &["gold", "lead"], None),
        ("/vip", "x-tier", &["lead", "gold"], None),
        ("/vip", "X-Tier", &["gold", "silver"], None),
        ("/vip", "x-tier", &["gold", ""], None),
        // An expression that admits lists of values.
        ("/scoped", "x-scope", &["read", "write"], Some("read,write")),
        ("/scoped", "x-scope", &["write", "read"], None),
    ];
    for (path, name, values, received) in requests {
        let before = app.requests();
        let headers: Vec<_> =
            [("host", "store")].into_iter().chain(values.iter().map(|one| (name, *one))).collect();
        let answer = connection.request(Method::GET, path, &headers).await.unwrap();
        let case = format!("{path} {name}: {values:?}");
        let Some(received) = received else {
            assert_eq!(
                (answer.status.as_u16(), app.requests()),
                (403, before),
                "{case}: {}",
                answer.text()
            );
            continue;
        };
        assert_eq!(answer.status, 200, "{case}: {}", answer.text());
        let answer = answer.json();
        let lines = answer["header_lines"].as_array().unwrap().iter();
        let lines: Vec<_> = lines.filter(|line| line[0] == name).map(|line| &line[1]).collect();
        assert_eq!(lines, [received], "{case}");
    }
    ben.assert_no_update_errors().await;
}
