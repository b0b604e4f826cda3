//! Predictions: a policy plan compared with the policy, and `policy explain` compared with real
//! calls.

use std::collections::{BTreeMap, BTreeSet};

use fs_err as fs;
use ironmesh_tests::{
    App, Envoy, Http1Connection, Mesh, Programs, ProxyOptions, eventually, get_once,
};
use serde_json::Value;

use crate::bookstore::{ensure_status, wait_for_endpoint};

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]

[[service]]
name = "ledger"
ports = [{ name = "sql", port = 3306, protocol = "tcp", target_port = 8081 }]

[[service]]
name = "anna"

[[service]]
name = "ben"

[[http_route_group]]
name = "store"
[[http_route_group.matches]]
name = "books"
path_regex = "/books"

[[tcp_route]]
name = "sql"

[[traffic_target]]
name = "readers"
destination = { name = "store" }
sources = [{ name = "anna" }]
rules = [{ kind = "HTTPRouteGroup", name = "store" }]

[[traffic_target]]
name = "clerks"
destination = { name = "ledger" }
sources = [{ name = "store" }, { name = "anna" }]
rules = [{ kind = "TCPRoute", name = "sql" }]
"#;

struct PredictionMesh {
    mesh: Mesh,
    anna: Envoy,
    ben: Envoy,
    _servers: [Envoy; 2],
    _app: App,
}

impl PredictionMesh {
    async fn open() -> Option<Self> {
        let mesh = Mesh::start(&Programs::find()?, &[("policy.toml", POLICY)]).await;
        let app = App::http1("store", mesh.loopback().socket(21, 8080)).await;
        let store = mesh.envoy(&ProxyOptions::new("default/store", 21)).await;
        let ledger = mesh.envoy(&ProxyOptions::new("default/ledger", 22)).await;
        let caller = |name: &str, host| {
            ProxyOptions::new(&format!("default/{name}"), host)
                .upstream("default/store=8000")
                .upstream("default/ledger=8001")
        };
        let anna = mesh.envoy(&caller("anna", 11)).await;
        let ben = mesh.envoy(&caller("ben", 12)).await;
        wait_for_endpoint(&anna, "default/store|80").await;
        wait_for_endpoint(&anna, "default/ledger|3306").await;
        Some(Self { mesh, anna, ben, _servers: [store, ledger], _app: app })
    }

