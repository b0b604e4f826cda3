//! The traces that the control plane exports of its changes: from the pass that finds a change to the answers of Envoys.

use ironmesh_tests::collector::Span;
use ironmesh_tests::{Collector, Loopback, ProxyOptions, eventually};

use crate::bookstore::ensure_status;
use crate::nacks::{LARGE_REGEX, NackMesh, auditors};

/// The spans of the trace of a change, once its root has come. They begin with the root.
async fn trace(collector: &Collector, change: &str) -> Vec<Span> {
    eventually("the trace of a change", async || {
        let spans = collector.spans();
        let of_change = |span: &&Span| {
            span.attributes.get("ironmesh.change").is_some_and(|value| *value == change)
        };
        let root = spans.iter().filter(of_change).find(|span| span.parent.is_empty());
        let root = root.ok_or_else(|| format!("{spans:#?}"))?.clone();
        let children: Vec<_> = spans.into_iter().filter(|span| span.parent == root.id).collect();
        Ok::<_, String>([vec![root], children].concat())
    })
    .await
}

/// The id of the change of the active policy.
async fn active_change(setup: &NackMesh) -> String {
    let readyz = setup.store.mesh.readyz().await;
    let revision = readyz.pointer("/policy/revision").unwrap().as_str().unwrap();
    format!("policy-{}", revision.get(..12).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_change_is_one_trace_of_its_pass_pushes_and_answers() {
    let network = Loopback::claim();
    let at = network.socket(1, 4317);
    let collector = Collector::start(at).await;
    let settings = format!("traces.endpoint = \"http://{at}\"\n");
    let adapt: fn(ProxyOptions) -> ProxyOptions = |options| options;
    let Some(setup) = NackMesh::open_with_settings(&settings, adapt).await else { return };
    // An Envoy with a smaller limit NACKs it, and the others ACK it.
    setup.store.mesh.write_policy("auditors.toml", &auditors(LARGE_REGEX));
    setup.store.wait_for_nack(&setup.small, "narrowed").await;
    let change = active_change(&setup).await;
    let spans = trace(&collector, &change).await;
    let (root, children) = spans.split_first().unwrap();
    assert_eq!((&*root.name, &*root.service, root.kind), ("change", "ironmesh", 1), "{root:#?}");
    assert_eq!(root.attributes["ironmesh.change.kind"], "policy", "{root:#?}");
    assert_eq!(root.attributes["ironmesh.nacked"], 1, "{root:#?}");
    assert_eq!(root.error.as_deref(), Some("proxies that NACKed it: 1"), "{root:#?}");
    let reconciled: Vec<_> = children.iter().filter(|span| span.name == "reconcile").collect();
    assert_eq!(reconciled.len(), 1, "{spans:#?}");
    assert_eq!(reconciled[0].times.0, root.times.0, "{spans:#?}");
    let pushes: Vec<_> = children.iter().filter(|span| span.name == "push").collect();
    let (nacked, acked): (Vec<&Span>, Vec<&Span>) =
        pushes.iter().partition(|span| span.error.is_some());
    let small = setup.store.proxy(&setup.small).await["id"].as_str().unwrap().to_owned();
    assert!(!acked.is_empty() && !nacked.is_empty(), "{spans:#?}");
    for span in &nacked {
        assert_eq!(span.attributes["ironmesh.proxy"], small.as_str(), "{span:#?}");
        let error = span.error.as_deref().unwrap();
        assert!(error.starts_with("NACK: ") && error.contains("regex"), "{span:#?}");
        let of = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
        assert_eq!(span.attributes["xds.type_url"], of, "{span:#?}");
    }
    let proxies = acked.iter().filter(|span| span.attributes["ironmesh.proxy"] != small.as_str());
    assert!(proxies.count() > 0, "{spans:#?}");
    for span in children {
        assert_eq!(span.trace, root.trace, "{span:#?}");
        assert!(root.times.0 <= span.times.0 && span.times.0 <= span.times.1, "{span:#?}");
    }
    for span in &pushes {
        assert_eq!(span.kind, 3, "{span:#?}");
        assert!(reconciled[0].times.0 <= span.times.0, "{span:#?}");
    }
    // The collector is lost and comes back: the mesh goes on, and the log has a line for each.
    drop(collector);
    setup.store.mesh.remove_policy("auditors.toml");
    let lines = |text: &str| setup.store.mesh.log().matches(text).count();
    eventually("a line about the collector", async || match lines("cannot export traces") {
        0 => Err("none"),
        count => Ok(count),
    })
    .await;
    for _ in 0..5 {
        ensure_status(&setup.buy().await.unwrap(), 200).unwrap();
    }
    eventually("the address to be free", async || std::net::TcpListener::bind(at).map(drop)).await;
    let collector = Collector::start(at).await;
    let change = active_change(&setup).await;
    let spans = trace(&collector, &change).await;
    assert_eq!(spans[0].error, None, "{spans:#?}");
    eventually("the end of the outage", async || match lines("traces are exported again") {
        0 => Err("none"),
        count => Ok(count),
    })
    .await;
    assert_eq!(lines("cannot export traces"), 1);
}
