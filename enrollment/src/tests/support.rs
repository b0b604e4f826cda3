//! A mesh for tests: an authority, an `Enroller` that issues with it, and a running listener.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ironmesh_catalog::{
    Domain, DriverName, ProxyId, Secret, ServiceAccount, ServiceName, TrustDomain,
};
use ironmesh_cert::peer::VerifiedProxy;
use ironmesh_cert::{
    Authority, ControlPlaneCertificate, MachineRequest, ServerNames, SpiffeServerVerifier,
    generate_proxy_key_and_csr, tls,
};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rustls::{ClientConfig, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsConnector;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    AzureAnswer, AzureEnrollment, CaHash, ControlPlaneAddress, EnrollRequest, Enrolled, Enroller,
    Enrollment, EnrollmentClient, EnrollmentCounters, EnrollmentCredentials, EnrollmentError,
    EnrollmentLimits, HealthAnswer, HealthReport, IssuedServiceCertificate, Leave, LeaveResult,
    MachineIdentity, ProxyRenewal, ProxyStatus, ProxySync, ServerTrust, ServingAnswer,
    ServingReport, WorkloadRequest, serve,
};

pub(super) const TOKEN: &str = "the-one-token";
const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn trust_domain() -> TrustDomain {
    TrustDomain::new(Domain::default())
}

pub(super) fn authority() -> Arc<Authority> {
    Arc::new(Authority::ephemeral(&trust_domain(), Timestamp::now()).unwrap())
}

pub(super) fn control_plane_certificate(authority: &Authority) -> ControlPlaneCertificate {
    let now = Timestamp::now();
    authority.issue_control_plane_certificate(&ServerNames::default(), now).unwrap()
}

pub(super) fn ca_hash(authority: &Authority) -> CaHash {
    CaHash::of_roots(&authority.trust_bundle().roots).unwrap()[0]
}

fn services() -> Vec<ServiceName> {
    vec!["shop/bookstore".parse().unwrap()]
}

/// Issues to everybody who has the token, and notes its calls.
pub(super) struct TestEnroller {
    authority: Arc<Authority>,
    pub(super) calls: Mutex<Vec<String>>,
    /// The number of calls that have begun, as permits.
    pub(super) begun: Semaphore,
    /// Calls wait while a test holds this lock.
    pub(super) gate: tokio::sync::Mutex<()>,
    /// How many calls fail first.
    pub(super) failures: AtomicUsize,
    /// The count of ACKed leaves.
    acks: watch::Sender<usize>,
}

impl TestEnroller {
    fn note(&self, call: &str, proxy: &VerifiedProxy) {
        self.calls.lock().push(format!("{call} {}", proxy.identity.proxy));
    }

    /// ACKs the leaves that have begun, once one has.
    pub(super) async fn ack(&self) {
        self.begun.acquire().await.unwrap().forget();
        self.acks.send_modify(|count| *count += 1);
    }

    fn issue(
        &self,
        call: String,
        request: &MachineRequest,
        id: ProxyId,
    ) -> Result<Enrolled, EnrollmentError> {
        self.begun.add_permits(1);
        drop(self.gate.blocking_lock());
        self.calls.lock().push(call);
        let fails = |left: usize| left.checked_sub(1);
        if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails).is_ok() {
            return Err(EnrollmentError::Unavailable("not ready".to_owned()));
        }
        let now = Timestamp::now();
        let issued =
            self.authority.issue_proxy_certificate(request.pem(), id, &services(), DAY, now);
        let issued = issued.map_err(|error| EnrollmentError::Unavailable(error.to_string()))?;
        Ok(Enrolled {
            id,
            name: id.into(),
            address: [127, 0, 0, 1].into(),
            services: services(),
            driver: DriverName::default(),
            certificate: issued.chain,
            issued_at: now,
            expires_at: issued.not_after,
            roots: self.authority.trust_bundle().roots,
            control_plane: vec![("127.0.0.1".to_owned(), 15128)],
            control_plane_id: trust_domain().control_plane().0.to_string(),
            domain: Domain::default(),
            notes: Vec::new(),
        })
    }
}

