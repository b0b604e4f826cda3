//! HTTP requests to Azure: it selects the client of each. It never interprets an answer.

use std::path::Path;
use std::time::Duration;

use ironmesh_catalog::Secret;
use ironmesh_catalog::text::chain;
use parking_lot::Mutex;
use reqwest::{Client, ClientBuilder, Method, Url};
use rustls::{ClientConfig, RootCertStore};

use super::error::{AzureError, RequestError};
use super::survey::Call;
use crate::PeerClock;
use crate::http::{self, HttpError, MAX_BODY, PemFileError, client_builder, secret_header};

pub(super) use crate::http::HttpResponse;

/// The timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(5);
/// The timeout of the whole answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The HTTP clients.
#[derive(Debug)]
pub(super) struct Http {
    /// The client for plain HTTP, which stays on this machine: no proxy may see or answer it.
    plain: Client,
    /// The clients for HTTPS, made at the first use.
    private: Mutex<Option<Private>>,
    /// The trusted roots; `None` for those of the system.
    roots: Option<RootCertStore>,
    peer_clock: PeerClock,
    /// The log of calls, for a survey.
    log: Option<Mutex<Vec<Call>>>,
}

/// The clients for HTTPS.
#[derive(Debug, Clone)]
struct Private {
    /// For Azure, by the proxy of the environment if there is one.
    outside: Client,
    /// For the machine's own metadata, which no proxy may see or answer.
    inside: Client,
}

/// A request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) url: Url,
    pub(super) body: Option<Body>,
    pub(super) token: Option<Secret>,
    pub(super) is_metadata: bool,
}

/// The body of a request.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) kind: &'static str,
    pub(super) text: String,
}

impl Http {
    pub(super) fn new(ca: Option<&Path>, is_logged: bool) -> Result<Self, AzureError> {
        let plain = builder(tls(Some(RootCertStore::empty()))?).no_proxy();
        Ok(Self {
            plain: plain.build().map_err(AzureError::Client)?,
            private: Mutex::default(),
            roots: ca.map(roots).transpose()?,
            log: is_logged.then(Mutex::default),
            peer_clock: PeerClock::default(),
        })
    }

    /// Returns the clock of Azure. The metadata service does not count, because it has the clock of
    /// this machine.
    pub(super) fn peer_clock(&self) -> PeerClock {
        self.peer_clock.clone()
    }

    /// Returns the client for a URL. The system's certificates are read at the first HTTPS request,
    /// and again until there are some: a machine may have none, and need none.
    fn client(&self, url: &Url, is_metadata: bool) -> Result<Client, AzureError> {
        if url.scheme() != "https" {
            return Ok(self.plain.clone());
        }
        let mut made = self.private.lock();
        let private = if let Some(private) = &*made {
            private.clone()
        } else {
            let tls = tls(self.roots.clone())?;
            let outside = builder(tls.clone()).build().map_err(AzureError::Client)?;
            let inside = builder(tls).no_proxy().build().map_err(AzureError::Client)?;
            made.insert(Private { outside, inside }).clone()
        };
        Ok(if is_metadata { private.inside } else { private.outside })
    }

    /// Sends a request, and reads the whole answer.
    pub(super) async fn ask(&self, request: Request) -> Result<HttpResponse, RequestError> {
        let Request { url, body, token, is_metadata } = request;
        let host = url.host_str().unwrap_or_default().to_owned();
        let client = match self.client(&url, is_metadata) {
            Ok(client) => client,
            Err(error) => {
                return Err(RequestError::Transport { host, reason: chain(&error) });
            }
        };
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = client.request(method, url);
        if is_metadata {
            request = request.header("Metadata", "true");
        }
        // The reader of the token has checked that it is a header value.
        let token = token.map(|token| format!("Bearer {}", token.expose()));
        if let Some(value) = token.and_then(|token| secret_header(&token)) {
            request = request.header("Authorization", value);
        }
        if let Some(Body { kind, text }) = body {
            request = request.header("Content-Type", kind).body(text);
        }
        let clock = (!is_metadata).then_some(&self.peer_clock);
        http::ask(request, PATIENCE, clock).await.map_err(|error| match error {
            HttpError::Transport(reason) => RequestError::Transport { host, reason },
            HttpError::Silent(patience) => RequestError::Silent { host, patience },
            HttpError::TooLarge => {
                RequestError::TooLarge(format!("a page has more than {} MiB", MAX_BODY >> 20))
            }
        })
    }

    /// Logs a call, if a survey needs it.
    pub(super) fn note(&self, call: impl FnOnce() -> Call) {
        if let Some(log) = &self.log {
            log.lock().push(call());
        }
    }

    /// Returns and clears the logged calls.
    pub(super) fn noted(&self) -> Vec<Call> {
        self.log.as_ref().map(|log| std::mem::take(&mut *log.lock())).unwrap_or_default()
    }
}

fn builder(tls: ClientConfig) -> ClientBuilder {
    client_builder(tls, CONNECT)
        .tcp_keepalive(Duration::from_secs(30))
        .user_agent(concat!("ironmesh/", env!("CARGO_PKG_VERSION")))
}

/// Reads the certificates of the file `ca`.
fn roots(path: &Path) -> Result<RootCertStore, AzureError> {
    let found = http::certificates(path).map_err(|error| match error {
        PemFileError::Unreadable(source) => AzureError::File(source),
        PemFileError::Malformed(source) => AzureError::Pem { path: path.to_owned(), source },
    })?;
    http::root_store(found).map_err(AzureError::Tls)
}

/// Returns a TLS configuration that trusts `roots`, or the system's certificates by default.
fn tls(roots: Option<RootCertStore>) -> Result<ClientConfig, AzureError> {
    http::client_config(roots, None).map_err(AzureError::Tls)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The system's certificates come from the environment, so a separate process has none.
    #[tokio::test]
    async fn missing_system_certificates_fail_only_https_requests() {
        const ALONE: &str = "IRONMESH_TEST_TRUSTS_NOBODY";
        if std::env::var_os(ALONE).is_none() {
            let folder = tempfile::tempdir().unwrap();
            let name = std::thread::current().name().unwrap().to_owned();
            let done = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", &name])
                .env(ALONE, "1")
                .env("SSL_CERT_FILE", folder.path().join("none"))
                .env("SSL_CERT_DIR", folder.path())
                // Nothing listens there: plain HTTP must not use the proxy.
                .env("HTTP_PROXY", "http://127.0.0.1:1")
                .output()
                .unwrap();
            let output = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success() && output.contains("1 passed"), "{output}");
            return;
        }
        let http = Http::new(None, false).unwrap();
        let ask = async |url: &str| {
            let url = Url::parse(url).unwrap();
            http.ask(Request { url, body: None, token: None, is_metadata: false }).await
        };
        let error = ask("https://127.0.0.1:1").await.unwrap_err();
        assert!(error.is_general(), "{error}");
        assert!(error.to_string().contains("no TLS can be made for Azure: "), "{error}");
        // Plain HTTP needs no certificates.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::select! {
            accepted = listener.accept() => drop(accepted.unwrap()),
            answer = ask(&url) => panic!("the request went elsewhere: {answer:?}"),
        }
    }
}
