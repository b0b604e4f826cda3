mod logins;
mod mesh_reads;

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Condvar, Mutex, mpsc};
use std::time::Duration;

use ironmesh_analysis::verdict::{EgressQuestion, EgressVerdict, IngressQuestion, IngressVerdict};
use ironmesh_analysis::{Question, Verdict};
use ironmesh_api::EventsQuery;
use ironmesh_api::{
    CredentialRequest, IssuedCredential, OperatorList, OperatorView, RevokeOperatorRequest,
};
use ironmesh_catalog::{JournalQuery, OperatorName, ProxyId, ServiceName, SilenceId, TokenId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::work_queues::{MAX_CONCURRENT_READS, MAX_LOCAL_READS};
use super::*;
use ironmesh_api::{AcceptRemovalRequest, AcceptedRemoval};
use ironmesh_api::{AcceptedEndpoints, EndpointList};
use ironmesh_api::{Applied, ApplyRequest};
use ironmesh_api::{AuditView, CertificateList, JournalPage, TrafficView};
use ironmesh_api::{BootstrapRequest, BootstrapResponse};
use ironmesh_api::{
    ChangedServices, CreatedTokens, RevokeTokenRequest, ServicesRequest, TokenList, TokenRequest,
    TokenView,
};
use ironmesh_api::{ConvergenceView, WaitAnswer, WaitRequest};
use ironmesh_api::{CordonChange, CordonRequest, CordonResult};
use ironmesh_api::{FindingList, SilenceList, SilenceRequest, SilenceView};
use ironmesh_api::{LogLevelRequest, LogLevelView};
use ironmesh_api::{Plan, PlanRequest, ProxyConfig, ProxyDetail, ProxyPage, ProxyQuery};
use ironmesh_api::{Readiness, RevisionList, RollbackRequest, RolledBack};
use ironmesh_api::{RevokeRequest, RevokedProxies};

/// A control plane that examines a proxy until it is released.
struct Slow {
    has_begun: Arc<Notify>,
    release: Mutex<mpsc::Receiver<()>>,
    questions: Arc<AnswerGate>,
}

/// Responses that wait until the test releases all of them.
#[derive(Default)]
struct AnswerGate {
    state: Mutex<AnswerGateState>,
    changed: Condvar,
}

#[derive(Default)]
struct AnswerGateState {
    at_once: usize,
    most_at_once: usize,
    is_open: bool,
}

impl AnswerGate {
    fn answer(&self) {
        let mut state = self.state.lock().unwrap();
        state.at_once += 1;
        state.most_at_once = state.most_at_once.max(state.at_once);
        let (patience, waits) =
            (Duration::from_secs(30), |state: &mut AnswerGateState| !state.is_open);
        let (mut state, waited) = self.changed.wait_timeout_while(state, patience, waits).unwrap();
        assert!(!waited.timed_out(), "the test did not release the response within 30 s");
        state.at_once -= 1;
    }

    fn open(&self) {
        self.state.lock().unwrap().is_open = true;
        self.changed.notify_all();
    }
}

/// Fails the test: no test of this module sends the request of the calling method.
fn not_requested<T>() -> T {
    panic!("the test did not send this request")
}

impl LogLevelAccess for Slow {
    fn log_level(&self) -> LogLevelView {
        not_requested()
    }

    fn set_log_level(&self, _: &Principal, _: &LogLevelRequest) -> Result<LogLevelView, ApiError> {
        not_requested()
    }
}

impl OperatorAccess for Slow {
    fn operators(&self) -> OperatorList {
        not_requested()
    }

    fn issue_credential(
        &self,
        _: &Principal,
        _: &CredentialRequest,
    ) -> Result<IssuedCredential, ApiError> {
        not_requested()
    }

    fn revoke_operator(
        &self,
        _: &Principal,
        _: &OperatorName,
        _: &RevokeOperatorRequest,
    ) -> Result<OperatorView, ApiError> {
        not_requested()
    }

    fn authenticate(&self, _: &PresentedCredential<'_>) -> Result<Authenticated, ApiError> {
        not_requested()
    }
}

impl EventSource for Slow {
    fn events(&self, _: &EventsQuery, _: bool) -> Result<Box<dyn EventCursor>, ApiError> {
        not_requested()
    }
}

impl ControlPlane for Slow {
    fn proxy(&self, id: &str) -> Result<ProxyDetail, ApiError> {
        self.has_begun.notify_one();
        let waited = self.release.lock().unwrap().recv_timeout(Duration::from_secs(30));
        let failed = waited.map_err(|error| ApiError::Internal(error.to_string()));
        failed.and_then(|()| Err(ApiError::NotFound(format!("there is no {id}"))))
    }

    fn readiness(&self) -> Readiness {
        not_requested()
    }

    fn liveness(&self) -> Result<(), ApiError> {
        Ok(())
    }

    fn debug(&self, _: &str) -> Result<serde_json::Value, ApiError> {
        not_requested()
    }

    fn convergence(&self) -> ConvergenceView {
        not_requested()
    }

    fn findings(&self) -> FindingList {
        not_requested()
    }

    fn silences(&self) -> SilenceList {
        not_requested()
    }

    fn silence(&self, _: &Principal, _: &SilenceRequest) -> Result<SilenceView, ApiError> {
        not_requested()
    }

    fn remove_silence(&self, _: &Principal, _: &SilenceId) -> Result<SilenceView, ApiError> {
        not_requested()
    }

    fn policy_wait(&self, _: &WaitRequest) -> Result<WaitAnswer, ApiError> {
        not_requested()
    }

    fn traffic(&self, _: Option<&ServiceName>) -> Result<TrafficView, ApiError> {
        not_requested()
    }

    fn apply(&self, _: &Principal, _: ApplyRequest) -> Result<Applied, ApiError> {
        not_requested()
    }

    fn next_change(&self) -> NextChange {
        not_requested()
    }

    fn proxies(&self, _: &ProxyQuery) -> Result<ProxyPage, ApiError> {
        not_requested()
    }

    fn proxy_config(&self, _: &str) -> Result<ProxyConfig, ApiError> {
        not_requested()
    }

    fn certificates(&self) -> CertificateList {
        not_requested()
    }

    fn revoke(&self, _: &Principal, _: &RevokeRequest) -> Result<RevokedProxies, ApiError> {
        not_requested()
    }

    fn create_tokens(&self, _: &Principal, _: &TokenRequest) -> Result<CreatedTokens, ApiError> {
        not_requested()
    }

    fn tokens(&self) -> Result<TokenList, ApiError> {
        not_requested()
    }

    fn revoke_token(
        &self,
        _: &Principal,
        _: &TokenId,
        _: &RevokeTokenRequest,
    ) -> Result<TokenView, ApiError> {
        not_requested()
    }

    fn set_services(
        &self,
        _: &Principal,
        _: &str,
        _: &ServicesRequest,
    ) -> Result<ChangedServices, ApiError> {
        not_requested()
    }

    fn audit(&self) -> AuditView {
        not_requested()
    }

    fn export(&self, _: &Principal) -> Result<WriteExport, ApiError> {
        not_requested()
    }

    fn endpoints(&self, _: Option<&ServiceName>) -> Result<EndpointList, ApiError> {
        not_requested()
    }

    fn accept_endpoints(
        &self,
        _: &Principal,
        _: &ServiceName,
    ) -> Result<AcceptedEndpoints, ApiError> {
        not_requested()
    }

    fn explain(&self, _: &Question) -> Result<Verdict, ApiError> {
        self.questions.answer();
        Err(ApiError::NotFound("unknown".to_owned()))
    }

    fn explain_outward(&self, _: &EgressQuestion) -> Result<EgressVerdict, ApiError> {
        not_requested()
    }

    fn explain_inward(&self, _: &IngressQuestion) -> Result<IngressVerdict, ApiError> {
        not_requested()
    }

    fn plan(&self, _: &PlanRequest, cancellation: &Cancellation) -> Result<Plan, ApiError> {
        self.has_begun.notify_one();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !cancellation.is_cancelled() {
            assert!(
                Instant::now() < deadline,
                "the handler does not notice that the client disconnected"
            );
            std::thread::yield_now();
        }
        self.has_begun.notify_one();
        Err(ApiError::Busy("cancelled".to_owned()))
    }

    fn policy_revisions(&self) -> Result<RevisionList, ApiError> {
        not_requested()
    }

    fn roll_back(&self, _: &Principal, _: RollbackRequest) -> Result<RolledBack, ApiError> {
        not_requested()
    }

    fn accept_removal(
        &self,
        _: &Principal,
        _: AcceptRemovalRequest,
    ) -> Result<AcceptedRemoval, ApiError> {
        not_requested()
    }

    fn metrics(&self) -> String {
        not_requested()
    }

    fn bootstrap(
        &self,
        principal: &Principal,
        _: &BootstrapRequest,
    ) -> Result<BootstrapResponse, ApiError> {
        Err(ApiError::BadRequest(format!("{principal:?}")))
    }

    fn journal(&self, query: &JournalQuery) -> Result<JournalPage, ApiError> {
        Err(ApiError::BadRequest(format!("{query:?}")))
    }

    fn change_cordon(
        &self,
        _: &Principal,
        _: &str,
        _: CordonChange,
        _: &CordonRequest,
    ) -> Result<CordonResult, ApiError> {
        not_requested()
    }

    fn cordon_state(&self, _: ProxyId) -> Result<CordonResult, ApiError> {
        not_requested()
    }

    fn versions(&self) -> ironmesh_api::VersionReport {
        not_requested()
    }
}

// The runtime has one thread.
#[tokio::test]
async fn slow_proxy_request_does_not_delay_others() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (has_begun, (go, release)) = (Arc::<Notify>::default(), mpsc::channel());
    let slow = Slow {
        has_begun: Arc::clone(&has_begun),
        release: Mutex::new(release),
        questions: Arc::default(),
    };
    tokio::spawn(AdminApi::new(Arc::new(slow)).serve_port(listener, []));
    let get = async |path: &str| get(address, path).await;
    let others = async {
        has_begun.notified().await;
        let answer = get("/healthz").await;
        go.send(()).unwrap();
        answer
    };
    let (slow, healthy) = tokio::join!(get("/v1/proxies/x"), others);
    assert!(healthy.starts_with("HTTP/1.1 200"), "{healthy}");
    assert!(slow.starts_with("HTTP/1.1 404"), "the test released the slow request: {slow}");
}