impl Enroller for TestEnroller {
    fn enroll(&self, enrollment: Enrollment, _: SocketAddr) -> Result<Enrolled, EnrollmentError> {
        if enrollment.token.expose() != TOKEN {
            return Err(EnrollmentError::TokenRejected);
        }
        self.issue("enroll".to_owned(), &enrollment.request, proxy())
    }

    /// Accepts the nonce as the document, and asks for a look-up at first if there is a name.
    fn enroll_azure(
        &self,
        enrollment: &AzureEnrollment,
        _: SocketAddr,
    ) -> Result<AzureAnswer, EnrollmentError> {
        if enrollment.document != enrollment.nonce {
            return Err(EnrollmentError::AttestationRejected("not its document".to_owned()));
        }
        if enrollment.name.is_some() && !enrollment.is_looked_up {
            self.calls.lock().push("look up".to_owned());
            let mut acks = self.acks.subscribe();
            acks.mark_unchanged();
            self.begun.add_permits(1);
            return Ok(AzureAnswer::LookUp(Box::pin(async move {
                acks.changed().await.map_err(|_| EnrollmentError::TokenRejected)
            })));
        }
        let enrolled = self.issue("enroll azure".to_owned(), &enrollment.request, proxy())?;
        Ok(AzureAnswer::Enrolled(Box::new(enrolled)))
    }

    fn renew(&self, renewal: ProxyRenewal, _: SocketAddr) -> Result<Enrolled, EnrollmentError> {
        let id = renewal.proxy.identity.proxy;
        self.issue(format!("renew {id}"), &renewal.request, id)
    }

    fn renew_expired(
        &self,
        renewal: ProxyRenewal,
        _: SocketAddr,
    ) -> Result<Enrolled, EnrollmentError> {
        let id = renewal.proxy.identity.proxy;
        self.issue(format!("renew expired {id}"), &renewal.request, id)
    }

    fn issue_service_certificate(
        &self,
        request: WorkloadRequest,
        _: SocketAddr,
    ) -> Result<IssuedServiceCertificate, EnrollmentError> {
        self.note(&request.secret.to_string(), &request.proxy);
        let id = request.proxy.identity.proxy;
        let account: ServiceAccount = "shop/bookstore".parse().unwrap();
        let (csr, now) = (request.request.pem(), Timestamp::now());
        let issued = self.authority.issue_workload_certificate(csr, id, &account, DAY, now);
        let issued = issued.map_err(|error| EnrollmentError::Unavailable(error.to_string()))?;
        Ok(IssuedServiceCertificate { account, chain: issued.chain })
    }

    fn record_serving(
        &self,
        proxy: &VerifiedProxy,
        report: ServingReport,
        _: SocketAddr,
    ) -> Result<ServingAnswer, EnrollmentError> {
        let ports: usize = report.ports.values().map(BTreeSet::len).sum();
        self.note(&format!("serving {ports}"), proxy);
        Ok(ServingAnswer { recorded: true, account: "shop/bookstore".parse().ok() })
    }

    fn record_health(
        &self,
        proxy: &VerifiedProxy,
        report: HealthReport,
        _: SocketAddr,
    ) -> Result<HealthAnswer, EnrollmentError> {
        self.note(&format!("health {}", report.applications.len()), proxy);
        Ok(HealthAnswer { report_in_seconds: 10, ..HealthAnswer::default() })
    }

