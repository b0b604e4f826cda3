//! What becomes of what an Envoy refuses: nobody else is concerned, access is never restored, and the
//! policy behind it is named.

use std::path::{Path, PathBuf};

use ironmesh_tests::{App, Envoy, Programs, ProxyOptions, Response, eventually, get_once};
use serde_json::Value;

use crate::bookstore::{Bookstore, buyers, expect};

/// Lets an Envoy take less than it should: regular expressions of a hundred instructions, which is its
/// default, and not the thousand of our bootstrap.
fn with_small_expressions(folder: &Path) {
    let file = folder.join("envoy.yaml");
    let text = fs_err::read_to_string(&file).unwrap();
    let small = text.replace("\"error_level\": 1000", "\"error_level\": 100");
    assert_ne!(small, text, "the bootstrap says nothing of the limit");
    fs_err::write(file, small).unwrap();
}

/// Larger than an Envoy of small expressions takes, and within what the loader takes.
const LARGE: &str = "/books/[a-z0-9-]{1,60}";

/// An expression that matches the same, and is small.
const SMALL: &str = "/books/.*";

/// A further target of the store, with a match of its own.
fn auditors(path_regex: &str) -> String {
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
    /// What the control plane knows of the proxy at this address.
    async fn proxy(&self, envoy: &Envoy) -> Value {
        let proxies = self.mesh.proxies().await;
        let address = format!("{}:15003", envoy.address());
        let mut proxies = proxies.as_array().unwrap().iter();
        let is_it =
            |proxy: &&Value| proxy.pointer("/mesh_address") == Some(&address.as_str().into());
        proxies.find(is_it).unwrap().clone()
    }

    /// Waits until that proxy refuses something, with this in force instead.
    async fn refuses(&self, envoy: &Envoy, instead: &str) -> Value {
        eventually("a refusal", async || {
            let proxy = self.proxy(envoy).await;
            let nack = proxy.pointer("/nacks/0");
            let nack = nack.filter(|nack| nack.get("instead") == Some(&instead.into()));
            nack.cloned().ok_or_else(|| proxy.to_string())
        })
        .await
    }
}

/// A store whose second version has a sidecar with small expressions, alone behind its name.
struct Shop {
    store: Bookstore,
    small: Envoy,
    buyer: Envoy,
    folder: PathBuf,
    program: PathBuf,
    app: App,
}

impl Shop {
    async fn open() -> Option<Self> {
        Self::open_adapted(|options| options).await
    }

