//! `ironmesh service`, `ironmesh policy access` and their JSON.

use ironmesh_tests::process::Child;
use ironmesh_tests::{Response, eventually, get_once};
use serde_json::{Value, json};

use crate::server::Server;

const POLICY: &str = r#"
[[service]]
name = "cart"
namespace = "shop"
ports = [{ port = 80, name = "web", protocol = "http", target_port = 8080 }, { port = 90, name = "raw", protocol = "tcp" }]
endpoints = { registered = true, static = [{ address = "10.0.0.5" }] }

[[service]]
name = "next"
namespace = "shop"
mode = "audit"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "site"
namespace = "shop"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "web"
namespace = "shop"

[[service]]
name = "open"
mode = "permissive"
ports = [{ port = 80, protocol = "http" }]
endpoints = { static = [{ address = "10.0.0.8" }] }

[[traffic_split]]
name = "site"
namespace = "shop"
service = "site"
backends = [{ service = "cart", weight = 9 }, { service = "next", weight = 1 }]

[[http_route_group]]
name = "items"
namespace = "shop"
matches = [{ name = "read", methods = ["GET"], path_regex = "/items" }]

[[traffic_target]]
name = "reads"
namespace = "shop"
destination = { name = "cart" }
sources = [{ name = "web" }]
rules = [{ kind = "HTTPRouteGroup", name = "items" }]

[[tcp_route]]
name = "raw"
namespace = "shop"
matches = { ports = [90] }

[[traffic_target]]
name = "raw"
namespace = "shop"
destination = { name = "cart" }
sources = [{ name = "site" }]
rules = [{ kind = "TCPRoute", name = "raw" }]
"#;

async fn open() -> Option<(Server, Child)> {
    let server = Server::open("")?;
    server.workspace.write("policy/shop.toml", POLICY);
    let child = server.start().await;
    server.ready().await;
    Some((server, child))
}

/// An answer of the admin port.
async fn get(server: &Server, path: &str) -> Response {
    get_once(server.loopback.socket(1, 15014), path, &[]).await.unwrap()
}

fn names(list: &Value, key: &str) -> Vec<String> {
    let all = list.as_array().unwrap().iter();
    all.map(|one| one[key].as_str().unwrap().to_owned()).collect()
}

/// The ports of a page of access.
fn ports_of(page: &Value) -> Vec<String> {
    let ports = page["ports"].as_array().unwrap().iter().map(|one| &one["port"]);
    ports.map(|port| format!("{}|{}", port["service"].as_str().unwrap(), port["port"])).collect()
}

