//! An enrollment listener that issues service certificates to one proxy, and the folder of that proxy.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fs_err as fs;
use ironmesh_catalog::{Domain, DriverName, ProxyId, ServiceAccount, ServiceSecret, TrustDomain};
use ironmesh_cert::peer::VerifiedProxy;
use ironmesh_cert::{Authority, ServerNames, generate_proxy_key_and_csr};
use ironmesh_enrollment::{
    AzureAnswer, AzureEnrollment, ControlPlaneAddress, Enrolled, Enroller, Enrollment,
    EnrollmentCredentials, EnrollmentError, EnrollmentLimits, HealthAnswer, HealthReport,
    IssuedServiceCertificate, Leave, ProxyRenewal, ProxyStatus, ServingAnswer, ServingReport,
    WorkloadRequest, serve,
};
use ironmesh_sidecar_folder::EnrollmentState;
use jiff::Timestamp;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::certificates::workload_identity::WorkloadIdentity;
use crate::machine_folder::ProxyFiles;

const DAY: Duration = Duration::from_secs(86_400);

/// Issues certificates of a lifetime for any secret.
struct Issuer {
    authority: Authority,
    lifetime: Duration,
    /// The account of the proxy's first service.
    own_account: Mutex<ServiceAccount>,
}

impl Issuer {
    fn issue(&self, csr: &str, secret: &ServiceSecret) -> IssuedServiceCertificate {
        let account = match secret {
            ServiceSecret::Own => self.own_account.lock().clone(),
            ServiceSecret::OfAccount(account) => account.clone(),
        };
        let (lifetime, now) = (self.lifetime, Timestamp::now());
        let issued =
            self.authority.issue_workload_certificate(csr, proxy(), &account, lifetime, now);
        IssuedServiceCertificate { account, chain: issued.unwrap().chain }
    }
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

    fn renew(&self, renewal: ProxyRenewal, peer: SocketAddr) -> Result<Enrolled, EnrollmentError> {
        let (services, now) = (["shop/bookstore".parse().unwrap()], Timestamp::now());
        let csr = renewal.request.pem();
        let issued = self.authority.issue_proxy_certificate(csr, proxy(), &services, DAY, now);
        let issued = issued.unwrap();
        Ok(Enrolled {
            id: proxy(),
            name: proxy().into(),
            address: peer.ip(),
            services: services.into(),
            driver: DriverName::default(),
            certificate: issued.chain,
            issued_at: now,
            expires_at: issued.not_after,
            roots: self.authority.trust_bundle().roots,
            control_plane: Vec::new(),
            control_plane_id: String::new(),
            domain: Domain::default(),
            notes: Vec::new(),
        })
    }

    fn renew_expired(&self, _: ProxyRenewal, _: SocketAddr) -> Result<Enrolled, EnrollmentError> {
        unused()
    }

    fn issue_service_certificate(
        &self,
        request: WorkloadRequest,
        _: SocketAddr,
    ) -> Result<IssuedServiceCertificate, EnrollmentError> {
        Ok(self.issue(request.request.pem(), &request.secret))
    }

    fn record_serving(
        &self,
        _: &VerifiedProxy,
        _: ServingReport,
        _: SocketAddr,
    ) -> Result<ServingAnswer, EnrollmentError> {
        // Not recorded: the agent reports again soon.
        Ok(ServingAnswer { recorded: false, account: Some(self.own_account.lock().clone()) })
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

/// The control plane and the machine of its proxy.
pub(super) struct TestControlPlane {
    folder: TempDir,
    issuer: Arc<Issuer>,
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl TestControlPlane {
    /// Its service certificates last `lifetime`, plus or minus a tenth.
    pub(super) async fn start(lifetime: Duration) -> Self {
        let trust_domain = TrustDomain::new(Domain::default());
        let authority = Authority::ephemeral(&trust_domain, Timestamp::now()).unwrap();
        let own_account = Mutex::new("shop/bookstore".parse().unwrap());
        let issuer = Arc::new(Issuer { authority, lifetime, own_account });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let folder = machine(&issuer.authority, address);
        let (stop, task) = listen(listener, &issuer);
        Self { folder, issuer, address, stop, task }
    }

    /// The folder of the proxy.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The address of its listener, as settings of the agent name it.
    pub(super) fn address(&self) -> ControlPlaneAddress {
        ControlPlaneAddress { host: self.address.ip().to_string(), port: self.address.port() }
    }

    /// Gives the first service of the proxy another account, as a change of policy does.
    pub(super) fn set_own_account(&self, account: &str) {
        *self.issuer.own_account.lock() = account.parse().unwrap();
    }

    pub(super) async fn stop(&mut self) {
        self.stop.cancel();
        (&mut self.task).await.unwrap();
    }

    pub(super) async fn restart(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        (self.stop, self.task) = listen(listener, &self.issuer);
    }

    /// A certificate without a request.
    pub(super) fn issue(&self, secret: &str, account: &str) -> WorkloadIdentity {
        let (key, csr) = generate_proxy_key_and_csr().unwrap();
        let (secret, account) = (secret.parse().unwrap(), account.parse().unwrap());
        let (chain, now) = (self.issuer.issue(&csr, &secret).chain, Timestamp::now());
        let files = ProxyFiles::read(self.folder()).unwrap();
        WorkloadIdentity::verify(secret, account, chain, key, now, &files, now).unwrap()
    }
}

fn listen(listener: TcpListener, issuer: &Arc<Issuer>) -> (CancellationToken, JoinHandle<()>) {
    let (authority, now) = (&issuer.authority, Timestamp::now());
    let own = authority.issue_control_plane_certificate(&ServerNames::default(), now).unwrap();
    let bundle = authority.trust_bundle();
    let credentials = EnrollmentCredentials::new(&own, &bundle, authority.trust_domain()).unwrap();
    let (_, credentials) = watch::channel(Arc::new(credentials));
    let (stop, enroller) = (CancellationToken::new(), Arc::clone(issuer));
    let (limits, counters, end) = (EnrollmentLimits::default(), Arc::default(), stop.clone());
    let served = serve(listener, credentials, enroller, limits, counters, end);
    (stop, tokio::spawn(served))
}

/// The folder of an enrolled proxy.
fn machine(authority: &Authority, control_plane: SocketAddr) -> TempDir {
    let (key, csr) = generate_proxy_key_and_csr().unwrap();
    let (services, now) = (["shop/bookstore".parse().unwrap()], Timestamp::now());
    let issued = authority.issue_proxy_certificate(&csr, proxy(), &services, DAY, now).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("proxy.crt", &issued.chain);
    write("proxy.key", key.expose());
    write("ca.crt", &authority.trust_bundle().roots);
    let address = (control_plane.ip().to_string(), control_plane.port());
    write("enrollment.json", &EnrollmentState::new(&[address], Some(now)).to_json());
    folder
}
