//! Changes of ingress policy: their effect on open connections and on callers of the mesh.

use http::Method;
use ironmesh_tests::{Http1Connection, Load, client, eventually, get_once, tls};
use serde_json::Value;

use super::{Caller, IngressMesh, SNI, enroll_client, over_https};
use crate::bookstore::ensure_status;
use crate::split_mesh::SplitMesh;

#[tokio::test(flavor = "multi_thread")]
async fn withdrawn_ingress_principal_is_denied_on_open_connection() {
    let Some(store) = IngressMesh::open().await else { return };
    store.write(&over_https("edge", ""));
    store.wait_for(Caller::Edge, 31, 200).await;
    let mut kept = store.connect(Caller::Edge, 31).await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(store.connect(Caller::Edge, 31).await.unwrap());
    }
    let mut ask = async || kept.request(Method::GET, "/books", &[("host", SNI)]).await;
    assert_eq!(ask().await.unwrap().status, 200);

    // Another principal is named: no connection ends, and the answers follow.
    for (principal, status) in [("buyer", 403), ("edge", 200)] {
        store.write(&over_https(principal, ""));
        eventually(&format!("{status} on the same connection"), async || {
            ensure_status(&ask().await?, status)
        })
        .await;
    }
    // No caller is admitted: the chain is removed, and open connections are denied.
    store.mesh.remove_policy("ingress.toml");
    store.wait_until_rejected(Caller::Edge, 31).await;
    assert_withdrawn(idle).await;
    store.server.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawn_source_address_is_denied_on_open_connection() {
    let Some(store) = IngressMesh::open().await else { return };
    let plain = |hosts: &[u8]| {
        let source =
            |host: &u8| format!("{{ kind = \"IPRange\", name = \"{}/32\" }}", store.host(*host));
        let sources: Vec<_> = hosts.iter().map(source).collect();
        super::ingress("port = { number = 14001, protocol = \"http\" }", &sources.join(", "), "")
    };
    store.write(&plain(&[31, 32]));
    store.wait_for(Caller::Plain, 31, 200).await;
    let (mut kept, mut others) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        kept.push(store.connect(Caller::Plain, 31).await.unwrap());
        others.push(store.connect(Caller::Plain, 32).await.unwrap());
    }
    store.write(&plain(&[32]));
    store.wait_until_rejected(Caller::Plain, 31).await;
    assert_withdrawn(kept).await;
    assert_eq!(store.get(Caller::Plain, 32, "/books").await.unwrap().status, 200);
    store.mesh.remove_policy("ingress.toml");
    store.wait_until_rejected(Caller::Plain, 32).await;
    assert_withdrawn(others).await;
}

/// Checks connections that were open when their caller was withdrawn. If the listener changes
/// first, one of them may still get one answer.
async fn assert_withdrawn(mut kept: Vec<Http1Connection>) {
    let mut ask = async || {
        let mut one = kept.pop().unwrap();
        ensure_status(&one.request(Method::GET, "/books", &[("host", SNI)]).await.unwrap(), 403)
    };
    eventually("an open connection to be denied", &mut ask).await;
    for _ in 0..5 {
        ask().await.unwrap();
    }
}

// The admitted addresses follow the source service, and no connection ends when they change.
#[tokio::test(flavor = "multi_thread")]
async fn ingress_source_service_follows_its_current_addresses() {
    let Some(store) = IngressMesh::open().await else { return };
    let source = "{ kind = \"Service\", name = \"balancer\" }";
    let policy = super::ingress("port = { number = 14001, protocol = \"http\" }", source, "");
    let balancer = |more: &str| format!("[[service]]\nname = \"balancer\"\n{more}\n{policy}");
    store.write(&balancer(""));
    // The service has no proxy yet.
    store.wait_for(Caller::Plain, 31, 403).await;
    let balancer_proxy = enroll_client(&store.mesh, "default/balancer", 31).await;
    // The first xDS stream claims the certificate; before that, the address does not count.
    balancer_proxy.service_certificate("default/balancer").await.unwrap();
    store.wait_for(Caller::Plain, 31, 200).await;
    assert_eq!(store.get(Caller::Plain, 32, "/").await.unwrap().status, 403);

    let mut kept = store.connect(Caller::Plain, 31).await.unwrap();
    let mut ask = async || kept.request(Method::GET, "/", &[("host", SNI)]).await;
    assert_eq!(ask().await.unwrap().status, 200);
    let list = |host| {
        let address = store.host(host);
        format!(
            "ports = [{{ port = 80, protocol = \"http\" }}]\n\
             endpoints = {{ static = [{{ address = \"{address}\" }}] }}"
        )
    };
    store.write(&balancer(&list(32)));
    store.wait_for(Caller::Plain, 32, 200).await;
    // It was enrolled, so both address kinds are known.
    assert_eq!(ask().await.unwrap().status, 200);
    let proxies = store.mesh.proxies().await;
    let address = store.host(31).to_string();
    let is_there =
        |proxy: &&Value| proxy["mesh_address"].as_str().is_some_and(|at| at.starts_with(&address));
    let proxy = proxies.as_array().unwrap().iter().find(is_there).unwrap();
    let id = proxy["id"].as_str().unwrap();
    assert!(store.mesh.run(&["proxy", "revoke", id]).await.status.success());
    eventually("the revoked proxy to be denied", async || ensure_status(&ask().await?, 403)).await;
    assert_eq!(store.get(Caller::Plain, 32, "/").await.unwrap().status, 200);
}

