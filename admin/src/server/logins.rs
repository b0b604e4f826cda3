//! The interface of a control plane about logins of browsers, and its handlers.
//!
//! A browser gets a session on the network listener only: its cookie is for TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use ironmesh_api::{LinkRequest, LoginLink, LoginRequest, SessionList, SessionView};
use ironmesh_catalog::{Secret, TokenId};

use super::error::{Body, Parameter};
use super::network::NetworkClient;
use super::openapi::{Created, Description, Output, WithCookie};
use super::session_cookie;
use super::work_queues::{Changes, JsonBody, Reads, WorkQueues};
use super::{ApiError, Principal, Shared};

/// The interface of a running control plane about logins of browsers.
pub trait LoginAccess: Send + Sync + 'static {
    /// The links and sessions: all of them, or those of a principal who may read no others.
    fn sessions(&self, principal: &Principal) -> SessionList;

    /// Creates a login link. May block on the store.
    fn create_link(
        &self,
        principal: &Principal,
        request: &LinkRequest,
    ) -> Result<LoginLink, ApiError>;

    /// Whether the credential of a login is known without the store. Fails if it cannot be used for sure.
    fn knows_login(&self, request: &LoginRequest) -> Result<bool, ApiError>;

    /// Whether another control plane may have begun the session of a token, which this one does not know yet.
    fn may_lack_session(&self, token: &Secret) -> bool;

    /// Reads the session of a token from the store: whether that has it. May block on the store.
    fn find_session(&self, token: &Secret) -> Result<bool, ApiError>;

    /// Begins a session for the client at `address`: the token of its cookie. May block on the store.
    fn log_in(
        &self,
        request: &LoginRequest,
        address: SocketAddr,
    ) -> Result<(Secret, SessionView), ApiError>;

    /// Revokes a link or a session: of any user, or of a principal who administers nothing. `is_logout` if the user logs
    /// out. May block on the store.
    fn revoke_session(
        &self,
        principal: &Principal,
        id: &TokenId,
        is_logout: bool,
    ) -> Result<SessionView, ApiError>;
}

pub(super) async fn sessions(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody<SessionList>, ApiError> {
    let principal = reads.principal.clone();
    reads.answer(move || Ok(control_plane.sessions(&principal))).await
}

pub(super) async fn create_link(
    State(control_plane): State<Shared>,
    changes: Changes,
    Body(request): Body<LinkRequest>,
) -> Result<Created<LoginLink>, ApiError> {
    let link = changes.answer(move |principal| control_plane.create_link(principal, &request));
    link.await.map(Created)
}

pub(super) async fn log_in(
    State(control_plane): State<Shared>,
    client: Option<Extension<Arc<NetworkClient>>>,
    Extension(queues): Extension<WorkQueues>,
    Body(request): Body<LoginRequest>,
) -> Result<WithCookie<SessionView>, ApiError> {
    let Some(Extension(client)) = client else {
        let message = "this listener has no sessions: log in at `listen.api`";
        return Err(ApiError::Conflict(message.to_owned()));
    };
    let address = client.address();
    let session = begin_session(control_plane, &queues, request, address).await;
    // A failure counts against the source.
    let (token, view) = session.inspect_err(|error| {
        if matches!(error, ApiError::Unauthenticated(_)) {
            client.charge("rejected login");
            tracing::info!(%address, reason = %error, "login rejected");
        }
    })?;
    let cookie = session_cookie::of(&token).map_err(|e| ApiError::Internal(e.to_string()))?;
    Ok(WithCookie { cookie, body: JsonBody::encode(&view)? })
}

/// Begins a session. A client without a credential costs no thread if its link is known to be bad, and otherwise a place
/// among clients like it: a flood of links neither loads the store nor delays changes.
async fn begin_session(
    control_plane: Shared,
    queues: &WorkQueues,
    request: LoginRequest,
    address: SocketAddr,
) -> Result<(Secret, SessionView), ApiError> {
    let is_known = control_plane.knows_login(&request)?;
    let log_in = move || control_plane.log_in(&request, address);
    if is_known { queues.log_in(log_in).await } else { queues.look_up(log_in).await }
}

pub(super) async fn log_out(
    State(control_plane): State<Shared>,
    changes: Changes,
) -> Result<WithCookie<SessionView>, ApiError> {
    let revoked = changes.answer(move |principal| {
        let Some(id) = &principal.session else {
            let message = "the request has no session: credentials are revoked with `ironmesh operator revoke`";
            return Err(ApiError::Conflict(message.to_owned()));
        };
        control_plane.revoke_session(principal, id, true)
    });
    Ok(WithCookie { cookie: session_cookie::REMOVED, body: revoked.await? })
}

pub(super) async fn revoke_session(
    State(control_plane): State<Shared>,
    changes: Changes,
    Parameter(id): Parameter<TokenId>,
) -> Result<JsonBody<SessionView>, ApiError> {
    changes.answer(move |principal| control_plane.revoke_session(principal, &id, false)).await
}

/// The page that logs in. It loads nothing but its script, and no other page shows it.
pub(super) async fn login_page() -> Html {
    Html(include_str!("login_page/login.html"))
}

/// The script of the page that logs in.
pub(super) async fn login_script() -> JavaScript {
    JavaScript(include_str!("login_page/login.js"))
}

const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; base-uri 'none'; \
                           form-action 'none'; frame-ancestors 'none'";

/// A page.
pub(super) struct Html(&'static str);

impl Html {
    const CONTENT_TYPE: &str = "text/html; charset=utf-8";
}

impl IntoResponse for Html {
    fn into_response(self) -> Response {
        protected(([(header::CONTENT_TYPE, Self::CONTENT_TYPE)], self.0))
    }
}

impl Output for Html {
    fn describe(description: &mut Description) {
        description.respond_with_text(Self::CONTENT_TYPE);
    }
}

/// The script of a page.
pub(super) struct JavaScript(&'static str);

impl JavaScript {
    const CONTENT_TYPE: &str = "text/javascript; charset=utf-8";
}

impl IntoResponse for JavaScript {
    fn into_response(self) -> Response {
        protected(([(header::CONTENT_TYPE, Self::CONTENT_TYPE)], self.0))
    }
}

impl Output for JavaScript {
    fn describe(description: &mut Description) {
        description.respond_with_text(Self::CONTENT_TYPE);
    }
}

/// The headers of a page and of its script.
fn protected(text: impl IntoResponse) -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, text).into_response()
}
