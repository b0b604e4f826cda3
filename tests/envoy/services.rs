//! The service model on real Envoys: subsets, visibility and protocols.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{
    App, Envoy, Ledger, Load, Mesh, Programs, ProxyOptions, TcpConnection, eventually, get_once,
    tls,
};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::bookstore::{ensure_status, wait_for_endpoint};

const SUBSETS: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]
subsets = [
  { name = "store-v1", labels = { version = "v1" } },
  { name = "store-v2", labels = { version = "v2" } },
]

[[service]]
name = "buyer"

[[traffic_split]]
name = "store"
service = "store"
backends = [{ service = "store-v1", weight = 75 }, { service = "store-v2", weight = 25 }]

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "buyers"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

/// The number of calls to this host that each application answers.
async fn count_answers(
    caller: &Envoy,
    host: &str,
    calls: usize,
) -> anyhow::Result<BTreeMap<String, usize>> {
    let mut apps = BTreeMap::new();
    for _ in 0..calls {
        let response = get_once(caller.socket(15080), "/", &[("host", host)]).await?;
        ensure_status(&response, 200)?;
        *apps.entry(response.header("x-app").unwrap_or_default().to_owned()).or_default() += 1;
    }
    Ok(apps)
}

/// OSM 8.
#[tokio::test(flavor = "multi_thread")]
async fn subset_contains_only_endpoints_with_its_labels() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("policy.toml", SUBSETS)]).await;
    let app = |name: &'static str, host| App::http1(name, mesh.loopback().socket(host, 8080));
    let _apps = (app("v1-a", 21).await, app("v1-b", 22).await, app("v2", 23).await);
    let store = |host, label: &str| ProxyOptions::new("default/store", host).label(label);
    let _one = mesh.envoy(&store(21, "version=v1")).await;
    let _two = mesh.envoy(&store(22, "version=v1")).await;
    let _three = mesh.envoy(&store(23, "version=v2")).await;
    let buyer = mesh.envoy(&ProxyOptions::new("default/buyer", 11)).await;

    eventually("both of the first version to answer", async || {
        let apps =
            count_answers(&buyer, "store-v1", 20).await.map_err(|error| error.to_string())?;
        if apps.keys().eq(["v1-a", "v1-b"]) { Ok(()) } else { Err(format!("{apps:?}")) }
    })
    .await;
    eventually("the second version to answer", async || {
        let apps = count_answers(&buyer, "store-v2", 5).await.map_err(|error| error.to_string())?;
        if apps.keys().eq(["v2"]) { Ok(()) } else { Err(format!("{apps:?}")) }
    })
    .await;
    // The whole service follows its split: a quarter to v2. Fewer than 60 or more than 140 of 400
    // is one chance in a million.
    let apps = count_answers(&buyer, "store", 400).await.unwrap();
    assert!((60..=140).contains(&apps["v2"]), "{apps:?}");

    // The canary goes on by weight: no call of the whole is lost meanwhile, nor when the weights
    // go.
    let address = buyer.socket(15080);
    let load = Load::start(address, "store", "/");
    let whole =
        "[{ service = \"store-v1\", weight = 75 }, { service = \"store-v2\", weight = 25 }]";
    for (v1, v2, names) in
        [(100, 0, &["v1-a", "v1-b"][..]), (1, 1, &["v1-a", "v1-b", "v2"]), (0, 100, &["v2"])]
    {
        let weights = whole.replace("75", &v1.to_string()).replace("25", &v2.to_string());
        mesh.write_policy("policy.toml", &SUBSETS.replace(whole, &weights));
        eventually(&format!("{names:?} to answer"), async || {
            let apps =
                count_answers(&buyer, "store", 40).await.map_err(|error| error.to_string())?;
            if apps.keys().eq(names) { Ok(()) } else { Err(format!("{apps:?}")) }
        })
        .await;
    }

    // A proxy enrolled with a label is an endpoint of its subset without any edit.
    let _app = app("v2-b", 24).await;
    let _four = mesh.envoy(&store(24, "version=v2")).await;
    eventually("the new endpoint to answer", async || {
        let apps =
            count_answers(&buyer, "store-v2", 10).await.map_err(|error| error.to_string())?;
        if apps.keys().eq(["v2", "v2-b"]) { Ok(()) } else { Err(format!("{apps:?}")) }
    })
    .await;
    eventually("the new endpoint to have calls of the whole", async || {
        let apps = count_answers(&buyer, "store", 20).await.map_err(|error| error.to_string())?;
        if apps.keys().eq(["v2", "v2-b"]) { Ok(()) } else { Err(format!("{apps:?}")) }
    })
    .await;
    let (before, split) = SUBSETS.split_once("[[traffic_split]]").unwrap();
    let after = split.split_once("[[http_route_group]]").unwrap().1;
    mesh.write_policy("policy.toml", &format!("{before}[[http_route_group]]{after}"));
    eventually("all to answer", async || {
        let apps = count_answers(&buyer, "store", 40).await.map_err(|error| error.to_string())?;
        if apps.keys().eq(["v1-a", "v1-b", "v2", "v2-b"]) {
            Ok(())
        } else {
            Err(format!("{apps:?}"))
        }
    })
    .await;
    load.finish().await.assert_undisturbed();
    assert_eq!(buyer.sum(r"^cluster\..*\.upstream_rq_retry$").await, 0);
    // No proxy can enroll as a subset.
    let output = mesh
        .run(&[
            "proxy",
            "bootstrap",
            "--service",
            "default/store-v1",
            "--address",
            "127.0.0.1",
            "--out",
            "/nonexistent",
        ])
        .await;
    assert!(!output.status.success());
    buyer.assert_no_update_errors().await;
}

