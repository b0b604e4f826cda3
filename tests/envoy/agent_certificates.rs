//! Service certificates that the agent serves to a real Envoy, with an enrollment listener whose certificates last seconds.
//! The control plane's settings allow no shorter lifetime than five minutes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fs_err as fs;
use ironmesh_agent::{AgentError, AgentSettings, run};
use ironmesh_catalog::{Domain, ProxyId, TrustDomain};
use ironmesh_cert::peer::VerifiedProxy;
use ironmesh_cert::{Authority, ServerNames, generate_proxy_key_and_csr};
use ironmesh_enrollment::{
    AzureAnswer, AzureEnrollment, Enrolled, Enroller, Enrollment, EnrollmentCredentials,
    EnrollmentError, EnrollmentLimits, HealthAnswer, HealthReport, IssuedServiceCertificate, Leave,
    ProxyRenewal, ProxyStatus, ServingAnswer, ServingReport, WorkloadRequest, serve,
};
use ironmesh_sidecar::envoy::certificates_socket;
use ironmesh_sidecar_folder::EnrollmentState;
use ironmesh_tests::programs::require_envoy;
use ironmesh_tests::tls::connect_over;
use ironmesh_tests::{Envoy, Loopback, eventually, get_once};
use jiff::Timestamp;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

const DAY: Duration = Duration::from_secs(86_400);

/// The ports of Envoy: TLS with the certificate of the agent, and its admin interface.
const TLS: u16 = 15003;
const ADMIN: u16 = 15000;

/// Issues certificates of `lifetime` for the account of one proxy.
struct Issuer {
    authority: Authority,
    lifetime: Duration,
}

fn proxy() -> ProxyId {
    "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap()
}

fn unused<T>() -> Result<T, EnrollmentError> {
    Err(EnrollmentError::Unavailable("not in this test".to_owned()))
}

impl Enroller for Issuer {
    fn enroll(&self, _: Enrollment, _: SocketAddr) -> Result<Enrolled, EnrollmentError> {
        unused()
    }

    fn enroll_azure(
        &self,
        _: &AzureEnrollment,
        _: SocketAddr,
    ) -> Result<AzureAnswer, EnrollmentError> {
        unused()
    }

    fn renew(&self, _: ProxyRenewal, _: SocketAddr) -> Result<Enrolled, EnrollmentError> {
        unused()
    }

    fn renew_expired(&self, _: ProxyRenewal, _: SocketAddr) -> Result<Enrolled, EnrollmentError> {
        unused()
    }

    fn issue_service_certificate(
        &self,
        request: WorkloadRequest,
        _: SocketAddr,
    ) -> Result<IssuedServiceCertificate, EnrollmentError> {
        let account = "shop/bookstore".parse().unwrap();
        let (csr, now) = (request.request.pem(), Timestamp::now());
        let issued =
            self.authority.issue_workload_certificate(csr, proxy(), &account, self.lifetime, now);
        Ok(IssuedServiceCertificate { account, chain: issued.unwrap().chain })
    }

    fn record_serving(
        &self,
        _: &VerifiedProxy,
        _: ServingReport,
        _: SocketAddr,
    ) -> Result<ServingAnswer, EnrollmentError> {
        unused()
    }

    fn record_health(
        &self,
        _: &VerifiedProxy,
        _: HealthReport,
        _: SocketAddr,
    ) -> Result<HealthAnswer, EnrollmentError> {
        unused()
    }

    fn leave(&self, _: &VerifiedProxy, _: SocketAddr) -> Result<Leave, EnrollmentError> {
        unused()
    }

    fn revoke_left(&self, _: &VerifiedProxy, _: SocketAddr) -> Result<(), EnrollmentError> {
        unused()
    }

    fn rejoin(&self, _: &VerifiedProxy, _: SocketAddr) -> Result<ProxyStatus, EnrollmentError> {
        unused()
    }