#[tokio::test]
async fn services_are_listed_and_shown_with_callers_and_counts() {
    let Some((server, _child)) = open().await else { return };
    let page = server.json(&["service", "list"]);
    let all = ["default/open", "shop/cart", "shop/next", "shop/site", "shop/web"];
    assert_eq!(names(&page["services"], "service"), all);
    let open = &page["services"][0];
    assert_eq!((&open["mode"], &open["ports"][0]["ready"]), (&json!("permissive"), &json!(1)));
    assert_eq!(open["endpoints"], json!({ "known": 1, "by_status": { "plaintext": 1 } }));
    let shop = server.json(&["service", "list", "--namespace", "shop"]);
    assert_eq!((&shop["matching"], names(&shop["services"], "service").len()), (&json!(4), 4));

    let cart = server.json(&["service", "show", "shop/cart"]);
    assert_eq!(
        (&cart["account"], &cart["hostname"], &cart["mode"]),
        (&json!("shop/cart"), &json!("cart.shop.mesh.internal"), &json!("strict"))
    );
    assert_eq!(cart["endpoints"], json!({ "known": 1, "by_status": { "no_proxy": 1 } }));
    assert_eq!(cart["spot"]["file"], "shop.toml");
    let caller = &cart["access"][0]["callers"][0];
    assert_eq!((&caller["account"], &caller["extent"]), (&json!("shop/web"), &json!("some")));
    assert_eq!(caller["rules"][0]["target"]["object"], "traffic target `shop/reads`");
    let connections = &cart["access"][1]["callers"][0];
    assert_eq!(
        (&connections["account"], &connections["extent"], &connections["rules"][0]["traffic"]),
        (&json!("shop/site"), &json!("all"), &json!("connections"))
    );

    let site = server.json(&["service", "show", "shop/site"]);
    assert_eq!(site["split"], true);
    let shares =
        json!([{ "service": "shop/cart", "weight": 9 }, { "service": "shop/next", "weight": 1 }]);
    assert_eq!(site["access"][0]["branches"][0]["shares"], shares);

    let text = server.run(&["service", "list"]).stdout;
    assert!(text.contains("shop/cart     80/http, 90/tcp  strict      0      1\n"), "{text}");
    let text = server.run(&["service", "show", "shop/site"]).stdout;
    assert!(text.contains("\n    90 % shop/cart, 10 % shop/next\n"), "{text}");

    // A new endpoint is counted.
    let changed = POLICY.replace("\"10.0.0.8\"", "\"10.0.0.8\" }, { address = \"10.0.0.9\"");
    server.workspace.write("policy/shop.toml", &changed);
    eventually("the second endpoint", async || {
        let open = server.json(&["service", "show", "default/open"]);
        anyhow::ensure!(open["ports"][0]["ready"] == 2, "{open:#}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn access_matrix_has_callers_of_each_port_and_their_rules() {
    let Some((server, _child)) = open().await else { return };
    let page = server.json(&["policy", "access"]);
    let ports = ["default/open|80", "shop/cart|80", "shop/cart|90", "shop/next|80", "shop/site|80"];
    assert_eq!(ports_of(&page), ports);
    let [open, cart, _, next, site] = &page["ports"].as_array().unwrap()[..] else { panic!() };
    assert_eq!((&open["open_to"], &open["callers"]), (&json!("all"), &json!([])));
    assert_eq!(
        (&cart["open_to"], &cart["callers"][0]["account"]),
        (&json!(null), &json!("shop/web"))
    );
    assert_eq!((&next["open_to"], &next["mode"]), (&json!("all"), &json!("audit")));
    assert_eq!((&site["open_to"], &site["callers"]), (&json!(null), &json!([])));

    let run = server.run(&["policy", "access", "--namespace", "shop"]);
    let expected = "\
1  shop/cart port 80 (http, strict)
2  shop/cart port 90 (tcp, strict)
3  shop/next port 80 (http, audit)
4  shop/site port 80 (http, strict)

                    1     2     3     4
(every account)     -     -   all     -
shop/site           -   all     -     -
shop/web         some     -     -     -

1  shop/cart port 80
   shop/web: GET on `/items`, by traffic target `shop/reads` (shop.toml:41:8)
";
    assert!(run.stdout.starts_with(expected), "{}", run.stdout);
    // The matrix and the verdict on a call agree.
    let explain = |port: &str| {
        let question = ["policy", "explain", "--from", "shop/web", "--to", "shop/cart"];
        server.run(&[&question[..], &["--port", port]].concat()).code
    };
    assert_eq!((explain("80"), explain("90")), (0, 1));
}

#[tokio::test]
async fn pages_of_services_and_ports_are_bounded_and_continue() {
    let Some((server, _child)) = open().await else { return };
    let first = get(&server, "/v1/services?limit=2").await.json();
    assert_eq!((&first["matching"], &first["next"]), (&json!(5), &json!("shop/cart")));
    let rest = get(&server, "/v1/services?after=shop/cart").await.json();
    assert_eq!(names(&rest["services"], "service"), ["shop/next", "shop/site", "shop/web"]);
    assert_eq!(rest.get("next"), None);
    let first = get(&server, "/v1/access?limit=3").await.json();
    assert_eq!((&first["matching"], &first["next"]), (&json!(5), &json!("shop/cart|90")));
    let rest = get(&server, "/v1/access?after=shop/cart%7C90&namespace=shop").await.json();
    assert_eq!(ports_of(&rest), ["shop/next|80", "shop/site|80"]);
    let none = get(&server, "/v1/access?namespace=empty").await.json();
    assert_eq!(none, json!({ "ports": [], "matching": 0 }));
}

#[tokio::test]
async fn bad_questions_about_services_are_rejected_with_advice() {
    let Some((server, _child)) = open().await else { return };
    let missing = get(&server, "/v1/services/shop/carts").await;
    let advice = "policy defines no service `shop/carts`; did you mean `shop/cart`?";
    assert_eq!((missing.status.as_u16(), &missing.json()["error"]), (404, &json!(advice)));
    let run = server.run(&["service", "show", "shop/carts"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains(advice), "{run:?}");
    for path in [
        "/v1/services?limit=-1",
        "/v1/services?namespace=UPPER",
        "/v1/services?after=a/b/c",
        "/v1/services?unknown=1",
        "/v1/services/shop/CART",
        "/v1/access?after=shop/cart",
        "/v1/access?limit=many",
        "/v1/access?namespace=a%20b",
    ] {
        let answer = get(&server, path).await;
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.json()["error"].is_string(), "{path}");
    }
}