async fn get(address: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    send(address, &request).await
}

async fn send(address: SocketAddr, request: &str) -> String {
    let mut io = TcpStream::connect(address).await.unwrap();
    io.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    io.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn request_by_a_foreign_host_gets_421() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let slow = Slow {
        has_begun: Arc::default(),
        release: Mutex::new(mpsc::channel().1),
        questions: Arc::default(),
    };
    let names = ["Mesh.Example.com".to_owned()];
    tokio::spawn(AdminApi::new(Arc::new(slow)).serve_port(listener, names));
    for (head, status) in [
        ("GET /healthz HTTP/1.1\r\nHost: mesh.example.com:15014\r\n", 200),
        ("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n", 200),
        ("GET /healthz HTTP/1.1\r\nHost: evil.example\r\n", 421),
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n", 421),
        ("GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n", 421),
        ("GET /v1/proxies HTTP/1.1\r\nHost: evil.example\r\n", 421),
    ] {
        let answer = send(address, &format!("{head}Connection: close\r\n\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{head}: {answer}");
        let is_named = answer.contains("`evil.example` is not a name of this control plane");
        assert_eq!(is_named, status == 421, "{answer}");
    }
}

#[tokio::test]
async fn explain_requests_beyond_the_limit_get_503() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ((go, release), questions) = (mpsc::channel(), Arc::<AnswerGate>::default());
    let slow = Slow {
        has_begun: Arc::default(),
        release: Mutex::new(release),
        questions: Arc::clone(&questions),
    };
    tokio::spawn(AdminApi::new(Arc::new(slow)).serve_port(listener, []));
    let question = "/v1/explain?question=%7B%22caller%22:%22a%22,%22service%22:%22b%22%7D";
    let mut asked = JoinSet::new();
    for _ in 0..MAX_LOCAL_READS + 6 {
        asked.spawn(get(address, question));
    }
    // Requests beyond the queue are rejected at once.
    for _ in 0..6 {
        let answer = asked.join_next().await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("32 requests are queued already: try again"), "{answer}");
    }
    // All other expensive reads share the queue; probes do not.
    for read in [
        "/metrics",
        "/v1/proxies",
        "/v1/proxies/x",
        "/v1/proxies/x/config",
        "/v1/audit",
        "/v1/certificates",
    ] {
        assert!(get(address, read).await.starts_with("HTTP/1.1 503"), "{read}");
    }
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    drop(go);
    questions.open();
    while let Some(answer) = asked.join_next().await {
        let answer = answer.unwrap();
        assert!(answer.contains("unknown"), "{answer}");
    }
    let most = questions.state.lock().unwrap().most_at_once;
    assert!((1..=MAX_CONCURRENT_READS).contains(&most), "{most} at once");
}