    fn proxy_status(
        &self,
        _: &VerifiedProxy,
        _: SocketAddr,
    ) -> Result<ProxyStatus, EnrollmentError> {
        unused()
    }
}

/// A machine with an enrolled proxy, and the listener that issues to it.
struct TestMachine {
    root: TempDir,
    roots: String,
    loopback: Loopback,
    _listener: (watch::Sender<Arc<EnrollmentCredentials>>, DropGuard),
}

impl TestMachine {
    async fn new(lifetime: Duration) -> Self {
        let now = Timestamp::now();
        let authority = Authority::ephemeral(&TrustDomain::new(Domain::default()), now).unwrap();
        let own = authority.issue_control_plane_certificate(&ServerNames::default(), now).unwrap();
        let bundle = authority.trust_bundle();
        let credentials =
            EnrollmentCredentials::new(&own, &bundle, authority.trust_domain()).unwrap();
        let (sender, credentials) = watch::channel(Arc::new(credentials));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let root = tempfile::tempdir().unwrap();
        write_proxy(&root.path().join("proxy"), &authority, address);
        let (stop, issuer) = (CancellationToken::new(), Arc::new(Issuer { authority, lifetime }));
        let (limits, counters) = (EnrollmentLimits::default(), Arc::default());
        tokio::spawn(serve(listener, credentials, issuer, limits, counters, stop.clone()));
        let (loopback, roots) = (Loopback::claim(), bundle.roots);
        Self { root, roots, loopback, _listener: (sender, stop.drop_guard()) }
    }

    /// Starts the agent.
    fn agent(&self) -> RunningAgent {
        let folder = self.root.path().join("proxy");
        let settings = AgentSettings::parse(&format!("folder = '{}'", folder.display())).unwrap();
        RunningAgent(tokio::spawn(run(settings, None, CancellationToken::new())))
    }

    /// Starts Envoy, with a TLS port whose certificate comes from the agent.
    async fn envoy(&self, program: &Path) -> Envoy {
        let folder = self.root.path().join("envoy");
        fs::create_dir_all(&folder).unwrap();
        let socket = certificates_socket(&self.root.path().join("proxy"));
        let host = self.loopback.host(1);
        let bootstrap = bootstrap(&socket, host, ADMIN, TLS);
        fs::write(folder.join("envoy.yaml"), bootstrap.to_string()).unwrap();
        Envoy::start(program, "agent-fed", &folder, host, 1).await
    }

    /// One request on a new connection: the leaf of the server.
    async fn call(&self) -> anyhow::Result<Vec<u8>> {
        let stream = TcpStream::connect(self.loopback.socket(1, TLS)).await?;
        let mut stream = connect_over(stream, "bookstore", &[], None, &self.roots).await?;
        let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).cloned();
        let leaf = leaf.ok_or_else(|| anyhow::anyhow!("no certificate"))?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await?;
        anyhow::ensure!(status == *b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&status));
        Ok(leaf.to_vec())
    }
}

/// Writes the files of an enrolled proxy.
fn write_proxy(folder: &Path, authority: &Authority, control_plane: SocketAddr) {
    let (key, csr) = generate_proxy_key_and_csr().unwrap();
    let (services, now) = (["shop/bookstore".parse().unwrap()], Timestamp::now());
    let issued = authority.issue_proxy_certificate(&csr, proxy(), &services, DAY, now).unwrap();
    fs::create_dir_all(folder).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write("proxy.crt", &issued.chain);
    write("proxy.key", key.expose());
    write("ca.crt", &authority.trust_bundle().roots);
    let address = (control_plane.ip().to_string(), control_plane.port());
    write("enrollment.json", &EnrollmentState::new(&[address], Some(now)).to_json());
}

