//! Audit mode: the whole mesh may call, and status names the callers that strict would deny.

use http::Method;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{
    App, Envoy, Http1Connection, Http2Connection, Ledger, Load, Mesh, Programs, ProxyOptions,
    REQUESTS_PER_FAULT, TcpConnection, eventually, get_once, tls,
};
use serde_json::{Value, json};

use crate::bookstore::{ensure_status, wait_for_endpoint};

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

/// The file `targets.toml`: grants for these callers.
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

/// A store, a buyer with a grant, and a visitor without one.
struct AuditMesh {
    mesh: Mesh,
    _apps: (App, Ledger),
    store: Envoy,
    buyer: Envoy,
    visitor: Envoy,
}

impl AuditMesh {
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
            wait_for_endpoint(envoy, "default/store|80").await;
            wait_for_endpoint(envoy, "default/store|3306").await;
        }
        Some(Self { mesh, _apps: apps, store, buyer, visitor })
    }

    async fn denials(&self) -> Vec<Value> {
        let view = self.mesh.admin_get("/v1/audit").await;
        assert_eq!(view.get("others"), Some(&json!([])), "{view:#}");
        let denied = view.get("denied").and_then(Value::as_array).unwrap().clone();
        let of_visitor = |one: &Value| one.get("caller") == Some(&json!("default/visitor"));
        assert!(denied.iter().all(of_visitor), "the buyer may: {view:#}");
        denied
    }

    /// Waits until the listed denials satisfy a condition.
    async fn wait_for_denials(
        &self,
        what: &str,
        condition: impl Fn(&[Value]) -> bool,
    ) -> Vec<Value> {
        eventually(what, async || match self.denials().await {
            denied if condition(&denied) => Ok(denied),
            denied => Err(format!("{denied:#?}")),
        })
        .await
    }
}

/// A connection to the ledger that has received its greeting.
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
    let Some(setup) = AuditMesh::open("audit").await else { return };
    for envoy in [&setup.buyer, &setup.visitor] {
        let mut http1 = Http1Connection::connect(envoy.socket(WEB)).await.unwrap();
        let mut http2 = Http2Connection::connect(envoy.socket(WEB)).await.unwrap();
        for n in 0..3 {
            let path = format!("/books/1/pages/{n}?secret=1");
            ensure_status(&http1.get(&path, "store").await.unwrap(), 200).unwrap();
            let order = http2.request(Method::POST, "/orders", &[("host", "store")]).await;
            ensure_status(&order.unwrap(), 200).unwrap();
        }
        let mut connection = ledger(envoy).await;
        connection.exchange("one").await.unwrap();
    }
    let denied = setup
        .wait_for_denials("all that would be denied", |denied| {
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
    let metrics = get_once(setup.mesh.admin(), "/metrics", &[]).await.unwrap().text();
    for (port, count) in [(80, 6), (3306, 1)] {
        let sample = format!(
            "ironmesh_audit_would_deny_total{{caller=\"default/visitor\",service=\"default/store|{port}\"}} {count}\n"
        );
        assert!(metrics.contains(&sample), "no {sample} in\n{metrics}");
    }
    let status = setup.mesh.run(&["status"]).await;
    let reported = String::from_utf8_lossy(&status.stdout).into_owned();
    assert_eq!(status.status.code(), Some(1), "{reported}");
    for part in [
        "wrong: strict would deny `default/visitor` on `default/store|80`: 6 requests",
        "       POST /orders (3)\n",
        "wrong: strict would deny `default/visitor` on `default/store|3306`: 1 connection,",
        "add a traffic target with the source `default/visitor`",
    ] {
        assert!(reported.contains(part), "no {part:?} in\n{reported}");
    }
    assert!(!reported.contains("secret") && !reported.contains("buyer"), "{reported}");

    // With a grant nothing is listed any more, although the calls continue.
    let mut kept = Http1Connection::connect(setup.visitor.socket(WEB)).await.unwrap();
    setup.mesh.write_policy("targets.toml", &targets(&["buyer", "visitor"]));
    eventually("nothing to be denied any more", async || {
        ensure_status(&kept.get("/books/2", "store").await.unwrap(), 200).unwrap();
        let status = setup.mesh.run(&["status", "--output", "json"]).await;
        let reported: Value = serde_json::from_slice(&status.stdout).unwrap();
        match status.status.code() {
            Some(0) => Ok(()),
            code => Err(format!("{code:?}: {reported:#}")),
        }
    })
    .await;
    for envoy in [&setup.store, &setup.buyer, &setup.visitor] {
        envoy.assert_no_update_errors().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mode_switch_over_audit_to_strict_fails_no_granted_request() {
    let Some(mut setup) = AuditMesh::open("permissive").await else { return };
    // A caller that dials the store directly with a valid certificate, on a kept connection.
    let folder = setup.mesh.bootstrap(&ProxyOptions::new("default/visitor", 53)).await;
    let proxy_client = ProxyClient::connect(&folder, setup.mesh.xds()).await.unwrap();
    let (chain, key) = proxy_client.service_certificate("default/visitor").await.unwrap();
    let (port, sni) = (setup.store.socket(15003), "80.store.default.mesh.internal");
    let roots = &proxy_client.roots;
    let stream = tls::connect_mesh(port, sni, &["ironmesh"], &chain, &key, roots).await.unwrap();
    let mut visitor = Http1Connection::over(stream).await.unwrap();
    ensure_status(&visitor.get("/books/1", "store").await.unwrap(), 200).unwrap();
    assert!(setup.denials().await.is_empty());

    let load = Load::start(setup.buyer.socket(WEB), "store", "/books/1");
    setup.mesh.write_policy("mode.toml", &mode("audit"));
    eventually("the visitor to be named", async || {
        ensure_status(&visitor.get("/books/1", "store").await?, 200)?;
        let denied = setup.denials().await;
        anyhow::ensure!(!denied.is_empty(), "no denial is listed");
        Ok(())
    })
    .await;
    // Without the control plane only the reports are lost; after its restart the mode is known and
    // reports arrive again.
    setup.mesh.kill_control_plane().await;
    for _ in 0..100 {
        ensure_status(&visitor.get("/books/1", "store").await.unwrap(), 200).unwrap();
    }
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    setup.mesh.restart_control_plane().await;
    eventually("the visitor to be named again", async || {
        ensure_status(&visitor.get("/books/1", "store").await?, 200)?;
        let denied = setup.denials().await;
        anyhow::ensure!(!denied.is_empty(), "no denial is listed");
        Ok(())
    })
    .await;

    setup.mesh.write_policy("mode.toml", &mode("strict"));
    eventually("the visitor to be denied", async || {
        ensure_status(&visitor.get("/books/1", "store").await?, 403)
    })
    .await;
    setup.wait_for_denials("no more reports", <[_]>::is_empty).await;
    load.finish().await.assert_undisturbed();
    for envoy in [&setup.store, &setup.buyer] {
        assert_eq!(envoy.sum("upstream_rq_retry$").await, 0);
        envoy.assert_no_update_errors().await;
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
            ensure_status(&get_once(visitor.socket(8000), "/", &[]).await?, status)
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
    store.assert_no_update_errors().await;
}
