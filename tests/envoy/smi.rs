//! SMI's conformance suites on access and specs, step by step, with applications A, B and C on port
//! 9091; and Open Service Mesh's requirements on traffic targets and permissive mode. The suite on
//! splits is in `splits`.

mod splits;

use std::collections::BTreeSet;

use http::Method;
use ironmesh_tests::{App, Envoy, Http1Connection, Mesh, Programs, ProxyOptions, eventually};

use crate::bookstore::ensure_status;

const SERVICES: &str = r#"
[[service]]
name = "app-a"
ports = [{ name = "http", port = 9091, protocol = "http" }]

[[service]]
name = "app-b"
ports = [{ name = "http", port = 9091, protocol = "http" }]

[[service]]
name = "app-c"
ports = [{ name = "http", port = 9091, protocol = "http" }]
"#;

/// The applications, each with its sidecar.
struct SmiMesh {
    mesh: Mesh,
    a: Envoy,
    b: Envoy,
    c: Envoy,
    _apps: [App; 3],
}

impl SmiMesh {
    async fn open(settings: &str) -> Option<Self> {
        let programs = Programs::find()?;
        let mesh = Mesh::start_with(settings, &programs, &[("services.toml", SERVICES)]).await;
        let app = |name: &'static str, host| App::http1(name, mesh.loopback().socket(host, 9091));
        let apps = [app("a", 21).await, app("b", 22).await, app("c", 23).await];
        let sidecar = |name: &str, host| ProxyOptions::new(&format!("default/{name}"), host);
        let a = mesh.envoy(&sidecar("app-a", 21)).await;
        let b = mesh.envoy(&sidecar("app-b", 22)).await;
        let c = mesh.envoy(&sidecar("app-c", 23)).await;
        Some(Self { mesh, a, b, c, _apps: apps })
    }

    /// Waits until five requests in a row get this status.
    async fn wait_for_status(&self, from: &Envoy, call: (Method, &str, &str), status: u16) {
        let (method, to, path) = call;
        let what = format!("five answers {status} to {method} {path} of {to}");
        eventually(&what, async || {
            for _ in 0..5 {
                let mut connection = Http1Connection::connect(from.socket(15080)).await?;
                let answer = connection.request(method.clone(), path, &[("host", to)]).await?;
                ensure_status(&answer, status)?;
            }
            anyhow::Ok(())
        })
        .await;
    }

    async fn get(&self, from: &Envoy, to: &str, path: &str, status: u16) {
        self.wait_for_status(from, (Method::GET, to, path), status).await;
    }

    async fn assert_no_update_errors(&self) {
        for envoy in [&self.a, &self.b, &self.c] {
            envoy.assert_no_update_errors().await;
        }
    }
}

fn target(name: &str, to: &str, from: &str, rule: &str) -> String {
    format!(
        "[[traffic_target]]\nname = \"{name}\"\ndestination = {{ name = \"{to}\" }}\n\
         sources = [{{ name = \"{from}\" }}]\nrules = [{{ {rule} }}]\n"
    )
}

/// SMI 7.
#[tokio::test(flavor = "multi_thread")]
async fn smi_conformance_traffic_access() {
    let Some(setup) = SmiMesh::open("").await else { return };
    // Denied by default: A does not learn of B.
    setup.get(&setup.a, "app-b", "/echo", 404).await;
    // A TCP route without ports and a target allow A to call B, by HTTP as well; and no other
    // caller.
    let rule = "kind = \"TCPRoute\", name = \"all\"";
    let access = "[[tcp_route]]\nname = \"all\"\n".to_owned();
    setup.mesh.write_policy("access.toml", &(access + &target("a-b", "app-b", "app-a", rule)));
    setup.get(&setup.a, "app-b", "/echo", 200).await;
    setup.get(&setup.c, "app-b", "/echo", 404).await;
    setup.get(&setup.a, "app-c", "/echo", 404).await;
    setup.mesh.remove_policy("access.toml");
    setup.get(&setup.a, "app-b", "/echo", 404).await;
    setup.assert_no_update_errors().await;
}

