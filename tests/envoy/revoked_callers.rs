//! Revoked callers at a real Envoy: it refuses the proxy, and no other of the same account.

mod without_dns_name;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ironmesh_cert::generate_proxy_key_and_csr;
use ironmesh_enrollment::ServiceCertificateRequest;
use ironmesh_tests::tls::connect_mesh;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{
    App, Http2Connection, Ledger, Load, Mesh, Programs, ProxyOptions, REQUESTS_PER_FAULT,
    TcpConnection, eventually, get_once,
};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use crate::bookstore::ensure_status;
use crate::clocks::{HOUR, wait_for_jump_report};
use crate::leave::machine;
use crate::tcp::{DRAIN_SECONDS, use_past_drain_time};

/// Each mode, since no policy decides about revoked callers.
const POLICY: &str = r#"
[[service]]
name = "till"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]

[[service]]
name = "audited"
mode = "audit"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]

[[service]]
name = "open"
mode = "permissive"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]

[[service]]
name = "ledger"
ports = [{ name = "ledger", port = 3306, protocol = "tcp", target_port = 8081 }]

[[service]]
name = "customer"

[[service]]
name = "auditor"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "till"
destination = { name = "till" }
sources = [{ name = "customer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]

[[tcp_route]]
name = "ledger"
matches = { ports = [3306] }

[[traffic_target]]
name = "ledger"
destination = { name = "ledger" }
sources = [{ name = "customer" }, { name = "auditor" }]
rules = [{ kind = "TCPRoute", name = "ledger" }]
"#;

const SERVICES: [&str; 3] = ["till", "audited", "open"];

/// A chain, its key and the roots, in PEM.
struct Identity {
    chain: String,
    key: String,
    roots: String,
}

impl Identity {
    /// That of one proxy, for a key of its machine.
    async fn of_machine(mesh: &Mesh, folder: &Path) -> Self {
        let (client, identity) = machine(mesh, folder);
        let (key, csr) = generate_proxy_key_and_csr().unwrap();
        let request = ServiceCertificateRequest { secret: "service-cert".to_owned(), csr };
        let issued = client.issue_service_certificate(&identity, &request).await.unwrap();
        let roots = fs_err::read_to_string(folder.join("ca.crt")).unwrap();
        Self { chain: issued.chain, key: key.expose().to_owned(), roots }
    }

    /// That which all hand-run proxies of the account share.
    async fn of_account(mesh: &Mesh, folder: &Path) -> Self {
        let proxy = ProxyClient::connect(folder, mesh.xds()).await.unwrap();
        let (chain, key) = proxy.service_certificate("default/customer").await.unwrap();
        Self { chain, key, roots: proxy.roots }
    }

    /// Opens an HTTP/2 connection to a service.
    async fn open(&self, server: SocketAddr, service: &str) -> anyhow::Result<Http2Connection> {
        let Self { chain, key, roots } = self;
        let sni = format!("80.{service}.default.mesh.internal");
        let stream = connect_mesh(server, &sni, &["ironmesh"], chain, key, roots).await?;
        Http2Connection::over(stream).await
    }

    /// The greeting of the ledger on a new connection.
    async fn greeting(&self, server: SocketAddr) -> anyhow::Result<String> {
        Ok(self.connect(server).await?.1)
    }

    /// A connection to the ledger that was greeted.
    async fn dial(&self, server: SocketAddr) -> TcpConnection<TlsStream<TcpStream>> {
        eventually("the ledger to answer", async || self.connect(server).await).await.0
    }

    async fn connect(
        &self,
        server: SocketAddr,
    ) -> anyhow::Result<(TcpConnection<TlsStream<TcpStream>>, String)> {
        let Self { chain, key, roots } = self;
        let sni = "3306.ledger.default.mesh.internal";
        let stream = connect_mesh(server, sni, &["ironmesh"], chain, key, roots).await?;
        let mut connection = TcpConnection::over(stream);
        let greeting = connection.line().await?;
        Ok((connection, greeting))
    }

    /// Opens one to each service.
    async fn open_all(&self, server: SocketAddr) -> Vec<Http2Connection> {
        let mut connections = Vec::new();
        for service in SERVICES {
            let open = async || self.open(server, service).await;
            connections.push(eventually("a connection to the server", open).await);
        }
        connections
    }
}

/// The statuses of one request on each connection.
async fn statuses(connections: &mut [Http2Connection]) -> anyhow::Result<Vec<u16>> {
    let mut statuses = Vec::new();
    for connection in connections {
        statuses.push(connection.get("/", "any").await?.status.as_u16());
    }
    Ok(statuses)
}

/// Waits until each of these open connections answers so.
async fn answers(what: &str, connections: &[Http2Connection], status: u16) {
    let copies = connections.to_vec();
    eventually(what, async || {
        let now = statuses(&mut copies.clone()).await?;
        anyhow::ensure!(now.iter().all(|one| *one == status), "{now:?}");
        anyhow::Ok(())
    })
    .await;
}

async fn enroll(mesh: &Mesh, host: u8) -> PathBuf {
    mesh.bootstrap(&ProxyOptions::new("default/customer", host)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_caller_alone_gets_403_on_open_connections() {
    let Some(programs) = Programs::find() else { return };
    let mut mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    let _app = App::http1("till", mesh.loopback().socket(21, 8080)).await;
    let options = ProxyOptions::new("default/till", 21);
    let options = options.with_service("default/audited").with_service("default/open");
    let server = mesh.envoy(&options).await;
    let port = server.socket(15003);

    let (first, second) = (enroll(&mesh, 11).await, enroll(&mesh, 12).await);
    let revoked = Identity::of_machine(&mesh, &first).await;
    let other = Identity::of_machine(&mesh, &second).await;
    // Of the same account, with the DNS name of a shared certificate.
    let shared = Identity::of_account(&mesh, &second).await;
    let mut revoked_open = revoked.open_all(port).await;
    let mut others_open = other.open_all(port).await;
    others_open.extend(shared.open_all(port).await);
    answers("the revoked caller to be served", &revoked_open, 200).await;
    answers("the other callers to be served", &others_open, 200).await;
    let updates = "listener_manager.listener_in_place_updated";
    let before = server.stat(updates).await;

    let run = mesh.run(&["proxy", "revoke", "customer-1", "--reason", "stolen"]).await;
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let begin = Instant::now();
    answers("the open connections to be refused", &revoked_open, 403).await;
    eprintln!("refused {:?} after the revocation", begin.elapsed());
    assert_eq!(statuses(&mut others_open).await.unwrap(), [200; 6]);
    // The handshake succeeds: each request is refused.
    assert_eq!(statuses(&mut revoked.open_all(port).await).await.unwrap(), [403; 3]);
    assert_eq!(server.stat(updates).await, before, "a revocation edits no listener");

    // It holds for open connections through a restart of the control plane, and for new ones after.
    mesh.restart_control_plane().await;
    crate::restart::wait_for_streams(&server, 1).await;
    assert_eq!(statuses(&mut revoked_open).await.unwrap(), [403; 3]);
    assert_eq!(statuses(&mut others_open).await.unwrap(), [200; 6]);
    assert_eq!(statuses(&mut revoked.open_all(port).await).await.unwrap(), [403; 3]);
    assert_eq!(statuses(&mut other.open_all(port).await).await.unwrap(), [200; 3]);
    server.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_caller_alone_is_refused_in_tcp_handshakes() {
    let Some(programs) = Programs::find() else { return };
    let mut mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    let _app = Ledger::start("ledger", mesh.loopback().socket(21, 8081)).await;
    let server = mesh.envoy(&ProxyOptions::new("default/ledger", 21)).await;
    let port = server.socket(15003);
    let mut identities = Vec::new();
    for host in [11, 12, 13] {
        identities.push(Identity::of_machine(&mesh, &enroll(&mesh, host).await).await);
    }
    identities.push(Identity::of_account(&mesh, &enroll(&mesh, 14).await).await);
    for identity in &identities {
        eventually("the ledger to answer", async || identity.greeting(port).await).await;
    }

    // The lists of the second revocation replace those of the first.
    for revoked in 1..3 {
        let name = format!("customer-{revoked}");
        let run = mesh.run(&["proxy", "revoke", &name]).await;
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let begin = Instant::now();
        eventually("the handshake to be refused", async || {
            match identities[revoked - 1].greeting(port).await {
                Ok(greeting) => Err(greeting),
                Err(_) => Ok(()),
            }
        })
        .await;
        eprintln!("refused {:?} after the revocation", begin.elapsed());
        for (n, identity) in identities.iter().enumerate() {
            let greeting = identity.greeting(port).await;
            assert_eq!(greeting.is_ok(), n >= revoked, "{name}, caller {n}: {greeting:?}");
        }
    }

    mesh.restart_control_plane().await;
    crate::restart::wait_for_streams(&server, 1).await;
    for (n, identity) in identities.iter().enumerate() {
        assert_eq!(identity.greeting(port).await.is_ok(), n >= 2, "caller {n} after a restart");
    }
    server.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revocation_ends_open_tcp_connections_of_the_account() {
    let Some(programs) = Programs::find() else { return };
    let mut mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    let _app = Ledger::start("ledger", mesh.loopback().socket(21, 8081)).await;
    let options = ProxyOptions::new("default/ledger", 21).drain_seconds(DRAIN_SECONDS);
    let server = mesh.envoy(&options).await;
    let port = server.socket(15003);
    let stolen = Identity::of_machine(&mesh, &enroll(&mesh, 11).await).await;
    let other = Identity::of_machine(&mesh, &enroll(&mesh, 12).await).await;
    let auditor = ProxyOptions::new("default/auditor", 13).upstream("default/ledger=3306");
    let auditor = mesh.envoy(&auditor).await;
    let mut auditors = eventually("the auditor to be served", async || {
        let mut connection = TcpConnection::connect(auditor.socket(3306)).await?;
        anyhow::ensure!(connection.line().await? == "ledger");
        anyhow::Ok(connection)
    })
    .await;
    let (mut active, mut silent) = (stolen.dial(port).await, stolen.dial(port).await);

    let run = mesh.run(&["proxy", "revoke", "customer-1", "--reason", "stolen"]).await;
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let begin = Instant::now();
    eventually("the end of an active connection", async || {
        active.exchange("still there").await.err().ok_or("it is open")
    })
    .await;
    let ended = silent.line().await.unwrap_err();
    assert!(!format!("{ended:#}").contains("no line comes"), "{ended:#}");
    eprintln!("ended {:?} after the revocation", begin.elapsed());
    stolen.greeting(port).await.unwrap_err();
    // The account's other proxies dial again, and keep that connection, also through a restart of the control plane.
    let mut others = other.dial(port).await;
    mesh.restart_control_plane().await;
    crate::restart::wait_for_streams(&server, 1).await;
    use_past_drain_time(&mut [&mut auditors]).await;
    others.exchange("still there").await.unwrap();
    stolen.greeting(port).await.unwrap_err();
    server.assert_no_update_errors().await;
}

/// BoringSSL refuses all callers while the date of a list is in the future, or its time is over.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_clock_at_revocation_refuses_no_other_caller() {
    let Some(programs) = Programs::find() else { return };
    let mut mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    mesh.restart_with_own_clock().await;
    let _app = Ledger::start("ledger", mesh.loopback().socket(21, 8081)).await;
    let server = mesh.envoy(&ProxyOptions::new("default/ledger", 21)).await;
    let port = server.socket(15003);
    let mut identities = Vec::new();
    for host in [11, 12, 13] {
        identities.push(Identity::of_machine(&mesh, &enroll(&mesh, host).await).await);
    }
    for identity in &identities {
        drop(identity.dial(port).await);
    }

    for (n, (skew, direction)) in [(-HOUR, "back by 1h"), (HOUR, "ahead by 2h")].iter().enumerate()
    {
        mesh.set_clock(*skew);
        wait_for_jump_report(&mesh, direction).await;
        let name = format!("customer-{}", n + 1);
        let run = mesh.run(&["proxy", "revoke", &name]).await;
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        eventually("the handshake to be refused", async || {
            identities[n].greeting(port).await.err().ok_or("it is accepted")
        })
        .await;
        identities[2].greeting(port).await.unwrap();
        mesh.restart_control_plane().await;
        crate::restart::wait_for_streams(&server, 1).await;
        identities[n].greeting(port).await.unwrap_err();
        identities[2].greeting(port).await.unwrap();
    }
    mesh.set_clock(0);
    mesh.restart_control_plane().await;
    crate::restart::wait_for_streams(&server, 1).await;
    let is_accepted = async |identity: &Identity| identity.greeting(port).await.is_ok();
    for (n, identity) in identities.iter().enumerate() {
        assert_eq!(is_accepted(identity).await, n == 2, "caller {n} by the right clock");
    }
    server.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_shared_certificate_costs_others_no_request() {
    let Some(programs) = Programs::find() else { return };
    let mut mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    let _app = App::http1("till", mesh.loopback().socket(21, 8080)).await;
    let _ledger = Ledger::start("ledger", mesh.loopback().socket(21, 8081)).await;
    let options = ProxyOptions::new("default/till", 21).with_service("default/ledger");
    let server = mesh.envoy(&options).await;
    let port = server.socket(15003);
    // What is left of a machine that was cut from the control plane: its certificate and its key.
    let stolen = Identity::of_account(&mesh, &enroll(&mesh, 11).await).await;
    let customer =
        |host| ProxyOptions::new("default/customer", host).upstream("default/till=14001");
    let others = [mesh.envoy(&customer(12)).await, mesh.envoy(&customer(13)).await];
    for other in &others {
        eventually("the till to answer", async || {
            ensure_status(&get_once(other.socket(14001), "/", &[]).await?, 200)
        })
        .await;
    }
    let open = vec![eventually("a connection", async || stolen.open(port, "till").await).await];
    answers("the shared certificate to be served", &open, 200).await;
    eventually("the ledger to answer", async || stolen.greeting(port).await).await;
    let loads = others.each_ref().map(|other| Load::start(other.socket(14001), "till", "/"));
    for load in &loads {
        load.wait_for_requests(REQUESTS_PER_FAULT).await;
    }

    let run = mesh.run(&["proxy", "revoke", "customer-1", "--reason", "stolen"]).await;
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let begin = Instant::now();
    answers("the stolen certificate to be refused", &open, 403).await;
    eprintln!("refused {:?} after the revocation", begin.elapsed());
    eventually("the handshake to be refused", async || match stolen.greeting(port).await {
        Ok(greeting) => Err(greeting),
        Err(_) => Ok(()),
    })
    .await;
    let mut again = vec![stolen.open(port, "till").await.unwrap()];
    assert_eq!(statuses(&mut again).await.unwrap(), [403]);
    for load in &loads {
        load.wait_for_requests(REQUESTS_PER_FAULT).await;
    }

    // The refusal and the new certificate survive a restart.
    let serials = others[0].serials().await;
    mesh.restart_control_plane().await;
    for envoy in others.iter().chain([&server]) {
        crate::restart::wait_for_streams(envoy, 1).await;
    }
    assert_eq!(others[0].serials().await, serials);
    assert_eq!(statuses(&mut again).await.unwrap(), [403]);
    for load in &loads {
        load.wait_for_requests(REQUESTS_PER_FAULT).await;
    }
    for load in loads {
        let report = load.finish().await;
        report.assert_undisturbed();
        eprintln!("{} requests, none failed", report.requests);
    }
    for envoy in others.iter().chain([&server]) {
        envoy.assert_no_update_errors().await;
    }
    let shown = mesh.run(&["proxy", "show", "customer-1"]).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("accept its service certificate until "), "{shown}");
    assert!(shown.contains("default/till|80"), "{shown}");
}