    fn leave(&self, proxy: &VerifiedProxy, _: SocketAddr) -> Result<Leave, EnrollmentError> {
        self.note("leave", proxy);
        let result = |acked| LeaveResult {
            acked,
            laggards: Vec::new(),
            more_laggards: 0,
            leaving_since: Timestamp::UNIX_EPOCH,
            revoked: false,
        };
        let mut acks = self.acks.subscribe();
        acks.mark_unchanged();
        self.begun.add_permits(1);
        let wait = Box::pin(async move { result(acks.changed().await.is_ok()) });
        Ok(Leave { now: result(false), wait })
    }

    fn revoke_left(&self, proxy: &VerifiedProxy, _: SocketAddr) -> Result<(), EnrollmentError> {
        self.note("revoke left", proxy);
        Ok(())
    }

    fn rejoin(&self, proxy: &VerifiedProxy, _: SocketAddr) -> Result<ProxyStatus, EnrollmentError> {
        self.note("rejoin", proxy);
        Ok(status(proxy))
    }

    fn proxy_status(
        &self,
        proxy: &VerifiedProxy,
        _: SocketAddr,
    ) -> Result<ProxyStatus, EnrollmentError> {
        self.note("proxy status", proxy);
        Ok(status(proxy))
    }
}

fn status(proxy: &VerifiedProxy) -> ProxyStatus {
    ProxyStatus {
        id: proxy.identity.proxy,
        name: proxy.identity.proxy.into(),
        services: services(),
        sync: ProxySync::Synced,
        sync_since: None,
        acked_revision: None,
        active_revision: None,
        certificate_expires_at: Timestamp::UNIX_EPOCH,
        leaving_since: None,
        cordoned_since: None,
    }
}

pub(super) fn proxy() -> ProxyId {
    "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap()
}

/// A running listener.
pub(super) struct Server {
    pub(super) authority: Arc<Authority>,
    pub(super) enroller: Arc<TestEnroller>,
    pub(super) counters: Arc<EnrollmentCounters>,
    pub(super) address: SocketAddr,
    /// Kept for as long as the listener runs.
    _guards: (watch::Sender<Arc<EnrollmentCredentials>>, DropGuard),
}

impl Server {
    pub(super) async fn start() -> Self {
        Self::with(EnrollmentLimits::default()).await
    }

    pub(super) async fn with(limits: EnrollmentLimits) -> Self {
        let authority = authority();
        let enroller = Arc::new(TestEnroller {
            authority: Arc::clone(&authority),
            calls: Mutex::default(),
            begun: Semaphore::new(0),
            gate: tokio::sync::Mutex::default(),
            failures: AtomicUsize::new(0),
            acks: watch::Sender::default(),
        });
        let certificate = control_plane_certificate(&authority);
        let bundle = authority.trust_bundle();
        let credentials =
            EnrollmentCredentials::new(&certificate, &bundle, &trust_domain()).unwrap();
        let (sender, credentials) = watch::channel(Arc::new(credentials));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (counters, shutdown) = (Arc::default(), CancellationToken::new());
        tokio::spawn(serve(
            listener,
            credentials,
            Arc::clone(&enroller) as Arc<dyn Enroller>,
            limits,
            Arc::clone(&counters),
            shutdown.clone(),
        ));
        let guards = (sender, shutdown.drop_guard());
        Self { authority, enroller, counters, address, _guards: guards }
    }

    pub(super) fn trust(&self) -> ServerTrust {
        ServerTrust::Hashes(vec![ca_hash(&self.authority)])
    }

    pub(super) fn client(&self) -> EnrollmentClient {
        client(&[self.address], self.trust())
    }

    /// A proxy's identity, whose certificate was issued `age` ago for a day.
    pub(super) fn identity(&self, age: SignedDuration) -> MachineIdentity {
        let (key, csr) = generate_proxy_key_and_csr().unwrap();
        self.identity_for(key, &csr, age)
    }

    pub(super) fn identity_for(
        &self,
        key: Secret,
        csr: &str,
        age: SignedDuration,
    ) -> MachineIdentity {
        let issued = Timestamp::now() - age;
        let certificate =
            self.authority.issue_proxy_certificate(csr, proxy(), &services(), DAY, issued);
        MachineIdentity { certificate: certificate.unwrap().chain, key }
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.enroller.calls.lock().clone()
    }

