//! The listener for operators on the network: mutual TLS by operator certificates, bearer tokens, or sessions of browsers.
//!
//! It attaches the principal that the control plane recognizes. A request without a credential has none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ironmesh_catalog::Secret;
use ironmesh_listener::{
    Accepted, ClientSource, ConnectionLosses, ListenerLimits, TlsCredentials, TlsListener,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

use super::connections::{Bounds, serve_stream};
use super::credentials::{presented_session, principal};
use super::work_queues::WorkQueues;
use super::{ApiError, ControlPlane, Principal, Shared, session_cookie};

/// Counts a failure of a source, with its reason.
type Charge = Box<dyn Fn(ClientSource, &str) + Send + Sync>;

/// A client after its handshake.
pub(super) struct NetworkClient {
    address: SocketAddr,
    source: ClientSource,
    /// The verified client certificate (DER); none without one.
    certificate: Option<Vec<u8>>,
    has_sent_request: AtomicBool,
    /// Counts a failure of the client's source, which may block it.
    charge: Charge,
}

impl NetworkClient {
    /// A client that has sent no request yet.
    pub(super) fn new(address: SocketAddr, certificate: Option<Vec<u8>>, charge: Charge) -> Self {
        let (source, has_sent_request) = (ClientSource::of(address), AtomicBool::new(false));
        Self { address, source, certificate, has_sent_request, charge }
    }

    /// Its address.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The principal of a request on its connection; none without a credential.
    pub(super) fn principal(
        &self,
        control_plane: &dyn ControlPlane,
        request: &Request,
    ) -> Result<Option<Principal>, ApiError> {
        principal(control_plane, self.address, self.certificate.as_deref(), request)
    }

    /// Counts a failure of its source, which may block it.
    pub(super) fn charge(&self, reason: &str) {
        (self.charge)(self.source, reason);
    }
}

/// Serves `router` on the network until `shutdown`. `credentials` verify client certificates, which are optional. `losses`
/// counts the connections that end without a request.
pub(super) async fn serve<C: TlsCredentials>(
    listener: TcpListener,
    credentials: watch::Receiver<Arc<C>>,
    router: Router,
    losses: Arc<ConnectionLosses>,
    shutdown: CancellationToken,
) {
    let limits = ListenerLimits::default();
    let tls = Arc::new(TlsListener::new("operators' API", credentials, limits, losses));
    let charging = Arc::clone(&tls);
    let serve = move |Accepted { stream, address, .. }: Accepted<C>| {
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let tls = Arc::clone(&charging);
        let charge = Box::new(move |source, reason: &str| tls.charge(source, reason));
        let certificate = certificate.map(|certificate| certificate.to_vec());
        let client = Arc::new(NetworkClient::new(address, certificate, charge));
        let (router, of_requests) = (router.clone(), Arc::clone(&client));
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            of_requests.has_sent_request.store(true, Ordering::Relaxed);
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(Arc::clone(&of_requests));
            router.clone().call(request)
        });
        let tls = Arc::clone(&charging);
        async move {
            serve_stream(TokioIo::new(stream), service, Bounds::NETWORK).await;
            if !client.has_sent_request.load(Ordering::Relaxed) {
                tls.no_request(client.source);
            }
        }
    };
    tls.serve(listener, shutdown, serve).await;
}

/// The same router, which attaches the principal of each request.
pub(super) fn with_principals(router: Router, control_plane: Shared, queues: WorkQueues) -> Router {
    router.layer(middleware::from_fn_with_state((control_plane, queues), authenticate))
}

async fn authenticate(
    State((control_plane, queues)): State<(Shared, WorkQueues)>,
    Extension(client): Extension<Arc<NetworkClient>>,
    mut request: Request,
    next: Next,
) -> Response {
    // An ended session is no attack: the browser only does not know yet.
    let is_session = !request.headers().contains_key(header::AUTHORIZATION)
        && matches!(session_cookie::read(request.headers()), Ok(Some(_)));
    if let Some(token) = presented_session(&request)
        && let Err(error) = find_session(&control_plane, &queues, &client, token).await
    {
        return error.into_response();
    }
    match client.principal(&*control_plane, &request) {
        Ok(None) => {}
        Ok(Some(principal)) => {
            request.extensions_mut().insert(principal);
        }
        Err(error) => {
            let is_credential = matches!(error, ApiError::Unauthenticated(_));
            if is_credential && !is_session {
                client.charge("rejected credential");
            }
            tracing::info!(address = %client.address, reason = %error, "request to the operators' API rejected");
            let mut response = error.into_response();
            close(&mut response);
            if is_credential && is_session {
                response.headers_mut().insert(header::SET_COOKIE, session_cookie::REMOVED);
            }
            return response;
        }
    }
    let mut response = next.run(request).await;
    if response.status() == StatusCode::UNAUTHORIZED {
        close(&mut response);
    }
    response
}

/// Finds the session of a token, if another control plane may have begun it just now. A browser keeps its cookie as long as
/// that is not known.
pub(super) async fn find_session(
    control_plane: &Shared,
    queues: &WorkQueues,
    client: &NetworkClient,
    token: Secret,
) -> Result<(), ApiError> {
    if !control_plane.may_lack_session(&token) {
        return Ok(());
    }
    let state = Arc::clone(control_plane);
    if !queues.look_up(move || state.find_session(&token)).await? {
        // Each costs a read of the store.
        client.charge("unknown session");
    }
    Ok(())
}

/// Ends the connection after this response: the next attempt needs a new one, which a block of the source prevents.
fn close(response: &mut Response) {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
}
