//! Audit mode: all of the mesh may call, and who strict would deny is named.

use http::Method;
use ironmesh_tests::xds::Imposter;
use ironmesh_tests::{
    App, Envoy, Http1Connection, Http2Connection, Ledger, Load, Mesh, Programs, ProxyOptions,
    REQUESTS_PER_FAULT, TcpConnection, eventually, get_once, tls,
};
use serde_json::{Value, json};

use crate::bookstore::{endpoint_known, expect};

const SERVICES: &str = r#"
[[service]]
name = "store"
ports = [
  { name = "web", port = 80, protocol = "http", target_port = 8080 },
  { name = "ledger", port = 3306, protocol = "tcp" },
]

[[service]]
name = "buyer"

[[service]]
name = "visitor"

[[http_route_group]]
name = "store"
matches = [{ name = "books", path_regex = "/books", methods = ["GET"] }, { name = "orders", path_regex = "/orders", methods = ["POST"] }]

[[tcp_route]]
name = "all"
"#;

/// The file `targets.toml`: who may call all that there is.
fn targets(callers: &[&str]) -> String {
    let sources: Vec<_> = callers.iter().map(|name| format!("{{ name = \"{name}\" }}")).collect();
    format!(
        "[[traffic_target]]\nname = \"store\"\ndestination = {{ name = \"store\" }}\n\
         sources = [{}]\nrules = [{{ kind = \"HTTPRouteGroup\", name = \"store\" }}, \
         {{ kind = \"TCPRoute\", name = \"all\" }}]\n",
        sources.join(", ")
    )
}

/// The file `mode.toml`.
fn mode(word: &str) -> String {
    format!("[[namespace]]\nname = \"default\"\nmode = \"{word}\"\n")
}

const WEB: u16 = 8000;
const LEDGER: u16 = 3306;

/// A store, one who may buy there, and one of whom policy says nothing.
struct Place {
    mesh: Mesh,
    _apps: (App, Ledger),
    store: Envoy,
    buyer: Envoy,
    visitor: Envoy,
}

impl Place {
    async fn open(word: &str) -> Option<Self> {
        let programs = Programs::find()?;
        let (mode, targets) = (mode(word), targets(&["buyer"]));
        let policy =
            [("services.toml", SERVICES), ("mode.toml", &*mode), ("targets.toml", &*targets)];
        let mesh = Mesh::start(&programs, &policy).await;
        let apps = (
            App::http1("store", mesh.loopback().socket(31, 8080)).await,
            Ledger::start("store", mesh.loopback().socket(31, 3306)).await,
        );
        let store = mesh.envoy(&ProxyOptions::new("default/store", 31).drain_seconds(2)).await;
        let caller = async |name: &str, host| {
            let options = ProxyOptions::new(name, host)
                .upstream("default/store:80=8000")
                .upstream("default/store:3306=3306");
            mesh.envoy(&options).await
        };
        let buyer = caller("default/buyer", 51).await;
        let visitor = caller("default/visitor", 52).await;
        for envoy in [&buyer, &visitor] {
            endpoint_known(envoy, "default/store|80").await;
            endpoint_known(envoy, "default/store|3306").await;
        }
        Some(Self { mesh, _apps: apps, store, buyer, visitor })
    }

    async fn denied(&self) -> Vec<Value> {
        let view = self.mesh.admin_get("/v1/audit").await;
        assert_eq!(view.get("others"), Some(&json!([])), "{view:#}");
        let denied = view.get("denied").and_then(Value::as_array).unwrap().clone();
        let of_visitor = |one: &Value| one.get("caller") == Some(&json!("default/visitor"));
        assert!(denied.iter().all(of_visitor), "the buyer may: {view:#}");
        denied
    }

    /// Waits until what would be denied is as wanted.
    async fn denied_where(&self, what: &str, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        eventually(what, async || match self.denied().await {
            denied if is_so(&denied) => Ok(denied),
            denied => Err(format!("{denied:#?}")),
        })
        .await
    }
}