    async fn open_adapted(adapt: fn(ProxyOptions) -> ProxyOptions) -> Option<Self> {
        let programs = Programs::find()?;
        let service = r#"
[[service]]
name = "small"
service_account = "bookstore"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]
"#;
        let store = Bookstore::open_adapted(&[("small.toml", service)], &[], adapt).await?;
        let app = App::http1("small", store.mesh.loopback().socket(23, 8080)).await;
        let folder = store.mesh.bootstrap(&adapt(ProxyOptions::new("default/small", 23))).await;
        with_small_expressions(&folder);
        let address = store.mesh.loopback().host(23);
        let small = Envoy::start(&programs.envoy, "small", &folder, address, 30).await;
        let buyer = ProxyOptions::new("default/bookbuyer", 13).upstream("default/small=14001");
        let buyer = store.mesh.envoy(&adapt(buyer)).await;
        let program = programs.envoy;
        let shop = Self { store, small, buyer, folder, program, app };
        eventually("the small store to answer", async || expect(&shop.buy().await?, 200)).await;
        Some(shop)
    }

    async fn buy(&self) -> anyhow::Result<Response> {
        get_once(self.buyer.socket(14001), "/books/1", &[]).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nacked_grant_keeps_other_grants_and_names_its_policy() {
    let Some(shop) = Shop::open().await else { return };
    let store = &shop.store;
    store.mesh.write_policy("auditors.toml", &auditors(LARGE));
    let nack = store.refuses(&shop.small, "narrowed").await;
    assert_eq!(nack["name"], "inbound|default/small|14001", "{nack:#}");
    assert!(nack["message"].as_str().unwrap().contains("regex"), "{nack:#}");
    let origin = &nack["policy"][0];
    assert_eq!(origin["object"], "match `look` of route group `default/audit`", "{nack:#}");
    assert_eq!(
        (&origin["file"], &origin["line"]),
        (&"auditors.toml".into(), &8.into()),
        "{nack:#}"
    );
    // What was granted before is granted still; and the others took the new version.
    for _ in 0..5 {
        expect(&shop.buy().await.unwrap(), 200).unwrap();
    }
    assert_eq!(store.proxy(&store.v1).await["nacks"], serde_json::json!([]));
    let metrics = get_once(store.mesh.admin(), "/metrics", &[]).await.unwrap().text();
    for line in [
        "ironmesh_ready 1",
        "ironmesh_resources_refused 1",
        "ironmesh_xds_nacks_total{type=\"route_configuration\"} 1",
        "ironmesh_policy_stale 0",
    ] {
        assert!(metrics.lines().any(|one| one == line), "no `{line}` in\n{metrics}");
    }
    // It is told once.
    let told = store.mesh.log().matches("a proxy NACKed a resource").count();
    assert_eq!(told, 1, "{}", store.mesh.log());
    assert_eq!(store.mesh.log().matches("proxy NACKed resources").count(), 1, "by the engine");
    // Another process has refused nothing yet: it is asked again, and refuses again.
    let Shop { store, small, buyer, folder, program, app } = shop;
    let address = small.address();
    small.stop().await;
    let small = Envoy::start(&program, "small", &folder, address, 30).await;
    eventually("it to be asked again", async || {
        match store.mesh.log().matches("a proxy NACKed a resource").count() {
            2 => Ok(()),
            told => Err(told),
        }
    })
    .await;
    // It had nothing to fall back to.
    let shop = Shop { store, small, buyer, folder, program, app };
    let store = &shop.store;
    eventually("the buyer to be let in again", async || expect(&shop.buy().await?, 200)).await;
    // When policy changes, the new version is tried.
    store.mesh.write_policy("auditors.toml", &auditors(SMALL));
    refuses_nothing(store, &shop.small).await;
    expect(&shop.buy().await.unwrap(), 200).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sotw_nacked_grant_keeps_other_grants_until_policy_changes() {
    let Some(shop) = Shop::open_adapted(ProxyOptions::sotw).await else { return };
    let store = &shop.store;
    store.mesh.write_policy("auditors.toml", &auditors(LARGE));
    let nack = store.refuses(&shop.small, "narrowed").await;
    assert_eq!(nack["name"], "inbound|default/small|14001", "{nack:#}");
    assert!(nack["message"].as_str().unwrap().contains("regex"), "{nack:#}");
    for _ in 0..5 {
        expect(&shop.buy().await.unwrap(), 200).unwrap();
    }
    assert_eq!(granted(&shop.small).await, (true, false));
    assert_eq!(store.proxy(&store.v1).await["nacks"], serde_json::json!([]));
    assert_eq!(store.mesh.log().matches("a proxy NACKed a resource").count(), 1);
    store.mesh.write_policy("auditors.toml", &auditors(SMALL));
    everything_is_granted(&shop.small).await;
    refuses_nothing(store, &shop.small).await;
    expect(&shop.buy().await.unwrap(), 200).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nack_never_restores_withdrawn_access() {
    let Some(shop) = Shop::open().await else { return };
    let store = &shop.store;
    // The buyers' grant is withdrawn in the same revision that brings what the small one refuses.
    store.mesh.write_policy("auditors.toml", &auditors(SMALL));
    store.mesh.write_policy("buyers.toml", &auditors(LARGE).replace("audit", "controll"));
    let nack = store.refuses(&shop.small, "narrowed").await;
    assert_eq!(nack["name"], "inbound|default/small|14001", "{nack:#}");
    eventually("the buyer to be denied", async || expect(&shop.buy().await?, 403)).await;
    // Nor does our own restart, after which what was good before is not known any more: closed.
    let mut shop = shop;
    shop.store.mesh.restart_control_plane().await;
    shop.store.refuses(&shop.small, "closed").await;
    expect(&shop.buy().await.unwrap(), 403).unwrap();
    shop.store.mesh.write_policy("buyers.toml", &buyers(SMALL));
    eventually("the buyer to be let in", async || expect(&shop.buy().await?, 200)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_is_quarantined_after_three_nacks_and_not_after_two() {
    let Some(shop) = Shop::open().await else { return };
    let store = &shop.store;
    let another_small = async |host: u8| {
        let folder = store.mesh.bootstrap(&ProxyOptions::new("default/small", host)).await;
        with_small_expressions(&folder);
        Envoy::start(&shop.program, "small", &folder, store.mesh.loopback().host(host), 30).await
    };
    let second = another_small(24).await;
    store.mesh.write_policy("auditors.toml", &auditors(LARGE));
    for envoy in [&shop.small, &second] {
        store.refuses(envoy, "narrowed").await;
    }
    // Two alone cannot withhold it from an Envoy that takes it.
    let newcomer = store.mesh.envoy(&ProxyOptions::new("default/small", 25)).await;
    everything_is_granted(&newcomer).await;
    refuses_nothing(store, &newcomer).await;
    newcomer.stop().await;
    // A third one NACKs it, and no other is there: one more is not sent it.
    let third = another_small(26).await;
    store.refuses(&third, "narrowed").await;
    let spared = store.mesh.envoy(&ProxyOptions::new("default/small", 27)).await;
    assert_eq!(granted(&spared).await, (true, false));
    let proxy = store.proxy(&spared).await;
    assert_eq!(proxy["nacks"], serde_json::json!([]), "it was not sent it");
    assert_eq!(proxy["withheld"][0]["name"], "inbound|default/small|14001", "{proxy:#}");
    assert_eq!(proxy["withheld"][0]["instead"], "narrowed", "{proxy:#}");
    assert_eq!(proxy["withheld"][0]["policy"][0]["file"], "auditors.toml", "{proxy:#}");
    let listed = store.mesh.run(&["proxy", "list"]).await.stdout;
    let listed = String::from_utf8_lossy(&listed);
    assert!(listed.contains("withheld: "), "{listed}");
    // One more, and the three are no majority: both are sent it.
    let fifth = store.mesh.envoy(&ProxyOptions::new("default/small", 28)).await;
    let sixth = store.mesh.envoy(&ProxyOptions::new("default/small", 29)).await;
    for envoy in [&spared, &fifth, &sixth] {
        everything_is_granted(envoy).await;
        refuses_nothing(store, envoy).await;
    }
    // With another regular expression every Envoy gets all of it.
    store.mesh.write_policy("auditors.toml", &auditors(SMALL));
    for envoy in [&shop.small, &second, &third] {
        everything_is_granted(envoy).await;
    }
    for envoy in [spared, fifth, sixth] {
        envoy.assert_calm().await;
    }
}

/// Whether the old grant and the new one are in force in an Envoy.
async fn granted(envoy: &Envoy) -> (bool, bool) {
    let dump = envoy.admin_get("/config_dump?resource=dynamic_route_configs").await.text();
    (dump.contains("default/buyers"), dump.contains("default/auditors"))
}

/// Waits until nothing is refused by an Envoy, or withheld from it.
async fn refuses_nothing(store: &Bookstore, envoy: &Envoy) {
    eventually("the refusal to be over", async || {
        let proxy = store.proxy(envoy).await;
        let is_empty =
            |list: &str| proxy.get(list).is_some_and(|list| *list == Value::Array([].into()));
        if is_empty("nacks") && is_empty("withheld") { Ok(()) } else { Err(proxy.to_string()) }
    })
    .await;
}

async fn everything_is_granted(envoy: &Envoy) {
    eventually("the new grant", async || match granted(envoy).await {
        (true, true) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}