/// Ingress backends of the store: TLS with these names, and plaintext from these ranges.
fn ingress_policy(hosts: &str, ranges: &[&str]) -> String {
    let sources: Vec<_> = ranges
        .iter()
        .map(|range| format!("{{ kind = \"IPRange\", name = \"{range}\" }}"))
        .collect();
    let sources = sources.join(", ");
    format!(
        r#"
[[ingress_backend]]
name = "tls"
backends = [{{ name = "store", port = {{ number = 14001, protocol = "https" }}, tls = {{ sni_hosts = [{hosts}] }} }}]
sources = [{{ kind = "AuthenticatedPrincipal", name = "spiffe://mesh.internal/ns/default/sa/buyer" }}]

[[ingress_backend]]
name = "plain"
backends = [{{ name = "store", port = {{ number = 14001, protocol = "http", ingress_port = 8443 }} }}]
sources = [{sources}]
"#
    )
}

/// Ingress backends of another service, in plaintext and with TLS.
const UNCHANGED_INGRESS: &str = r#"
[[ingress_backend]]
name = "kept-plain"
backends = [{ name = "v1", port = { number = 14001, protocol = "http", ingress_port = 8444 } }]
sources = [{ kind = "IPRange", name = "127.0.0.0/8" }]

[[ingress_backend]]
name = "kept-tls"
backends = [{ name = "v1", port = { number = 14001, protocol = "https" }, tls = { sni_hosts = ["kept.example.com"] } }]
sources = [{ kind = "AuthenticatedPrincipal", name = "spiffe://mesh.internal/ns/default/sa/buyer" }]
"#;

// Each change edits the mesh listener: Envoy keeps all chains that stay the same.
#[tokio::test(flavor = "multi_thread")]
async fn ingress_changes_fail_no_mesh_request() {
    let Some(setup) = SplitMesh::open("").await else { return };
    let load = setup.load().await;
    let edge = enroll_client(&setup.mesh, "default/buyer", 31).await;
    let (chain, key) = edge.service_certificate("default/buyer").await.unwrap();
    // Other callers use a service whose ingress backends stay.
    setup.mesh.write_policy("kept.toml", UNCHANGED_INGRESS);
    let mut kept = None;
    let server = setup.server.socket(15003);
    eventually("the unchanged ingress", async || {
        ensure_status(&get_once(setup.server.socket(8444), "/", &[]).await?, 200)?;
        let name = "kept.example.com";
        let stream = tls::connect_mesh(server, name, &[], &chain, &key, &edge.roots).await?;
        let mut connection = Http1Connection::over(stream).await?;
        ensure_status(&connection.get("/", name).await?, 200)?;
        kept = Some(connection);
        anyhow::Ok(())
    })
    .await;
    let mut kept = kept.unwrap();
    let from_outside = Load::long_connections(setup.server.socket(8444), "v1", "/");
    for round in 0..3 {
        for (hosts, ranges) in [
            (format!("\"a{round}.example.com\""), &["127.0.0.0/8"][..]),
            (
                format!("\"b{round}.example.com\", \"c.example.com\""),
                &["127.0.0.0/9", "127.128.0.0/9"],
            ),
        ] {
            setup.mesh.write_policy("ingress.toml", &ingress_policy(&hosts, ranges));
            let name = hosts.split('"').nth(1).unwrap();
            eventually(&format!("{name} to be allowed"), async || {
                let stream =
                    tls::connect_mesh(server, name, &[], &chain, &key, &edge.roots).await?;
                let mut connection = Http1Connection::over(stream).await?;
                ensure_status(&connection.get("/", name).await?, 200)?;
                ensure_status(&get_once(setup.server.socket(8443), "/", &[]).await?, 200)
            })
            .await;
            ensure_status(&kept.get("/", "kept.example.com").await.unwrap(), 200).unwrap();
        }
        setup.mesh.remove_policy("ingress.toml");
        eventually("the ingress to be closed", async || {
            let source = setup.mesh.loopback().host(31);
            let dialled = client::dial_from(source, setup.server.socket(8443)).await;
            if dialled.is_err() { Ok(()) } else { Err("still open") }
        })
        .await;
        load.wait_for_requests(100).await;
    }
    ensure_status(&kept.get("/", "kept.example.com").await.unwrap(), 200).unwrap();
    from_outside.finish().await.assert_undisturbed();
    setup.assert_no_failures(load).await;
}
