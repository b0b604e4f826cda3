//! The cookie of a browser's session (RFC 6265): only for this host and TLS, not for scripts, and not in requests that
//! other sites cause.

use axum::http::header::InvalidHeaderValue;
use axum::http::{HeaderMap, HeaderValue, header};
use ironmesh_catalog::Secret;

use super::ApiError;

/// Its name. Browsers accept the prefix `__Host-` only with `Secure` and `Path=/`, and without a domain, so that no other
/// host sets it.
pub(super) const NAME: &str = "__Host-ironmesh-session";

/// The header that removes it.
pub(super) const REMOVED: HeaderValue = HeaderValue::from_static(
    "__Host-ironmesh-session=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0",
);

/// The header that sets it. Without an age it ends with the browser; the session itself expires earlier or later.
pub(super) fn of(token: &Secret) -> Result<HeaderValue, InvalidHeaderValue> {
    let token = token.expose();
    let text = format!("{NAME}={token}; Path=/; Secure; HttpOnly; SameSite=Strict");
    let mut value = HeaderValue::from_str(&text)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The session's token in the headers of a request; none without the cookie.
pub(super) fn read(headers: &HeaderMap) -> Result<Option<Secret>, ApiError> {
    let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.split_once('='));
    let mut tokens = pairs.filter(|(name, _)| name.trim() == NAME).map(|(_, token)| token.trim());
    match (tokens.next(), tokens.next()) {
        (None, _) => Ok(None),
        (Some(token), None) => Ok(Some(Secret::new(token.to_owned()))),
        (Some(_), Some(_)) => {
            Err(ApiError::Unauthenticated(format!("the cookie `{NAME}` must be given once")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(cookies: &[&'static str]) -> Result<Option<String>, ApiError> {
        let mut headers = HeaderMap::new();
        for cookie in cookies {
            headers.append(header::COOKIE, HeaderValue::from_static(cookie));
        }
        Ok(read(&headers)?.map(|token| token.expose().to_owned()))
    }

    #[test]
    fn cookie_is_found_among_others() {
        assert_eq!(token(&[]).unwrap(), None);
        assert_eq!(token(&["a=b; c", "ironmesh-session=x"]).unwrap(), None);
        for cookies in
            [&["__Host-ironmesh-session=t"][..], &["a=b; __Host-ironmesh-session=t; c=d"]]
        {
            assert_eq!(token(cookies).unwrap().as_deref(), Some("t"));
        }
        for cookies in [
            &["__Host-ironmesh-session=t; __Host-ironmesh-session=u"][..],
            &["__Host-ironmesh-session=t", "__Host-ironmesh-session=t"],
        ] {
            assert!(matches!(token(cookies), Err(ApiError::Unauthenticated(_))), "{cookies:?}");
        }
    }

    #[test]
    fn set_cookie_is_for_this_host_and_hidden() {
        let set = of(&Secret::new("t".to_owned())).unwrap();
        assert!(set.is_sensitive());
        for header in [&set, &REMOVED] {
            let text = header.to_str().unwrap();
            for attribute in ["Path=/", "Secure", "HttpOnly", "SameSite=Strict"] {
                assert!(text.contains(attribute), "{text}");
            }
            assert!(text.starts_with(NAME), "{text}");
        }
    }
}