#[tokio::test]
async fn plan_is_cancelled_when_its_client_disconnects() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let listener = bind_socket(&path).unwrap();
    let (has_begun, (_go, release)) = (Arc::<Notify>::default(), mpsc::channel());
    let slow = Slow {
        has_begun: Arc::clone(&has_begun),
        release: Mutex::new(release),
        questions: Arc::default(),
    };
    tokio::spawn(AdminApi::new(Arc::new(slow)).serve_socket(listener));
    let request = PlanRequest { documents: Vec::new(), resources: false };
    let client = crate::Client::new(&path);
    tokio::select! {
        planned = client.plan(&request) => panic!("it is not given up yet: {planned:?}"),
        () = has_begun.notified() => {}
    }
    // `select!` dropped the request, which disconnects the client.
    has_begun.notified().await;
}

#[tokio::test]
async fn operator_is_the_user_that_the_kernel_reports() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let listener = bind_socket(&path).unwrap();
    tokio::spawn(AdminApi::new(Arc::new(idle())).serve_socket(listener));
    let request = r#"{"services":[],"upstreams":[],"proxies":[]}"#;
    let request: BootstrapRequest = serde_json::from_str(request).unwrap();
    let answer = crate::Client::new(&path).bootstrap(&request).await.unwrap_err().to_string();
    let uid = fs_err::metadata(&path).unwrap().uid();
    assert_eq!(answer, format!("{:?}", Principal::owner(Some(uid))));
}

