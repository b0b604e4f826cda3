//! HTTP of the providers: clients that follow no redirect, and complete answers within limits.
//!
//! It never interprets an answer.

mod tls;

use std::error::Error as _;
use std::time::Duration;

use ironmesh_catalog::text::chain;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, RequestBuilder, StatusCode};
use rustls::ClientConfig;
use tokio::time::timeout;

use crate::PeerClock;

pub(crate) use tls::{PemFileError, certificates, client_config, private_key, root_store};

/// The largest body, in bytes: 1,000 Consul instances take about 2 MiB, 1,000 Azure machines with their
/// states about 8 MiB.
pub(crate) const MAX_BODY: usize = 64 << 20;

/// A complete answer, with any status.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// The reason why there is no complete answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HttpError {
    /// There is no connection, or it broke.
    #[error("{0}")]
    Transport(String),
    /// The answer was not complete in time.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// The body exceeds the limit.
    #[error("the answer is larger than {} MiB", MAX_BODY >> 20)]
    TooLarge,
}

impl From<reqwest::Error> for HttpError {
    fn from(error: reqwest::Error) -> Self {
        Self::Transport(causes(error))
    }
}

/// Returns a client builder with the common settings. Tokens and secrets go only to the requested
/// host, and never to one that an answer names.
pub(crate) fn client_builder(tls: ClientConfig, connect_timeout: Duration) -> ClientBuilder {
    Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(connect_timeout)
        .redirect(Policy::none())
}

/// Sends a request, and reads the whole answer within `patience`. `clock` records its date.
pub(crate) async fn ask(
    request: RequestBuilder,
    patience: Duration,
    clock: Option<&PeerClock>,
) -> Result<HttpResponse, HttpError> {
    let answer = timeout(patience, read(request, clock, MAX_BODY)).await;
    answer.unwrap_or(Err(HttpError::Silent(patience)))
}

async fn read(
    request: RequestBuilder,
    clock: Option<&PeerClock>,
    max_body: usize,
) -> Result<HttpResponse, HttpError> {
    let mut answer = request.send().await?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    if let Some(clock) = clock {
        clock.note(answer.url().host_str().unwrap_or_default(), &headers);
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if body.len() + chunk.len() > max_body {
            return Err(HttpError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(HttpResponse { status, headers, body })
}

impl HttpResponse {
    /// Returns a header that is valid text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the `Retry-After` header, if it is in seconds.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.header("Retry-After")?.trim().parse().ok().map(Duration::from_secs)
    }
}

/// Returns a header value that logs do not show; `None` if `secret` is not a valid value.
pub(crate) fn secret_header(secret: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(secret).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the causes of an error, without the URL: reqwest's own message says only that the
/// request failed.
fn causes(error: reqwest::Error) -> String {
    match error.source() {
        Some(source) => chain(source),
        None => error.without_url().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Returns a request to a server that sends `said`, and nothing more.
    async fn request_to(said: &'static str) -> RequestBuilder {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/secret", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(said.as_bytes()).await;
            std::future::pending::<()>().await;
        });
        let tls = client_config(Some(rustls::RootCertStore::empty()), None).unwrap();
        let client = client_builder(tls, Duration::from_secs(5)).no_proxy().build().unwrap();
        client.get(url)
    }

    #[tokio::test]
    async fn redirect_is_an_answer_and_not_followed() {
        let said = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\
                    Retry-After: 7\r\nContent-Length: 2\r\n\r\nno";
        let answer = ask(request_to(said).await, Duration::from_secs(30), None).await.unwrap();
        assert_eq!((answer.status.as_u16(), &*answer.body), (302, &b"no"[..]));
        assert_eq!(answer.retry_after(), Some(Duration::from_secs(7)));
    }

    #[tokio::test]
    async fn unfinished_or_large_body_is_no_answer() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
        let late = ask(request_to(head).await, Duration::from_millis(50), None).await;
        assert_eq!(late.unwrap_err(), HttpError::Silent(Duration::from_millis(50)));
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123456789";
        assert_eq!(read(request_to(whole).await, None, 9).await.unwrap().body.len(), 9);
        let large = read(request_to(whole).await, None, 8).await;
        assert_eq!(large.unwrap_err(), HttpError::TooLarge);
    }

    #[tokio::test]
    async fn transport_error_names_its_causes_and_no_url() {
        let broken = ask(request_to("no HTTP\r\n\r\n").await, Duration::from_secs(30), None).await;
        let error = broken.unwrap_err().to_string();
        assert!(!error.is_empty() && !error.contains("secret"), "{error}");
    }
}