/// SMI 5.
#[tokio::test(flavor = "multi_thread")]
async fn smi_conformance_traffic_spec() {
    let Some(setup) = SmiMesh::open("").await else { return };
    let spec = |conditions: &str| {
        let group = format!(
            "[[http_route_group]]\nname = \"routes\"\nmatches = [{{ name = \"one\", {conditions} }}]\n"
        );
        group + &target("b", "app-b", "app-a", "kind = \"HTTPRouteGroup\", name = \"routes\"")
    };
    setup.mesh.write_policy("spec.toml", &spec("path_regex = \"/metrics\", methods = [\"*\"]"));
    setup.get(&setup.a, "app-b", "/metrics", 200).await;
    setup.wait_for_status(&setup.a, (Method::POST, "app-b", "/metrics"), 200).await;
    setup.get(&setup.a, "app-b", "/echo", 403).await;
    setup.mesh.write_policy("spec.toml", &spec("path_regex = \".*\", methods = [\"GET\"]"));
    setup.get(&setup.a, "app-b", "/echo", 200).await;
    setup.get(&setup.a, "app-b", "/metrics", 200).await;
    setup.wait_for_status(&setup.a, (Method::POST, "app-b", "/echo"), 403).await;
    setup.wait_for_status(&setup.a, (Method::POST, "app-b", "/metrics"), 403).await;
    setup.assert_no_update_errors().await;
}

/// SMI 3, OSM 3.
#[tokio::test(flavor = "multi_thread")]
async fn traffic_targets_are_separate_per_source_and_namespace() {
    let Some(setup) = SmiMesh::open("").await else { return };
    let group = |name: &str, path: &str| {
        format!(
            "[[http_route_group]]\nname = \"{name}\"\nmatches = [{{ name = \"one\", path_regex = \"{path}$\" }}]\n"
        )
    };
    let rule = |name: &str| format!("kind = \"HTTPRouteGroup\", name = \"{name}\"");
    let policy = group("left", "/left")
        + &group("right", "/right")
        + &target("a", "app-b", "app-a", &rule("left"))
        + &target("c", "app-b", "app-c", &rule("right"));
    setup.mesh.write_policy("targets.toml", &policy);
    setup.get(&setup.a, "app-b", "/left", 200).await;
    setup.get(&setup.c, "app-b", "/right", 200).await;
    setup.get(&setup.a, "app-b", "/right", 403).await;
    setup.get(&setup.c, "app-b", "/left", 403).await;
    // A target of another namespace grants nothing here: the whole policy is rejected, and the
    // previous one stays.
    let elsewhere = policy.replace(
        "[[traffic_target]]\nname = \"c\"\n",
        "[[traffic_target]]\nname = \"c\"\nnamespace = \"other\"\n",
    );
    setup.mesh.write_policy(
        "targets.toml",
        &elsewhere.replace("app-b\" }", "app-b\", namespace = \"default\" }"),
    );
    eventually("the finding", async || {
        let readiness = setup.mesh.readyz().await;
        let findings = readiness["policy"]["findings"].to_string();
        if findings.contains("IM0105") { Ok(()) } else { Err(readiness.to_string()) }
    })
    .await;
    setup.get(&setup.c, "app-b", "/right", 200).await;
    setup.mesh.remove_policy("targets.toml");
    setup.get(&setup.a, "app-b", "/left", 404).await;
    setup.assert_no_update_errors().await;
}