#[tokio::test]
async fn journal_query_arrives_as_it_was_sent_and_only_at_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let listener = bind_socket(&path).unwrap();
    tokio::spawn(AdminApi::new(Arc::new(idle())).serve_socket(listener));
    let full = JournalQuery {
        since: Some("2026-11-23T07:00:00.5Z".parse().unwrap()),
        kind: Some(ironmesh_catalog::JournalKind::Revoke),
        limit: Some(7),
        after: Some(0),
        before: Some(9),
    };
    for query in [full, JournalQuery::default()] {
        let answer = crate::Client::new(&path).journal(&query).await.unwrap_err();
        assert_eq!(answer.to_string(), format!("{query:?}"));
    }
    let misspelled = serde_urlencoded::from_str::<JournalQuery>("sinse=2026-11-23T07:00:00Z");
    assert!(misspelled.unwrap_err().to_string().contains("sinse"));
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = port.local_addr().unwrap();
    tokio::spawn(AdminApi::new(Arc::new(idle())).serve_port(port, []));
    assert!(get(address, "/v1/journal").await.starts_with("HTTP/1.1 403"));
}

/// A control plane that gets no slow request.
fn idle() -> Slow {
    Slow {
        has_begun: Arc::default(),
        release: Mutex::new(mpsc::channel().1),
        questions: Arc::default(),
    }
}