const VISIBILITY: &str = r#"
[[service]]
name = "stock"
namespace = "shop"
visibility = "private"
mode = "permissive"
ports = [
  { name = "web", port = 80, protocol = "http", target_port = 8080 },
  { name = "journal", port = 3306, protocol = "tcp" },
]

[[service]]
name = "till"
namespace = "shop"

[[service]]
name = "auditor"
namespace = "office"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn private_permissive_service_is_limited_to_its_namespace() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("policy.toml", VISIBILITY)]).await;
    let _web = App::http1("stock", mesh.loopback().socket(21, 8080)).await;
    let _journal = Ledger::start("stock", mesh.loopback().socket(21, 3306)).await;
    let stock = mesh.envoy(&ProxyOptions::new("shop/stock", 21)).await;
    let caller = |service: &str, host| {
        ProxyOptions::new(service, host)
            .upstream("shop/stock:80=8000")
            .upstream("shop/stock:3306=3306")
    };
    let till = mesh.envoy(&caller("shop/till", 11)).await;
    let auditor = mesh.envoy(&caller("office/auditor", 12)).await;
    wait_for_endpoint(&till, "shop/stock|3306").await;
    let status =
        async |from: &Envoy| get_once(from.socket(8000), "/", &[]).await.unwrap().status.as_u16();
    eventually("the till to be allowed", async || match status(&till).await {
        200 => Ok(()),
        other => Err(other),
    })
    .await;
    let mut connection = TcpConnection::connect(till.socket(3306)).await.unwrap();
    assert_eq!(connection.line().await.unwrap(), "stock");
    for port in [8000, 3306] {
        let connection = TcpConnection::connect(auditor.socket(port)).await;
        assert!(connection.is_err(), "no listener for a service without known backends");
    }
    assert_eq!(
        get_once(auditor.socket(15080), "/", &[("host", "stock.shop")]).await.unwrap().status,
        404
    );

    // The auditor's certificate does not open the port either, past its sidecar.
    let folder = mesh.bootstrap(&ProxyOptions::new("office/auditor", 13)).await;
    let proxy_client = ProxyClient::connect(&folder, mesh.xds()).await.unwrap();
    let (chain, key) = proxy_client.service_certificate("office/auditor").await.unwrap();
    let rejected = stock.sum(r"^listener\..*15003\.ssl\.fail_verify_san$").await;
    let sni = "3306.stock.shop.mesh.internal";
    let port = stock.socket(15003);
    let stream =
        tls::connect_mesh(port, sni, &["ironmesh"], &chain, &key, &proxy_client.roots).await;
    let received = match stream {
        Ok(stream) => TcpConnection::over(stream).line().await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    received.unwrap_err();
    assert_eq!(stock.sum(r"^listener\..*15003\.ssl\.fail_verify_san$").await, rejected + 1);
    stock.assert_no_update_errors().await;
}

const PROTOCOLS: &str = r#"
[[service]]
name = "store"
ports = [
  { name = "web", port = 81, protocol = "grpc-web", target_port = 8080 },
  { name = "https", port = 443, protocol = "https", target_port = 8443 },
  { name = "mysql", port = 3306, protocol = "mysql" },
]

[[service]]
name = "buyer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[tcp_route]]
name = "all"

[[traffic_target]]
name = "buyers"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }, { kind = "TCPRoute", name = "all" }]
"#;

/// An application with its own TLS, and the roots of its certificate.
async fn tls_echo(address: std::net::SocketAddr) -> RootCertStore {
    let certified = rcgen::generate_simple_self_signed(["store.example".to_owned()]).unwrap();
    let certificate = certified.cert.der().clone();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut word = [0; 5];
            if stream.read_exact(&mut word).await.is_ok() {
                let _ = stream.write_all(&word).await;
            }
        }
    });
    roots
}

/// OSM 12, OSM 13.
#[tokio::test(flavor = "multi_thread")]
async fn each_port_carries_its_declared_protocol() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("policy.toml", PROTOCOLS)]).await;
    let _web = App::http2("store", mesh.loopback().socket(21, 8080)).await;
    let _mysql = Ledger::start("store", mesh.loopback().socket(21, 3306)).await;
    let roots = tls_echo(mesh.loopback().socket(21, 8443)).await;
    let _store = mesh.envoy(&ProxyOptions::new("default/store", 21)).await;
    let options = ProxyOptions::new("default/buyer", 11)
        .upstream("default/store:81=8081")
        .upstream("default/store:443=8443")
        .upstream("default/store:3306=3306");
    let buyer = mesh.envoy(&options).await;
    wait_for_endpoint(&buyer, "default/store|3306").await;

    // gRPC-Web over HTTP/1.1 is gRPC over HTTP/2 to the application.
    eventually("the web to answer", async || {
        let mut connection =
            ironmesh_tests::Http1Connection::connect(buyer.socket(8081)).await.unwrap();
        let headers = [("host", "store"), ("content-type", "application/grpc-web+proto")];
        let answer = connection.request(http::Method::POST, "/shop.Store/Buy", &headers).await;
        let answer = answer.map_err(|error| error.to_string())?;
        // An answer that is no gRPC comes back as the message of an error.
        let seen = answer.header("grpc-message").unwrap_or_default().to_owned();
        if seen.contains(r#""content-type":"application/grpc""#) { Ok(()) } else { Err(seen) }
    })
    .await;

    // A server that speaks first.
    let mut connection = TcpConnection::connect(buyer.socket(3306)).await.unwrap();
    assert_eq!(connection.line().await.unwrap(), "store");

    // The application's own TLS, from end to end.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(buyer.socket(8443)).await.unwrap();
    let name = ServerName::try_from("store.example").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let mut word = [0; 5];
    stream.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"hello");
    buyer.assert_no_update_errors().await;
}
