//! NACKs of an Envoy: other proxies are unaffected, no withdrawn access returns, and status names
//! the policy object.

use std::path::{Path, PathBuf};

use ironmesh_tests::{App, Envoy, Programs, ProxyOptions, Response, eventually, get_once};
use serde_json::Value;

use crate::bookstore::{Bookstore, buyers, ensure_status};

/// Limits an Envoy's regular expressions to a hundred instructions, Envoy's default, instead of the
/// thousand of the bootstrap.
fn limit_regex_size(folder: &Path) {
    let file = folder.join("envoy.yaml");
    let text = fs_err::read_to_string(&file).unwrap();
    let small = text.replace("\"error_level\": 1000", "\"error_level\": 100");
    assert_ne!(small, text, "the bootstrap has no limit");
    fs_err::write(file, small).unwrap();
}

/// Too large for such an Envoy, and within the loader's limit.
pub(crate) const LARGE_REGEX: &str = "/books/[a-z0-9-]{1,60}";

/// An equivalent small expression.
pub(crate) const SMALL_REGEX: &str = "/books/.*";

/// A further traffic target of the store with its own match.
pub(crate) fn auditors(path_regex: &str) -> String {
    format!(
        r#"
[[service]]
name = "auditor"

[[http_route_group]]
name = "audit"
[[http_route_group.matches]]
name = "look"
path_regex = "{path_regex}"

[[traffic_target]]
name = "auditors"
destination = {{ name = "bookstore" }}
sources = [{{ name = "auditor" }}]
rules = [{{ kind = "HTTPRouteGroup", name = "audit" }}]
"#
    )
}

impl Bookstore {
    /// The control plane's view of the proxy at this address.
    pub(crate) async fn proxy(&self, envoy: &Envoy) -> Value {
        let proxies = self.mesh.proxies().await;
        let address = format!("{}:15003", envoy.address());
        let mut proxies = proxies.as_array().unwrap().iter();
        let matches =
            |proxy: &&Value| proxy.pointer("/mesh_address") == Some(&address.as_str().into());
        proxies.find(matches).unwrap().clone()
    }

    /// Waits until that proxy NACKs a resource and has this fallback.
    pub(crate) async fn wait_for_nack(&self, envoy: &Envoy, fallback: &str) -> Value {
        eventually("a NACK", async || {
            let proxy = self.proxy(envoy).await;
            let nack = proxy.pointer("/nacks/0");
            let nack = nack.filter(|nack| nack.get("fallback") == Some(&fallback.into()));
            nack.cloned().ok_or_else(|| proxy.to_string())
        })
        .await
    }
}

/// A store whose second version has a sidecar with small expressions, under a name of its own.
pub(crate) struct NackMesh {
    pub(crate) store: Bookstore,
    pub(crate) small: Envoy,
    buyer: Envoy,
    folder: PathBuf,
    program: PathBuf,
    app: App,
}

impl NackMesh {
    pub(crate) async fn open() -> Option<Self> {
        Self::open_adapted(|options| options).await
    }

    async fn open_adapted(adapt: fn(ProxyOptions) -> ProxyOptions) -> Option<Self> {
        Self::open_with_settings("", adapt).await
    }