/// OSM 6.
#[tokio::test(flavor = "multi_thread")]
async fn switch_between_permissive_and_policy_denies_no_request() {
    let Some(setup) = SmiMesh::open("").await else { return };
    let services =
        |mode: &str| SERVICES.replace("name = \"app-b\"\n", &format!("name = \"app-b\"\n{mode}\n"));
    let (strict, permissive) = (services(""), services("mode = \"permissive\""));
    setup.get(&setup.a, "app-b", "/", 404).await;
    for _ in 0..2 {
        setup.mesh.write_policy("services.toml", &permissive);
        setup.get(&setup.a, "app-b", "/", 200).await;
        setup.mesh.write_policy("services.toml", &strict);
        setup.get(&setup.a, "app-b", "/", 404).await;
    }
    setup.mesh.write_policy("services.toml", &permissive);
    setup.get(&setup.a, "app-b", "/", 200).await;
    let rule = "kind = \"TCPRoute\", name = \"all\"";
    let access = "[[tcp_route]]\nname = \"all\"\n".to_owned();
    setup.mesh.write_policy("access.toml", &(access + &target("a-b", "app-b", "app-a", rule)));
    setup.get(&setup.a, "app-b", "/", 200).await;
    // Back to strict, with the same policy: nothing is denied meanwhile.
    let revision = setup.mesh.readyz().await["policy"]["revision"].clone();
    let mut connection = Http1Connection::connect(setup.a.socket(15080)).await.unwrap();
    setup.mesh.write_policy("services.toml", &strict);
    eventually("the strict policy", async || {
        let answer = connection.get("/", "app-b").await.unwrap();
        ensure_status(&answer, 200).unwrap();
        let now = setup.mesh.readyz().await["policy"]["revision"].clone();
        if now == revision { Err(now.to_string()) } else { Ok(()) }
    })
    .await;
    eventually("the stranger to be denied", async || {
        let answer = connection.get("/", "app-b").await.unwrap();
        ensure_status(&answer, 200).unwrap();
        let mut stranger = Http1Connection::connect(setup.c.socket(15080)).await?;
        ensure_status(&stranger.get("/", "app-b").await?, 404)
    })
    .await;
    for _ in 0..15 {
        ensure_status(&connection.get("/", "app-b").await.unwrap(), 200).unwrap();
    }
    setup.assert_no_update_errors().await;
}

/// OSM 7.
#[tokio::test(flavor = "multi_thread")]
async fn split_applies_in_permissive_mode_and_backends_are_reachable() {
    let Some(setup) = SmiMesh::open("mode = \"permissive\"\n").await else { return };
    let split = "[[traffic_split]]\nname = \"b\"\nservice = \"app-b\"\n\
                 backends = [{ service = \"app-b\", weight = 1 }, { service = \"app-c\", weight = 1 }]\n";
    setup.mesh.write_policy("split.toml", split);
    let mut connection = Http1Connection::connect(setup.a.socket(15080)).await.unwrap();
    eventually("both to answer", async || {
        let mut apps = BTreeSet::new();
        for _ in 0..40 {
            let answer = connection.get("/", "app-b").await?;
            ensure_status(&answer, 200)?;
            apps.extend(answer.header("x-app").map(str::to_owned));
        }
        anyhow::ensure!(apps.iter().eq(["b", "c"]), "{apps:?}");
        Ok(())
    })
    .await;
    setup.get(&setup.a, "app-c", "/", 200).await;
    setup.assert_no_update_errors().await;
}

/// OSM 2.
#[tokio::test(flavor = "multi_thread")]
async fn clients_of_several_accounts_and_replicas_reach_one_server() {
    let Some(programs) = Programs::find() else { return };
    let clients: Vec<String> = (1..=3).map(|n| format!("client-{n}")).collect();
    let sources: Vec<String> =
        clients.iter().map(|name| format!("{{ name = \"{name}\" }}")).collect();
    let services = clients.iter().map(|name| format!("[[service]]\nname = \"{name}\"\n"));
    let policy = services.collect::<String>()
        + SERVICES
        + "[[tcp_route]]\nname = \"all\"\n"
        + &target("b", "app-b", "app-a", "kind = \"TCPRoute\", name = \"all\"")
            .replace("{ name = \"app-a\" }", &sources.join(", "));
    let mesh = Mesh::start(&programs, &[("policy.toml", &policy)]).await;
    let _app = App::http1("b", mesh.loopback().socket(22, 9091)).await;
    let server = mesh.envoy(&ProxyOptions::new("default/app-b", 22)).await;
    let mut envoys = Vec::new();
    for (name, host) in clients.iter().chain(&clients).zip(31..) {
        envoys.push(mesh.envoy(&ProxyOptions::new(&format!("default/{name}"), host)).await);
    }
    for envoy in &envoys {
        eventually("the server to answer", async || {
            let mut connection = Http1Connection::connect(envoy.socket(15080)).await?;
            ensure_status(&connection.get("/", "app-b").await?, 200)
        })
        .await;
    }
    server.assert_no_update_errors().await;
}
