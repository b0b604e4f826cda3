//! The token endpoints for applications and for the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use super::{AzureFault, RequestKind, Shared, manager};

/// The only tenant.
const TENANT: &str = "72f988bf-86f1-41af-91ab-2d7cd011db47";
/// The only application.
const APPLICATION: &str = "11111111-2222-3333-4444-555555555555";

/// The issued tokens and the denied actions.
#[derive(Debug)]
pub(crate) struct Tokens {
    given: BTreeMap<String, Token>,
    pub(crate) denied: BTreeSet<&'static str>,
    pub(crate) life: Duration,
    pub(crate) secret: String,
}

#[derive(Debug)]
struct Token {
    audience: String,
    ends_at: Instant,
}

impl Default for Tokens {
    fn default() -> Self {
        Self {
            given: BTreeMap::new(),
            denied: BTreeSet::new(),
            life: Duration::from_secs(3600),
            secret: "s3cret".to_owned(),
        }
    }
}

impl Tokens {
    pub(crate) fn revoke(&mut self) {
        self.given.clear();
    }

    fn issue(&mut self, audience: &str) -> String {
        let token = format!("ey.{}", Uuid::new_v4());
        let audience = audience.trim_end_matches('/').to_owned();
        self.given.insert(token.clone(), Token { audience, ends_at: Instant::now() + self.life });
        token
    }

    /// The reason for which a token is rejected, if it is.
    pub(crate) fn rejection(&self, header: Option<&str>, audience: &str) -> Option<&'static str> {
        let Some(token) = header.and_then(|header| header.strip_prefix("Bearer ")) else {
            return Some("AuthenticationFailed");
        };
        match self.given.get(token) {
            None => Some("InvalidAuthenticationToken"),
            Some(token) if token.ends_at <= Instant::now() => Some("ExpiredAuthenticationToken"),
            Some(token) if token.audience != audience => Some("InvalidAuthenticationTokenAudience"),
            Some(_) => None,
        }
    }
}

/// The parameters of a query or a form.
fn parameters(text: &str) -> BTreeMap<String, String> {
    let url = reqwest::Url::parse(&format!("form:?{text}")).unwrap();
    url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

/// `POST /TENANT/oauth2/v2.0/token`.
pub(super) async fn login(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    if let Some(answer) = manager::fault_response(shared.record(RequestKind::Login)).await {
        return answer;
    }
    let no = |status: u16, error: &str, text: &str| {
        let body = json!({ "error": error, "error_description": text, "error_codes": [1] });
        (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response()
    };
    let path = request.uri().path().to_owned();
    if request.method() != "POST" || request.headers().contains_key("authorization") {
        return no(400, "invalid_request", "AADSTS900144: the body must be a form");
    }
    if path != format!("/{TENANT}/oauth2/v2.0/token") {
        return no(400, "invalid_request", "AADSTS90002: Tenant not found");
    }
    let is_form = request
        .headers()
        .get("content-type")
        .is_some_and(|kind| kind == "application/x-www-form-urlencoded");
    let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let form = parameters(&String::from_utf8_lossy(&body));
    let is = |key: &str, value: &str| form.get(key).is_some_and(|given| given == value);
    if !is_form || !is("grant_type", "client_credentials") {
        return no(400, "unsupported_grant_type", "AADSTS70003: unsupported grant type");
    }
    if !is("client_id", APPLICATION) {
        return no(400, "unauthorized_client", "AADSTS700016: Application not found");
    }
    let audience = format!("http://{}", shared.manager);
    if !is("scope", &format!("{audience}/.default")) {
        return no(400, "invalid_scope", "AADSTS70011: the scope is not valid");
    }
    let secret = shared.with(|state| state.tokens.secret.clone());
    let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
    let is_assertion = is("client_assertion_type", kind);
    let proof = if is_assertion { "client_assertion" } else { "client_secret" };
    if !is(proof, &secret) {
        return no(401, "invalid_client", "AADSTS7000215: Invalid client secret provided");
    }
    let (token, life) =
        shared.with(|state| (state.tokens.issue(&audience), state.tokens.life.as_secs()));
    let body = json!({ "token_type": "Bearer", "expires_in": life, "access_token": token });
    answer(&body)
}

/// `GET /metadata/identity/oauth2/token`.
pub(super) async fn metadata(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let fault = shared.record(RequestKind::Metadata);
    let no = |status: u16, error: &str| {
        let body = json!({ "error": error, "error_description": "of the metadata service" });
        (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response()
    };
    if let Some(AzureFault::Status(status, code)) = fault {
        return no(status, code);
    }
    if let Some(answer) = manager::fault_response(fault).await {
        return answer;
    }
    let headers = request.headers();
    if headers.get("metadata").is_none_or(|value| value != "true")
        || headers.contains_key("x-forwarded-for")
    {
        return no(400, "bad_request_102");
    }
    if request.uri().path() != "/metadata/identity/oauth2/token" || request.method() != "GET" {
        return no(404, "not_found");
    }
    let requested = parameters(request.uri().query().unwrap_or_default());
    let is = |key: &str, value: &str| requested.get(key).is_some_and(|given| given == value);
    let own = format!("http://{}/", shared.manager);
    // The fake issues tokens for the public cloud as well, but they are not valid here.
    let audiences = [&*own, "https://management.azure.com/"];
    let audience = audiences.into_iter().find(|audience| is("resource", audience));
    let Some(audience) = audience.filter(|_| is("api-version", "2018-02-01")) else {
        return no(400, "invalid_request");
    };
    if requested.contains_key("client_id") && !is("client_id", APPLICATION) {
        return no(400, "invalid_request: identity not found");
    }
    let (token, life) =
        shared.with(|state| (state.tokens.issue(audience), state.tokens.life.as_secs()));
    // Azure writes these numbers as strings.
    let body = json!({
        "access_token": token, "token_type": "Bearer", "resource": audience,
        "expires_in": life.to_string(), "expires_on": "1506484173", "not_before": "1506480273"
    });
    answer(&body)
}

fn answer(body: &Value) -> Response {
    ([("content-type", "application/json")], body.to_string()).into_response()
}
