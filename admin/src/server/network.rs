//! The listener for operators on the network: mutual TLS by operator certificates, or bearer tokens.
//!
//! It attaches the principal that the control plane recognizes. A request without a credential has none, and one with a bad
//! credential is rejected: it never counts as a request without one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header};
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

use super::access::PresentedCredential;
use super::connections::{Bounds, serve_stream};
use super::principal::{Identity, Principal};
use super::{ApiError, Shared};

/// Counts a failure of a source, with its reason.
type Charge = Box<dyn Fn(ClientSource, &str) + Send + Sync>;

/// A client after its handshake.
struct NetworkClient {
    address: SocketAddr,
    source: ClientSource,
    /// The verified client certificate (DER); none without one.
    certificate: Option<Vec<u8>>,
    has_sent_request: AtomicBool,
    /// Counts a failure of the client's source, which may block it.
    charge: Charge,
}

/// Serves `router` on the network until `shutdown`. `credentials` verify client certificates, which are optional.
pub(super) async fn serve<C: TlsCredentials>(
    listener: TcpListener,
    credentials: watch::Receiver<Arc<C>>,
    router: Router,
    shutdown: CancellationToken,
) {
    let losses = Arc::<ConnectionLosses>::default();
    let limits = ListenerLimits::default();
    let tls = Arc::new(TlsListener::new("operators' API", credentials, limits, losses));
    let charging = Arc::clone(&tls);
    let serve = move |Accepted { stream, address, source, .. }: Accepted<C>| {
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let tls = Arc::clone(&charging);
        let client = Arc::new(NetworkClient {
            address,
            source,
            certificate: certificate.map(|certificate| certificate.to_vec()),
            has_sent_request: AtomicBool::new(false),
            charge: Box::new(move |source, reason| tls.charge(source, reason)),
        });
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
pub(super) fn with_principals(router: Router, control_plane: Shared) -> Router {
    router.layer(middleware::from_fn_with_state(control_plane, authenticate))
}

async fn authenticate(
    State(control_plane): State<Shared>,
    Extension(client): Extension<Arc<NetworkClient>>,
    mut request: Request,
    next: Next,
) -> Response {
    match principal(&*control_plane, &client, &request) {
        Ok(None) => {}
        Ok(Some(principal)) => {
            request.extensions_mut().insert(principal);
        }
        Err(error) => {
            let is_credential = matches!(error, ApiError::Unauthenticated(_));
            if is_credential {
                (client.charge)(client.source, "rejected credential");
            }
            tracing::info!(address = %client.address, reason = %error, "request to the operators' API rejected");
            let mut response = error.into_response();
            // The next attempt needs a new connection, which a block of the source prevents.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
            return response;
        }
    }
    next.run(request).await
}

/// The principal of a request; none if it presents no credential.
fn principal(
    control_plane: &dyn super::ControlPlane,
    client: &NetworkClient,
    request: &Request,
) -> Result<Option<Principal>, ApiError> {
    let token = bearer(request.headers())?;
    let authenticated = match (&token, &client.certificate) {
        (Some(token), _) => control_plane.authenticate(&PresentedCredential::Token(token))?,
        (None, Some(leaf)) => {
            control_plane.authenticate(&PresentedCredential::Certificate(leaf))?
        }
        (None, None) => return Ok(None),
    };
    if *request.method() != Method::GET && !is_same_origin(request.headers()) {
        return Err(ApiError::Forbidden(
            "a page of another site may not send changes with this browser's credential".to_owned(),
        ));
    }
    Ok(Some(Principal {
        identity: Identity::Operator {
            name: authenticated.name,
            credential: authenticated.credential,
        },
        role: authenticated.role,
        read_only: false,
        address: Some(client.address),
    }))
}

/// The token of the `Authorization` header (RFC 6750, section 2.1); none without the header.
fn bearer(headers: &HeaderMap) -> Result<Option<Secret>, ApiError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let token = value.to_str().ok().and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("Bearer").then_some(token)
    });
    match (token, values.next()) {
        (Some(token), None) => Ok(Some(Secret::new(token.to_owned()))),
        _ => Err(ApiError::Unauthenticated(
            "`Authorization` must be given once, as `Bearer TOKEN`".to_owned(),
        )),
    }
}

/// Whether no browser sent the request for a page of another site: a browser has the credential of its user, whatever
/// page sends the request. Other clients send no `Origin`.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin = origin.to_str().ok().and_then(|origin| origin.strip_prefix("https://"));
    origin.is_some() && origin == host
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn authorization_is_one_bearer_token() {
        let token = |values: &[&'static str]| {
            let values: Vec<_> =
                values.iter().map(|value| (header::AUTHORIZATION, *value)).collect();
            bearer(&headers(&values)).map(|token| token.map(|token| token.expose().to_owned()))
        };
        assert_eq!(token(&[]).unwrap(), None);
        assert_eq!(token(&["Bearer imo1_a_b"]).unwrap().as_deref(), Some("imo1_a_b"));
        assert_eq!(token(&["bearer x"]).unwrap().as_deref(), Some("x"));
        for bad in [&["Basic x"][..], &["Bearer"], &["x"], &["Bearer a", "Bearer b"]] {
            assert!(matches!(token(bad), Err(ApiError::Unauthenticated(_))), "{bad:?}");
        }
    }

    #[test]
    fn pages_of_other_origins_are_recognized() {
        let host = || (header::HOST, "cp.example:15130");
        for (origin, is_same) in [
            ("https://cp.example:15130", true),
            ("http://cp.example:15130", false),
            ("https://cp.example", false),
            ("https://evil.example", false),
            ("null", false),
        ] {
            assert_eq!(
                is_same_origin(&headers(&[host(), (header::ORIGIN, origin)])),
                is_same,
                "{origin}"
            );
        }
        assert!(is_same_origin(&headers(&[host()])));
        assert!(!is_same_origin(&headers(&[(header::ORIGIN, "https://cp.example:15130")])));
    }
}