/// A bootstrap with one static TLS listener, which answers 200.
fn bootstrap(socket: &Path, host: std::net::IpAddr, admin: u16, tls: u16) -> serde_json::Value {
    let address = |port: u16| json!({ "socket_address": { "address": host, "port_value": port } });
    let http2 = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": { "http2_protocol_options": {} },
    });
    let sds = json!({
        "api_config_source": {
            "api_type": "DELTA_GRPC",
            "transport_api_version": "V3",
            "set_node_on_first_message_only": true,
            "grpc_services": [{ "envoy_grpc": {
                "cluster_name": "agent",
                "retry_policy": {
                    "retry_back_off": { "base_interval": "0.2s", "max_interval": "1s" },
                },
            } }],
        },
        "resource_api_version": "V3",
        "initial_fetch_timeout": "0s",
    });
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "http_filters": [{
            "name": "router",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
            },
        }],
        "route_config": { "virtual_hosts": [{
            "name": "all",
            "domains": ["*"],
            "routes": [{ "match": { "prefix": "/" }, "direct_response": { "status": 200 } }],
        }] },
    });
    let secret = json!({ "name": "service-cert", "sds_config": sds });
    let downstream = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": { "tls_certificate_sds_secret_configs": [secret] },
    });
    json!({
        "node": { "id": "proxy", "cluster": "shop/bookstore" },
        "admin": { "address": address(admin) },
        "static_resources": {
            "clusters": [{
                "name": "agent",
                "connect_timeout": "1s",
                "typed_extension_protocol_options": {
                    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2,
                },
                "load_assignment": { "cluster_name": "agent", "endpoints": [{ "lb_endpoints": [
                    { "endpoint": { "address": { "pipe": { "path": socket } } } },
                ] }] },
            }],
            "listeners": [{
                "name": "in",
                "address": address(tls),
                "enable_reuse_port": false,
                "filter_chains": [{
                    "filters": [{ "name": "http", "typed_config": manager }],
                    "transport_socket": { "name": "tls", "typed_config": downstream },
                }],
            }],
        },
    })
}

/// An agent in this process.
struct RunningAgent(JoinHandle<Result<(), AgentError>>);

impl RunningAgent {
    /// Ends it without an orderly stop.
    async fn kill(self) {
        self.0.abort();
        drop(self.0.await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_fed_envoy_serves_through_renewals_and_restarts_of_the_agent() {
    let Some(program) = require_envoy() else { return };
    let machine = TestMachine::new(Duration::from_secs(8)).await;
    // Envoy starts first. Its static listener warms, so it opens no port and is not ready.
    let (host, admin) = (machine.loopback.host(1), machine.loopback.socket(1, ADMIN));
    let envoy = machine.envoy(&program);
    let agent = async {
        eventually("Envoy to ask for its certificate", async || {
            let stats =
                get_once(admin, "/stats?filter=cluster.agent.upstream_cx_connect_fail", &[]);
            let text = stats.await?.text();
            anyhow::ensure!(!text.trim().ends_with(": 0") && !text.trim().is_empty(), "{text}");
            anyhow::Ok(())
        })
        .await;
        let refused = TcpStream::connect((host, TLS)).await;
        assert!(refused.is_err(), "a port is open without a certificate");
        machine.agent()
    };
    let (mut envoy, agent) = tokio::join!(envoy, agent);
    eventually("the port to open", async || machine.call().await).await;

    // Every request of these is counted: none may fail over three renewals.
    let (mut leaves, mut calls) = (BTreeSet::new(), 0_u64);
    while leaves.len() < 4 {
        leaves.insert(machine.call().await.unwrap());
        calls += 1;
    }
    assert!(calls > 100, "{calls}");

    agent.kill().await;
    let while_away = machine.call().await.unwrap();
    for _ in 0..20 {
        assert_eq!(machine.call().await.unwrap(), while_away, "Envoy keeps what it has");
    }
    let agent = machine.agent();
    eventually("a renewal by the restarted agent", async || {
        let leaf = machine.call().await.unwrap();
        anyhow::ensure!(leaf != while_away, "the same certificate");
        anyhow::Ok(())
    })
    .await;
    envoy.assert_running();
    agent.kill().await;
}
