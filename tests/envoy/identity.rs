//! What each certificate permits, on the mesh port and on the control plane's port.

use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{Http1Connection, Http2Connection, ProxyOptions, tls};
use ironmesh_xds_wire::pb::envoy::config::core::v3::{BuildVersion, Node, node};
use ironmesh_xds_wire::pb::envoy::r#type::v3::SemanticVersion;
use tonic::Code;

use crate::bookstore::Bookstore;

/// The SNI for the port of the store's first version.
const SNI: &str = "14001.bookstore-v1.default.mesh.internal";

impl Bookstore {
    /// A client with the enrollment of a proxy of `service` at host `host`.
    async fn proxy_client(&self, service: &str, host: u8) -> ProxyClient {
        let folder = self.mesh.bootstrap(&ProxyOptions::new(service, host)).await;
        let control_plane = self.mesh.xds();
        ProxyClient::connect(&folder, control_plane).await.unwrap()
    }
}

/// SMI 1.
#[tokio::test(flavor = "multi_thread")]
async fn mesh_port_authorizes_by_certificate() {
    let Some(store) = Bookstore::open().await else { return };
    let mesh_port = store.v1.socket(15003);
    let (buyer, thief) = (
        store.proxy_client("default/bookbuyer", 13).await,
        store.proxy_client("default/bookthief", 14).await,
    );
    for (who, account, status) in [
        (&buyer, "default/bookbuyer", 200),
        // The thief dials past its own sidecar with its valid certificate.
        (&thief, "default/bookthief", 403),
    ] {
        let (chain, key) = who.service_certificate(account).await.unwrap();
        let dial = |sni, alpn| tls::connect_mesh(mesh_port, sni, alpn, &chain, &key, &who.roots);
        let stream = dial(SNI, &["ironmesh"]).await.unwrap();
        let mut connection = Http1Connection::over(stream).await.unwrap();
        let answer = connection.get("/books/1", "bookstore").await.unwrap();
        assert_eq!(answer.status, status, "{account} by HTTP/1.1: {}", answer.text());
        let stream = dial(SNI, &["ironmesh"]).await.unwrap();
        let mut connection = Http2Connection::over(stream).await.unwrap();
        let answer = connection.get("/books/1", "bookstore").await.unwrap();
        assert_eq!(answer.status, status, "{account} by HTTP/2: {}", answer.text());
        // A wrong SNI or ALPN protocol gets no connection.
        for (sni, alpn) in [
            (SNI, &[][..]),
            (SNI, &["h2"]),
            ("14001.bookstore-v2.default.mesh.internal", &["ironmesh"]),
            ("bookstore-v1.default.mesh.internal", &["ironmesh"]),
        ] {
            assert!(dial(sni, alpn).await.is_err(), "{account} came in by {sni} {alpn:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_and_service_certificates_are_not_interchangeable() {
    let Some(store) = Bookstore::open().await else { return };
    let folder = store.mesh.bootstrap(&ProxyOptions::new("default/bookbuyer", 13)).await;
    let read = |name: &str| fs_err::read_to_string(folder.join(name)).unwrap();
    let (chain, key, roots) = (read("proxy.crt"), read("proxy.key"), read("ca.crt"));
    let stream =
        tls::connect_mesh(store.v1.socket(15003), SNI, &["ironmesh"], &chain, &key, &roots).await;
    // It is of the mesh, but policy does not name its SPIFFE ID.
    let mut connection = Http1Connection::over(stream.unwrap()).await.unwrap();
    assert_eq!(connection.get("/books/1", "bookstore").await.unwrap().status, 403);

    let control_plane = store.mesh.xds();
    let buyer = ProxyClient::connect(&folder, control_plane).await.unwrap();
    let (chain, key) = buyer.service_certificate("default/bookbuyer").await.unwrap();
    for (name, content) in [("proxy.crt", chain), ("proxy.key", key)] {
        fs_err::write(folder.join(name), content).unwrap();
    }
    let workload = ProxyClient::connect(&folder, control_plane).await.unwrap();
    let node = Node { id: workload.node_id.clone(), ..Node::default() };
    let rejected = workload.request_secret(node, "roots").await.unwrap_err();
    assert_eq!(rejected.code(), Code::PermissionDenied, "{rejected}");
}

/// A8.
#[tokio::test(flavor = "multi_thread")]
async fn control_plane_identifies_proxies_by_certificate_only() {
    let Some(store) = Bookstore::open().await else { return };
    let thief = store.proxy_client("default/bookthief", 14).await;
    let other = store.proxy_client("default/bookbuyer", 13).await;

    // The secret of another account does not exist for this client.
    let node = |id: &str| Node { id: id.to_owned(), ..Node::default() };
    let answer =
        thief.request_secret(node(&thief.node_id), "service-cert:default/bookbuyer").await.unwrap();
    assert!(answer.resources.is_empty(), "{answer:?}");
    assert_eq!(answer.removed_resources, ["service-cert:default/bookbuyer"]);
    let answer = thief.request_secret(node(&thief.node_id), "*").await.unwrap();
    assert!(answer.resources.is_empty(), "{answer:?}");

    for (host, id) in [(15, other.node_id.as_str()), (16, "bookbuyer")] {
        // On a new connection, because the server closes a connection after its second rejection.
        let thief = store.proxy_client("default/bookthief", host).await;
        let rejected = thief.request_secret(node(id), "roots").await.unwrap_err();
        assert_eq!(rejected.code(), Code::PermissionDenied);
        assert!(rejected.message().contains("contradicts the certificate"), "{rejected}");
    }
    let four_parts = format!("sidecar~10.0.0.1~{}~mesh.internal", thief.node_id);
    assert!(thief.request_secret(node(&four_parts), "roots").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn outdated_envoy_is_rejected_with_its_version() {
    let Some(store) = Bookstore::open().await else { return };
    let thief = store.proxy_client("default/bookthief", 14).await;
    let envoy = |minor_number| {
        let version = SemanticVersion { major_number: 1, minor_number, patch: 3 };
        let build = BuildVersion { version: Some(version), metadata: None };
        Node {
            id: thief.node_id.clone(),
            user_agent_name: "envoy".to_owned(),
            user_agent_version_type: Some(node::UserAgentVersionType::UserAgentBuildVersion(build)),
            ..Node::default()
        }
    };
    let rejected = thief.request_secret(envoy(30), "roots").await.unwrap_err();
    assert_eq!(rejected.code(), Code::PermissionDenied);
    assert!(rejected.message().contains("Envoy 1.30.3 is too old"), "{rejected}");
    assert!(thief.request_secret(envoy(39), "roots").await.is_ok());
    let log = fs_err::read_to_string(store.mesh.folder().join("control-plane.log")).unwrap();
    assert!(log.contains("Envoy 1.30.3 is too old"), "{log}");
}
