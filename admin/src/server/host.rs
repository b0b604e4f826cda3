//! The check of host names: a page in a browser of this machine must not read the mesh by a name that resolves to this
//! listener (DNS rebinding).
//!
//! A browser sends the name of the page's URL. A page of a foreign name cannot use an address instead, because that is
//! a different origin.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use ironmesh_api::ErrorBody;

/// The allowed names besides addresses and `localhost`, in lower case.
pub(super) type Names = Arc<[String]>;

/// How many characters of a foreign name an error repeats.
const SHOWN: usize = 64;

/// Answers a request to a foreign name with 421.
pub(super) async fn check(State(names): State<Names>, request: Request, next: Next) -> Response {
    // An absolute target replaces the header (RFC 9112, section 3.2.2).
    let of_target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let of_headers = request.headers().get_all(header::HOST).iter().map(HeaderValue::as_bytes);
    let foreign = of_target.into_iter().chain(of_headers).find(|host| !is_allowed(host, &names));
    let Some(foreign) = foreign else { return next.run(request).await };
    let shown: String = String::from_utf8_lossy(foreign).chars().take(SHOWN).collect();
    let error = format!(
        "`{}` is not a name of this control plane: use an address, `localhost`, or a name of \
         `advertise` in its settings",
        shown.escape_debug()
    );
    (StatusCode::MISDIRECTED_REQUEST, Json(ErrorBody { error })).into_response()
}

fn is_allowed(host: &[u8], names: &[String]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name.parse::<IpAddr>().is_ok()
        || name == "localhost"
        || name.ends_with(".localhost")
        || names.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_hosts_are_addresses_localhost_and_configured_names() {
        let names = ["mesh.example.com".to_owned()];
        for own in [
            "127.0.0.1:15014",
            "127.0.0.1",
            "10.0.0.1:80",
            "[::1]:15014",
            "[::1]",
            "localhost:15014",
            "LOCALHOST",
            "a.localhost",
            "Mesh.example.com:15014",
            "mesh.example.com.",
        ] {
            assert!(is_allowed(own.as_bytes(), &names), "{own}");
        }
        for foreign in [
            "",
            "evil.example",
            "evil.example:15014",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "xmesh.example.com",
            "notlocalhost",
            "[evil.example]:1",
        ] {
            assert!(!is_allowed(foreign.as_bytes(), &names), "{foreign}");
        }
        assert!(!is_allowed(b"\xff", &names));
    }
}
