//! The credential of a request on the network, and the principal that it makes.
//!
//! A request with a bad credential is rejected: it never counts as one without a credential, nor as one with another.

use std::net::SocketAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use ironmesh_catalog::Secret;

use super::access::{Authenticated, PresentedCredential};
use super::principal::Principal;
use super::{ApiError, ControlPlane, session_cookie};

/// The paths where a browser logs in. Its old session does not count there: otherwise it could not get a new one.
const LOGIN_PATHS: [&str; 3] = ["/login", "/login.js", "/v1/login"];

/// The principal of a request from `address` with a verified client `certificate` (DER), if it has one; none if it presents
/// no credential.
pub(super) fn principal(
    control_plane: &dyn ControlPlane,
    address: SocketAddr,
    certificate: Option<&[u8]>,
    request: &Request,
) -> Result<Option<Principal>, ApiError> {
    let token = bearer(request.headers())?;
    let session = session(request)?;
    let presented = match (&token, &session, certificate) {
        (Some(token), ..) => PresentedCredential::Token(token),
        (None, Some(session), _) => PresentedCredential::Session(session),
        (None, None, Some(leaf)) => PresentedCredential::Certificate(leaf),
        (None, None, None) => return Ok(None),
    };
    let Authenticated { identity, role, session: id } = control_plane.authenticate(&presented)?;
    let is_read = *request.method() == Method::GET;
    // Browsers send the origin with each change; a client with a cookie is one.
    let origin_is_missing = session.is_some() && !request.headers().contains_key(header::ORIGIN);
    if !is_read && (origin_is_missing || !is_same_origin(request.headers())) {
        return Err(ApiError::Forbidden(
            "a page of another site may not send changes with this browser's credential".to_owned(),
        ));
    }
    Ok(Some(Principal { identity, role, session: id, read_only: false, address: Some(address) }))
}

/// The token of the session by which a request is made; none without one, or if a different credential counts.
pub(super) fn presented_session(request: &Request) -> Option<Secret> {
    let has_token = request.headers().contains_key(header::AUTHORIZATION);
    session(request).ok().flatten().filter(|_| !has_token)
}

fn session(request: &Request) -> Result<Option<Secret>, ApiError> {
    if LOGIN_PATHS.contains(&request.uri().path()) {
        return Ok(None);
    }
    session_cookie::read(request.headers())
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
    use axum::http::HeaderValue;

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