/// A connection to the ledger on which it has spoken.
async fn ledger(envoy: &Envoy) -> TcpConnection {
    eventually("the ledger to speak", async || {
        let mut connection = TcpConnection::connect(envoy.socket(LEDGER)).await?;
        connection.line().await?;
        anyhow::Ok(connection)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_allows_all_calls_and_reports_strict_denials() {
    let Some(place) = Place::open("audit").await else { return };
    for envoy in [&place.buyer, &place.visitor] {
        let mut http1 = Http1Connection::connect(envoy.socket(WEB)).await.unwrap();
        let mut http2 = Http2Connection::connect(envoy.socket(WEB)).await.unwrap();
        for n in 0..3 {
            let path = format!("/books/1/pages/{n}?secret=1");
            expect(&http1.get(&path, "store").await.unwrap(), 200).unwrap();
            let order = http2.request(Method::POST, "/orders", &[("host", "store")]).await;
            expect(&order.unwrap(), 200).unwrap();
        }
        let mut connection = ledger(envoy).await;
        connection.exchange("one").await.unwrap();
    }
    let denied = place
        .denied_where("all that would be denied", |denied| {
            denied.iter().map(|one| one["count"].as_u64().unwrap()).eq([6, 1])
        })
        .await;
    for (one, port) in denied.iter().zip([80, 3306]) {
        assert_eq!(one["caller"], "default/visitor", "{one:#}");
        assert_eq!((&one["service"], &one["port"]), (&json!("default/store"), &json!(port)));
    }
    let requests: Vec<_> = denied[0]["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            [&one["method"], &one["path"], &one["example"], &one["count"]]
                .map(Value::to_string)
                .join(" ")
        })
        .collect();
    assert_eq!(
        requests,
        [r#""GET" "/books/1/" "/books/1/pages/2" 3"#, r#""POST" "/orders" "/orders" 3"#]
    );
    let metrics = get_once(place.mesh.admin(), "/metrics", &[]).await.unwrap().text();
    for (port, count) in [(80, 6), (3306, 1)] {
        let sample = format!(
            "ironmesh_audit_would_deny_total{{caller=\"default/visitor\",service=\"default/store|{port}\"}} {count}\n"
        );
        assert!(metrics.contains(&sample), "no {sample} in\n{metrics}");
    }
    let status = place.mesh.run(&["status"]).await;
    let told = String::from_utf8_lossy(&status.stdout).into_owned();
    assert_eq!(status.status.code(), Some(1), "{told}");
    for part in [
        "wrong: strict would deny `default/visitor` on `default/store|80`: 6 requests",
        "       POST /orders (3)\n",
        "wrong: strict would deny `default/visitor` on `default/store|3306`: 1 connection,",
        "add a traffic target with the source `default/visitor`",
    ] {
        assert!(told.contains(part), "no {part:?} in\n{told}");
    }
    assert!(!told.contains("secret") && !told.contains("buyer"), "{told}");

    // It is let in: then nothing is left, though it goes on.
    let mut kept = Http1Connection::connect(place.visitor.socket(WEB)).await.unwrap();
    place.mesh.write_policy("targets.toml", &targets(&["buyer", "visitor"]));
    eventually("nothing to be denied any more", async || {
        expect(&kept.get("/books/2", "store").await.unwrap(), 200).unwrap();
        let status = place.mesh.run(&["status", "--output", "json"]).await;
        let told: Value = serde_json::from_slice(&status.stdout).unwrap();
        match status.status.code() {
            Some(0) => Ok(()),
            code => Err(format!("{code:?}: {told:#}")),
        }
    })
    .await;
    for envoy in [&place.store, &place.buyer, &place.visitor] {
        envoy.assert_calm().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mode_switch_over_audit_to_strict_fails_no_granted_request() {
    let Some(mut place) = Place::open("permissive").await else { return };
    // Somebody who dials the store past any sidecar, with a true certificate, on a connection that it keeps.
    let folder = place.mesh.bootstrap(&ProxyOptions::new("default/visitor", 53)).await;
    let imposter = Imposter::connect(&folder, place.mesh.xds()).await.unwrap();
    let (chain, key) = imposter.service_certificate("default/visitor").await.unwrap();
    let (port, sni) = (place.store.socket(15003), "80.store.default.mesh.internal");
    let roots = &imposter.roots;
    let stream = tls::connect_mesh(port, sni, &["ironmesh"], &chain, &key, roots).await.unwrap();
    let mut visitor = Http1Connection::over(stream).await.unwrap();
    expect(&visitor.get("/books/1", "store").await.unwrap(), 200).unwrap();
    assert!(place.denied().await.is_empty());

    let load = Load::start(place.buyer.socket(WEB), "store", "/books/1");
    place.mesh.write_policy("mode.toml", &mode("audit"));
    eventually("the visitor to be named", async || {
        expect(&visitor.get("/books/1", "store").await?, 200)?;
        let denied = place.denied().await;
        anyhow::ensure!(!denied.is_empty(), "nobody is");
        Ok(())
    })
    .await;
    // A control plane that is away takes nothing but the news; one that comes back has the mode, and hears
    // again.
    place.mesh.kill_control_plane().await;
    for _ in 0..100 {
        expect(&visitor.get("/books/1", "store").await.unwrap(), 200).unwrap();
    }
    load.pass(REQUESTS_PER_FAULT).await;
    place.mesh.restart_control_plane().await;
    eventually("the visitor to be named again", async || {
        expect(&visitor.get("/books/1", "store").await?, 200)?;
        let denied = place.denied().await;
        anyhow::ensure!(!denied.is_empty(), "nobody is");
        Ok(())
    })
    .await;

    place.mesh.write_policy("mode.toml", &mode("strict"));
    eventually("the visitor to be denied", async || {
        expect(&visitor.get("/books/1", "store").await?, 403)
    })
    .await;
    place.denied_where("nothing to be told any more", <[_]>::is_empty).await;
    load.finish().await.assert_undisturbed();
    for envoy in [&place.store, &place.buyer] {
        assert_eq!(envoy.sum("upstream_rq_retry$").await, 0);
        envoy.assert_calm().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mode_changes_do_not_update_http_listeners() {
    let Some(programs) = Programs::find() else { return };
    let services = "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n\
                    [[service]]\nname = \"visitor\"\n";
    let mesh =
        Mesh::start(&programs, &[("services.toml", services), ("mode.toml", &mode("audit"))]).await;
    let _app = App::http1("store", mesh.loopback().socket(31, 80)).await;
    let store = mesh.envoy(&ProxyOptions::new("default/store", 31)).await;
    let visitor = ProxyOptions::new("default/visitor", 52).upstream("default/store=8000");
    let visitor = mesh.envoy(&visitor).await;
    let stats = r"^listener_manager\.(lds\.update_success|listener_modified|listener_added)$";
    let call = async |status: u16| {
        eventually("the call", async || {
            expect(&get_once(visitor.socket(8000), "/", &[]).await?, status)
        })
        .await;
    };
    call(200).await;
    let before = store.stats(stats).await;
    assert_eq!(before.len(), 3, "{before:?}");
    for (word, status) in [("strict", 403), ("permissive", 200), ("audit", 200), ("strict", 403)] {
        let routes = r"^http\.inbound_default_store_80\.rds\..*\.update_success$";
        let updates = store.sum(routes).await;
        mesh.write_policy("mode.toml", &mode(word));
        eventually("the routes of the store", async || match store.sum(routes).await {
            now if now > updates => Ok(()),
            now => Err(now),
        })
        .await;
        call(status).await;
        assert_eq!(store.stats(stats).await, before, "{word}");
    }
    store.assert_calm().await;
}