#[test]
fn each_operation_has_one_name_and_one_route() {
    let operations = operations();
    let ids: std::collections::BTreeSet<_> = operations.iter().map(|one| one.id).collect();
    assert_eq!(ids.len(), operations.len());
    // The router panics if two operations have the same method and path.
    drop(routes::routes().router());
}

#[test]
fn roles_have_what_the_reference_says() {
    use Permission::*;
    use ironmesh_catalog::OperatorRole;

    let principal = |role, read_only| Principal { role, read_only, ..Principal::owner(None) };
    let allowed = |principal: Principal| {
        let all = Permission::ALL.into_iter().filter(|one| principal.may(*one));
        all.collect::<Vec<_>>()
    };
    let reads = [Probe, ReadState, ReadPolicy, ReadJournal, ReadAccess];
    assert_eq!(allowed(Principal::local()), [Probe, ReadState]);
    assert_eq!(allowed(principal(OperatorRole::Viewer, false)), [Probe, ReadState, LogIn]);
    assert_eq!(allowed(Principal::member(None)), reads);
    let operator = [&reads[..], &[LogIn, ChangeMesh, ChangePolicy]].concat();
    assert_eq!(allowed(principal(OperatorRole::Operator, false)), operator);
    assert_eq!(allowed(Principal::owner(None)), Permission::ALL);
}

#[tokio::test]
async fn every_error_has_a_body_in_json() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = port.local_addr().unwrap();
    tokio::spawn(AdminApi::new(Arc::new(idle())).serve_port(port, []));
    let json = "Content-Type: application/json\r\n";
    for (request, status) in [
        ("GET /v1/nothing HTTP/1.1\r\n", 404),
        ("GET / HTTP/1.1\r\n", 404),
        ("DELETE /v1/proxies HTTP/1.1\r\n", 405),
        ("GET /v1/proxies?limit=x HTTP/1.1\r\n", 400),
        ("GET /v1/explain HTTP/1.1\r\n", 400),
        ("POST /v1/policy/wait HTTP/1.1\r\nContent-Length: 2\r\n", 415),
        (&format!("POST /v1/policy/wait HTTP/1.1\r\n{json}Content-Length: 1\r\n"), 400),
        (&format!("POST /v1/policy/wait HTTP/1.1\r\n{json}Content-Length: 2\r\n"), 422),
        ("POST /v1/proxies HTTP/1.1\r\n", 403),
        ("GET /v1/journal HTTP/1.1\r\n", 403),
    ] {
        let body = if request.contains("Content-Length: 1\r\n") { "{" } else { "42" };
        let has_body = request.contains("Content-Length");
        let body = if has_body { body } else { "" };
        let request = format!("{request}Host: localhost\r\nConnection: close\r\n\r\n{body}");
        let answer = send(address, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let error: ironmesh_api::ErrorBody = serde_json::from_str(body).unwrap();
        assert!(!error.error.is_empty());
        assert_eq!(head.to_ascii_lowercase().contains("\r\nallow:"), status == 405, "{head}");
    }
}

#[tokio::test]
async fn array_in_place_of_an_object_is_rejected() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = port.local_addr().unwrap();
    tokio::spawn(AdminApi::new(Arc::new(idle())).serve_port(port, []));
    // All fields of a request to wait, in their order.
    let body = r#"["", false, false, false, 0]"#;
    let head = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    let question = "question=%5B%22shop%2Ftill%22%2C%22shop%2Fstore%22%2C80%5D";
    for (request, status) in [
        (format!("POST /v1/policy/wait HTTP/1.1\r\n{head}"), 422),
        (format!("GET /v1/explain?{question} HTTP/1.1\r\n"), 400),
    ] {
        let body = if status == 422 { body } else { "" };
        let request = format!("{request}Host: localhost\r\nConnection: close\r\n\r\n{body}");
        let answer = send(address, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert!(answer.contains("found a list, expected an object"), "{answer}");
    }
}