    pub(super) fn lost(&self, word: &str) -> u64 {
        self.counters.connections_lost().find(|(loss, _)| loss.word() == word).unwrap().1
    }

    pub(super) fn requests(&self, word: &str) -> u64 {
        self.counters.requests().find(|(outcome, _)| outcome.word() == word).unwrap().1
    }

    /// A TLS connection from `host`, a loopback address.
    pub(super) async fn connect(
        &self,
        host: [u8; 4],
        versions: &[&'static SupportedProtocolVersion],
        identity: Option<&MachineIdentity>,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let tcp = connect_from(host, self.address).await?;
        let config = tls_config(&self.authority, versions, identity);
        let name = "localhost".try_into().unwrap();
        TlsConnector::from(config).connect(name, tcp).await
    }

    /// The status and the body of the response to a request with this JSON.
    pub(super) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.post_as(path, body, None).await
    }

    pub(super) async fn post_as(
        &self,
        path: &str,
        body: &Value,
        identity: Option<&MachineIdentity>,
    ) -> (u16, Value) {
        let body = body.to_string();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", body.len());
        self.send(&format!("{head}{body}"), identity).await
    }

    pub(super) async fn challenge(&self) -> String {
        let (status, body) = self.send("GET /v1/challenge HTTP/1.1\r\nhost: a\r\n\r\n", None).await;
        assert_eq!(status, 200);
        body["nonce"].as_str().unwrap().to_owned()
    }

    /// The status and the body of the response to these bytes.
    pub(super) async fn send(
        &self,
        request: &str,
        identity: Option<&MachineIdentity>,
    ) -> (u16, Value) {
        let mut stream = self.connect([127, 0, 0, 1], TLS13, identity).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.unwrap();
        parse_response(&response)
    }
}

pub(super) fn parse_response(response: &[u8]) -> (u16, Value) {
    let response = String::from_utf8(response.to_vec()).unwrap();
    let status = response.split(' ').nth(1).unwrap().parse().unwrap();
    let body = response.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap())
}

pub(super) const TLS13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
pub(super) const TLS12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];

pub(super) fn tls_config(
    authority: &Authority,
    versions: &[&'static SupportedProtocolVersion],
    identity: Option<&MachineIdentity>,
) -> Arc<ClientConfig> {
    let roots = tls::roots(&authority.trust_bundle()).unwrap();
    let builder = ClientConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(SpiffeServerVerifier::any(roots)));
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(MachineIdentity { certificate, key }) => {
            let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes()).unwrap();
            builder.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
        }
    };
    Arc::new(config)
}

pub(super) async fn connect_from(host: [u8; 4], address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((host, 0)))?;
    socket.connect(address).await
}

/// A client of these addresses, with a short time limit.
pub(super) fn client(addresses: &[SocketAddr], trust: ServerTrust) -> EnrollmentClient {
    let address = |address: &SocketAddr| ControlPlaneAddress {
        host: address.ip().to_string(),
        port: address.port(),
    };
    let client = EnrollmentClient::new(addresses.iter().map(address).collect(), trust).unwrap();
    client.with_time_limit(Duration::from_secs(10))
}

/// A request with the token, and the key that it is for.
pub(super) fn request() -> (Secret, EnrollRequest) {
    let (key, certificate_request) = generate_proxy_key_and_csr().unwrap();
    let token = Secret::new(TOKEN.to_owned());
    (key, EnrollRequest { token, certificate_request, address: None, name: None })
}

pub(super) fn code(body: &Value) -> &str {
    body["code"].as_str().unwrap()
}

pub(super) fn enroll_body(certificate_request: &str) -> Value {
    json!({ "token": TOKEN, "certificate_request": certificate_request })
}