    /// Opens it with these settings of the control plane, and proxies that `adapt` has changed.
    pub(crate) async fn open_with_settings(
        settings: &str,
        adapt: fn(ProxyOptions) -> ProxyOptions,
    ) -> Option<Self> {
        let programs = Programs::find()?;
        let service = r#"
[[service]]
name = "small"
service_account = "bookstore"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]
"#;
        let policy = [("small.toml", service)];
        let store = Bookstore::open_with_settings(settings, &policy, &[], adapt).await?;
        let app = App::http1("small", store.mesh.loopback().socket(23, 8080)).await;
        let folder = store.mesh.bootstrap(&adapt(ProxyOptions::new("default/small", 23))).await;
        limit_regex_size(&folder);
        let address = store.mesh.loopback().host(23);
        let small = Envoy::start(&programs.envoy, "small", &folder, address, 30).await;
        let buyer = ProxyOptions::new("default/bookbuyer", 13).upstream("default/small=14001");
        let buyer = store.mesh.envoy(&adapt(buyer)).await;
        let program = programs.envoy;
        let setup = Self { store, small, buyer, folder, program, app };
        eventually("the small store to answer", async || ensure_status(&setup.buy().await?, 200))
            .await;
        Some(setup)
    }

    pub(crate) async fn buy(&self) -> anyhow::Result<Response> {
        get_once(self.buyer.socket(14001), "/books/1", &[]).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nacked_grant_keeps_other_grants_and_names_its_policy() {
    let Some(setup) = NackMesh::open().await else { return };
    let store = &setup.store;
    store.mesh.write_policy("auditors.toml", &auditors(LARGE_REGEX));
    let nack = store.wait_for_nack(&setup.small, "narrowed").await;
    assert_eq!(nack["name"], "inbound|default/small|14001", "{nack:#}");
    assert!(nack["message"].as_str().unwrap().contains("regex"), "{nack:#}");
    let origin = &nack["policy"][0];
    assert_eq!(origin["object"], "match `look` of route group `default/audit`", "{nack:#}");
    assert_eq!(
        (&origin["file"], &origin["line"]),
        (&"auditors.toml".into(), &8.into()),
        "{nack:#}"
    );
    // Previous grants stay, and the other proxies ACKed the new version.
    for _ in 0..5 {
        ensure_status(&setup.buy().await.unwrap(), 200).unwrap();
    }
    assert_eq!(store.proxy(&store.v1).await["nacks"], serde_json::json!([]));
    let metrics = get_once(store.mesh.admin(), "/metrics", &[]).await.unwrap().text();
    for line in [
        "ironmesh_ready 1",
        "ironmesh_resources_nacked 1",
        "ironmesh_xds_nacks_total{type=\"route_configuration\"} 1",
        "ironmesh_policy_stale 0",
    ] {
        assert!(metrics.lines().any(|one| one == line), "no `{line}` in\n{metrics}");
    }
    // The log has it once.
    let reported = store.mesh.log().matches("a proxy NACKed a resource").count();
    assert_eq!(reported, 1, "{}", store.mesh.log());
    assert_eq!(store.mesh.log().matches("proxy NACKed resources").count(), 1, "by the engine");
    // A new process has NACKed nothing yet: it is sent the version again, and NACKs it again.
    let NackMesh { store, small, buyer, folder, program, app } = setup;
    let address = small.address();
    small.stop().await;
    let small = Envoy::start(&program, "small", &folder, address, 30).await;
    eventually("another NACK", async || {
        match store.mesh.log().matches("a proxy NACKed a resource").count() {
            2 => Ok(()),
            reported => Err(reported),
        }
    })
    .await;
    // It had no fallback.
    let setup = NackMesh { store, small, buyer, folder, program, app };
    let store = &setup.store;
    eventually("the buyer to be allowed again", async || ensure_status(&setup.buy().await?, 200))
        .await;
    // After a policy change, the new version is tried.
    store.mesh.write_policy("auditors.toml", &auditors(SMALL_REGEX));
    wait_for_no_nacks(store, &setup.small).await;
    ensure_status(&setup.buy().await.unwrap(), 200).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sotw_nacked_grant_keeps_other_grants_until_policy_changes() {
    let Some(setup) = NackMesh::open_adapted(ProxyOptions::sotw).await else { return };
    let store = &setup.store;
    store.mesh.write_policy("auditors.toml", &auditors(LARGE_REGEX));
    let nack = store.wait_for_nack(&setup.small, "narrowed").await;
    assert_eq!(nack["name"], "inbound|default/small|14001", "{nack:#}");
    assert!(nack["message"].as_str().unwrap().contains("regex"), "{nack:#}");
    for _ in 0..5 {
        ensure_status(&setup.buy().await.unwrap(), 200).unwrap();
    }
    assert_eq!(active_grants(&setup.small).await, (true, false));
    assert_eq!(store.proxy(&store.v1).await["nacks"], serde_json::json!([]));
    assert_eq!(store.mesh.log().matches("a proxy NACKed a resource").count(), 1);
    store.mesh.write_policy("auditors.toml", &auditors(SMALL_REGEX));
    wait_for_new_grant(&setup.small).await;
    wait_for_no_nacks(store, &setup.small).await;
    ensure_status(&setup.buy().await.unwrap(), 200).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nack_never_restores_withdrawn_access() {
    let Some(setup) = NackMesh::open().await else { return };
    let store = &setup.store;
    // One revision withdraws the buyers' grant and adds an expression that this Envoy NACKs.
    store.mesh.write_policy("auditors.toml", &auditors(SMALL_REGEX));
    store.mesh.write_policy("buyers.toml", &auditors(LARGE_REGEX).replace("audit", "controll"));
    let nack = store.wait_for_nack(&setup.small, "narrowed").await;
    assert_eq!(nack["name"], "inbound|default/small|14001", "{nack:#}");
    eventually("the buyer to be denied", async || ensure_status(&setup.buy().await?, 403)).await;
    // After a control-plane restart no last good version is known, so the fallback is closed.
    let mut setup = setup;
    setup.store.mesh.restart_control_plane().await;
    setup.store.wait_for_nack(&setup.small, "closed").await;
    ensure_status(&setup.buy().await.unwrap(), 403).unwrap();
    setup.store.mesh.write_policy("buyers.toml", &buyers(SMALL_REGEX));
    eventually("the buyer to be allowed", async || ensure_status(&setup.buy().await?, 200)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_is_quarantined_after_three_nacks_and_not_after_two() {
    let Some(setup) = NackMesh::open().await else { return };
    let store = &setup.store;
    let another_small = async |host: u8| {
        let folder = store.mesh.bootstrap(&ProxyOptions::new("default/small", host)).await;
        limit_regex_size(&folder);
        Envoy::start(&setup.program, "small", &folder, store.mesh.loopback().host(host), 30).await
    };
    let second = another_small(24).await;
    store.mesh.write_policy("auditors.toml", &auditors(LARGE_REGEX));
    for envoy in [&setup.small, &second] {
        store.wait_for_nack(envoy, "narrowed").await;
    }
    // Two NACKs alone do not withhold the version from an Envoy that accepts it.
    let new_proxy = store.mesh.envoy(&ProxyOptions::new("default/small", 25)).await;
    wait_for_new_grant(&new_proxy).await;
    wait_for_no_nacks(store, &new_proxy).await;
    new_proxy.stop().await;
    // A third proxy NACKs it, and no ACK exists: the next proxy is not sent the version.
    let third = another_small(26).await;
    store.wait_for_nack(&third, "narrowed").await;
    let spared = store.mesh.envoy(&ProxyOptions::new("default/small", 27)).await;
    assert_eq!(active_grants(&spared).await, (true, false));
    let proxy = store.proxy(&spared).await;
    assert_eq!(proxy["nacks"], serde_json::json!([]), "it was not sent it");
    assert_eq!(proxy["withheld"][0]["name"], "inbound|default/small|14001", "{proxy:#}");
    assert_eq!(proxy["withheld"][0]["fallback"], "narrowed", "{proxy:#}");
    assert_eq!(proxy["withheld"][0]["policy"][0]["file"], "auditors.toml", "{proxy:#}");
    let listed = store.mesh.run(&["proxy", "list"]).await.stdout;
    let listed = String::from_utf8_lossy(&listed);
    assert!(listed.contains("withheld: "), "{listed}");
    // With one more, three are no majority: both are sent the version.
    let fifth = store.mesh.envoy(&ProxyOptions::new("default/small", 28)).await;
    let sixth = store.mesh.envoy(&ProxyOptions::new("default/small", 29)).await;
    for envoy in [&spared, &fifth, &sixth] {
        wait_for_new_grant(envoy).await;
        wait_for_no_nacks(store, envoy).await;
    }
    // With another expression every Envoy gets the whole policy.
    store.mesh.write_policy("auditors.toml", &auditors(SMALL_REGEX));
    for envoy in [&setup.small, &second, &third] {
        wait_for_new_grant(envoy).await;
    }
    for envoy in [spared, fifth, sixth] {
        envoy.assert_no_update_errors().await;
    }
}

/// Whether the old grant and the new one are active in an Envoy.
async fn active_grants(envoy: &Envoy) -> (bool, bool) {
    let dump = envoy.admin_get("/config_dump?resource=dynamic_route_configs").await.text();
    (dump.contains("default/buyers"), dump.contains("default/auditors"))
}

/// Waits until no resource is NACKed by an Envoy, or withheld from it.
async fn wait_for_no_nacks(store: &Bookstore, envoy: &Envoy) {
    eventually("no NACK to be left", async || {
        let proxy = store.proxy(envoy).await;
        let is_empty =
            |list: &str| proxy.get(list).is_some_and(|list| *list == Value::Array([].into()));
        if is_empty("nacks") && is_empty("withheld") { Ok(()) } else { Err(proxy.to_string()) }
    })
    .await;
}

async fn wait_for_new_grant(envoy: &Envoy) {
    eventually("the new grant", async || match active_grants(envoy).await {
        (true, true) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}