    async fn json(&self, arguments: &[&str]) -> Value {
        let output = self.mesh.run(&[arguments, &["--output", "json"]].concat()).await;
        assert!(!output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The plan of this policy.
    async fn plan(&self, policy: &str) -> Value {
        let folder = self.mesh.folder().join("planned");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("policy.toml"), policy).unwrap();
        self.json(&["policy", "plan", folder.to_str().unwrap()]).await
    }

    /// The versions that each proxy should have, by type and name, once no push is pending.
    async fn acked_versions(
        &self,
    ) -> Result<BTreeMap<String, BTreeMap<(String, String), String>>, String> {
        let mut accepted = BTreeMap::new();
        for proxy in self.mesh.proxies().await.as_array().unwrap() {
            let id = proxy["id"].as_str().unwrap();
            let config = self.mesh.admin_get(&format!("/v1/proxies/{id}/config")).await;
            let mut of_proxy = BTreeMap::new();
            for one in config.get("resources").unwrap().as_array().unwrap() {
                let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
                match &*text("state") {
                    "acked" | "not_sent" => {}
                    // Envoy may keep it while connections drain.
                    "removing" => continue,
                    _ => return Err(format!("{id}: {one}")),
                }
                of_proxy.insert((text("resource_type"), text("name")), text("version"));
            }
            accepted.insert(id.to_owned(), of_proxy);
        }
        Ok(accepted)
    }
}

/// The pushes by proxy: type, name and kind of change.
type Pushes = BTreeSet<(String, String, String, String)>;

fn planned_pushes(plan: &Value) -> Pushes {
    let mut sent = Pushes::new();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for group in plan["proxies"].as_array().unwrap() {
        for proxy in group["proxies"].as_array().unwrap() {
            for one in group["resources"].as_array().unwrap() {
                let (of, name, how) = (&one["resource_type"], &one["name"], &one["change"]);
                sent.insert((text(&proxy["id"]), text(of), text(name), text(how)));
            }
        }
    }
    sent
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_matches_the_resources_that_proxies_receive() {
    let Some(setup) = PredictionMesh::open().await else { return };
    let ben_too = POLICY.replace(
        r#"sources = [{ name = "anna" }]"#,
        r#"sources = [{ name = "anna" }, { name = "ben" }]"#,
    );
    let no_clerk =
        ben_too.replace(r#"[{ name = "store" }, { name = "anna" }]"#, r#"[{ name = "store" }]"#);
    let narrower = no_clerk.replace(r#""/books""#, r#""/books/new""#);
    let split = format!(
        "{narrower}\n[[service]]\nname = 'store-v2'\nservice_account = 'store'\n\
         ports = [{{ name = 'web', port = 80, protocol = 'http', target_port = 8080 }}]\n\
         [[traffic_split]]\nname = 's'\nservice = 'store'\n\
         backends = [{{ service = 'store', weight = 1 }}, {{ service = 'store-v2', weight = 1 }}]\n"
    );
    // One version without a grant for some, and an external service.
    let outside = setup.mesh.loopback().socket(21, 8080);
    let nested = split.replace(
        "[[service]]\nname = \"store\"\n",
        "[[service]]\nname = \"store\"\nsubsets = [{ name = 'store-new', labels = { is = 'new' } }]\n",
    );
    assert_ne!(nested, split);
    let nested = format!(
        "{nested}\n[[traffic_split]]\nname = 'behind'\nservice = 'store-v2'\n\
         matches = [{{ kind = 'HTTPRouteGroup', name = 'store' }}]\n\
         backends = [{{ service = 'store-new', weight = 1 }}]\n\
         [[service]]\nname = 'pay'\nexternal = true\nmode = 'permissive'\n\
         ports = [{{ port = 80, protocol = 'http' }}]\n[service.endpoints]\n\
         static = [{{ address = '{}', port = {} }}]\n",
        outside.ip(),
        outside.port(),
    );
    // The proxy has no known application at first, and then one at a port that policy does not set.
    let listed = |endpoint: &str| {
        let store = "[[service]]\nname = \"store\"\n";
        nested.replace(store, &format!("{store}endpoints = {{ static = [{{ {endpoint} }}] }}\n"))
    };
    let without_application = listed("address = \"192.0.2.9\"");
    let moved = listed(&format!("address = \"{}\", port = 9000", outside.ip()));
    let another_port = nested.replace(
        r#"ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]"#,
        r#"ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }, { name = "more", port = 81, protocol = "http", target_port = 8080 }]"#,
    );
    let ledger = "[[service]]\nname = \"ledger\"\n";
    let permissive = another_port
        .replace(ledger, &format!("{ledger}mode = \"permissive\"\nvisibility = \"private\"\n"));
    let end = POLICY.to_owned();
    let steps = [
        &ben_too,
        &no_clerk,
        &narrower,
        &split,
        &nested,
        &without_application,
        &moved,
        &another_port,
        &permissive,
        &end,
    ];
    for (step, policy) in steps.into_iter().enumerate() {
        let before =
            eventually("all to have what they are to have", async || setup.acked_versions().await)
                .await;
        let plan = setup.plan(policy).await;
        assert_ne!(plan["proxies"], Value::Array(Vec::new()), "step {step} changes nothing");
        setup.mesh.write_policy("policy.toml", policy);
        eventually(&format!("what the plan of step {step} foretells"), async || {
            if setup.mesh.readyz().await["policy"]["revision"] != plan["to"] {
                return Err("another policy is active".to_owned());
            }
            let after = setup.acked_versions().await?;
            let mut sent = Pushes::new();
            for (id, now) in &after {
                let was = &before[id];
                for key in was.keys().chain(now.keys()) {
                    let how = match (was.get(key), now.get(key)) {
                        (None, _) => "added",
                        (_, None) => "removed",
                        (was, now) if was == now => continue,
                        _ => "changed",
                    };
                    sent.insert((id.clone(), key.0.clone(), key.1.clone(), how.to_owned()));
                }
            }
            let planned = planned_pushes(&plan);
            let missing: Vec<_> = planned.difference(&sent).collect();
            let surplus: Vec<_> = sent.difference(&planned).collect();
            if missing.is_empty() && surplus.is_empty() {
                return Ok(());
            }
            Err(format!("not sent: {missing:#?}; not foretold: {surplus:#?}"))
        })
        .await;
        let again = setup.plan(policy).await;
        assert_eq!(again["proxies"], Value::Array(Vec::new()), "step {step} has more to come");
        assert_eq!(again["access"], Value::Array(Vec::new()));
    }
    for envoy in [&setup.anna, &setup.ben] {
        envoy.assert_no_update_errors().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_verdict_matches_envoy_responses() {
    let Some(setup) = PredictionMesh::open().await else { return };
    let explain = async |from: &str, path: &str| {
        let arguments = ["policy", "explain", "--from", from, "--to", "store", "--path", path];
        setup.json(&arguments).await
    };
    for (from, caller, path, status) in [
        ("anna", &setup.anna, "/books/1", 200),
        ("anna", &setup.anna, "/x/../books", 200),
        ("anna", &setup.anna, "/shelf", 403),
        ("anna", &setup.anna, "/books%2f1", 400),
        ("ben", &setup.ben, "/books/1", 403),
    ] {
        eventually(&format!("{status} for {from} at {path}"), async || {
            ensure_status(&get_once(caller.socket(8000), path, &[]).await?, status)
        })
        .await;
        let verdict = explain(from, path).await;
        let answer = match status {
            200 => "allowed",
            400 => "rejected",
            _ => "denied",
        };
        assert_eq!(verdict["answer"], answer, "{from} {path}: {verdict:#}");
        if status != 400 {
            let endpoints = verdict["destinations"][0]["endpoints"].as_array().unwrap();
            let server = setup.mesh.loopback().socket(21, 15003).to_string();
            assert_eq!(endpoints[0]["address"], server, "{verdict:#}");
        }
    }
    // Readers of the admin API may request it.
    let question = r#"{"caller":"default/ben","service":"default/store"}"#;
    let question = question.replace('{', "%7B").replace('}', "%7D").replace('"', "%22");
    let verdict = setup.mesh.admin_get(&format!("/v1/explain?question={question}")).await;
    assert_eq!(verdict["answer"], "denied", "{verdict:#}");
    // Requests as expensive as a plan are for the socket's owner.
    let mut reader = Http1Connection::connect(setup.mesh.admin()).await.unwrap();
    let host = setup.mesh.admin().to_string();
    let rejected = reader.request("POST".parse().unwrap(), "/v1/plan", &[("host", &host)]).await;
    assert_eq!(rejected.unwrap().status, 403);
    let output = setup.mesh.run(&["policy", "explain", "--from", "bem", "--to", "store"]).await;
    assert_eq!(output.status.code(), Some(2), "an unknown name is no denial");
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean `default/ben`?"));
}
