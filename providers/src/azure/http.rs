//! Requests to Azure: by which client each goes. It knows nothing of what is asked.

use std::error::Error as _;
use std::path::Path;
use std::time::Duration;

use ironmesh_catalog::Secret;
use parking_lot::Mutex;
use reqwest::{Client, ClientBuilder, Method, Url};
use rustls::{ClientConfig, RootCertStore};

use super::error::{AzureError, RequestError};
use super::survey::Call;
use crate::PeerClock;
use crate::http::{self, HttpError, MAX_BODY, PemFileError, client_builder, secret_header};

pub(super) use crate::http::Answer;

/// For how long a connection is waited for.
const CONNECT: Duration = Duration::from_secs(5);
/// For how long the whole answer is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Whom is asked by which way.
#[derive(Debug)]
pub(super) struct Http {
    /// By plain HTTP, which stays on this machine: no proxy may see or answer it.
    plain: Client,
    /// By HTTPS; none while nobody was asked by it.
    private: Mutex<Option<Private>>,
    /// Who is trusted; none for whom the system trusts.
    roots: Option<RootCertStore>,
    peer_clock: PeerClock,
    /// What was asked, where somebody wants to see it.
    log: Option<Mutex<Vec<Call>>>,
}

/// By HTTPS.
#[derive(Debug, Clone)]
struct Private {
    /// To the outside, by the proxy of the environment where there is one.
    outside: Client,
    /// To the machine's own metadata, which no proxy may see or answer.
    inside: Client,
}

/// What is asked.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) url: Url,
    pub(super) body: Option<Body>,
    pub(super) token: Option<Secret>,
    pub(super) is_metadata: bool,
}

/// What is sent along.
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

    /// The clock of those who answer, but for the metadata service, which has that of this machine.
    pub(super) fn peer_clock(&self) -> PeerClock {
        self.peer_clock.clone()
    }

    /// By whom this is asked. What the system trusts is read when somebody is asked by HTTPS and not before,
    /// and again until there is something: a machine may have nothing of the kind, and no need of it.
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

    /// Asks, and reads the whole answer.
    pub(super) async fn ask(&self, request: Request) -> Result<Answer, RequestError> {
        let Request { url, body, token, is_metadata } = request;
        let host = url.host_str().unwrap_or_default().to_owned();
        let client = match self.client(&url, is_metadata) {
            Ok(client) => client,
            Err(error) => {
                let source = error.source().map(|source| format!(": {source}"));
                let reason = format!("{error}{}", source.unwrap_or_default());
                return Err(RequestError::Transport { host, reason });
            }
        };
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut asked = client.request(method, url);
        if is_metadata {
            asked = asked.header("Metadata", "true");
        }
        // Whoever read the token has looked whether it is a header value.
        let token = token.map(|token| format!("Bearer {}", token.expose()));
        if let Some(value) = token.and_then(|token| secret_header(&token)) {
            asked = asked.header("Authorization", value);
        }
        if let Some(Body { kind, text }) = body {
            asked = asked.header("Content-Type", kind).body(text);
        }
        let clock = (!is_metadata).then_some(&self.peer_clock);
        http::ask(asked, PATIENCE, clock).await.map_err(|error| match error {
            HttpError::Transport(reason) => RequestError::Transport { host, reason },
            HttpError::Silent(patience) => RequestError::Silent { host, patience },
            HttpError::TooLarge => {
                RequestError::TooLarge(format!("a page has more than {} MiB", MAX_BODY >> 20))
            }
        })
    }

    /// Notes a call, where somebody wants to see it.
    pub(super) fn note(&self, call: impl FnOnce() -> Call) {
        if let Some(log) = &self.log {
            log.lock().push(call());
        }
    }

    /// What was noted.
    pub(super) fn noted(&self) -> Vec<Call> {
        self.log.as_ref().map(|log| std::mem::take(&mut *log.lock())).unwrap_or_default()
    }
}

fn builder(tls: ClientConfig) -> ClientBuilder {
    client_builder(tls, CONNECT)
        .tcp_keepalive(Duration::from_secs(30))
        .user_agent(concat!("ironmesh/", env!("CARGO_PKG_VERSION")))
}

/// The certificates of the file that `ca` names.
fn roots(path: &Path) -> Result<RootCertStore, AzureError> {
    let found = http::certificates(path).map_err(|error| match error {
        PemFileError::Unreadable(source) => AzureError::File(source),
        PemFileError::Malformed(source) => AzureError::Pem { path: path.to_owned(), source },
    })?;
    http::root_store(found).map_err(AzureError::Tls)
}

/// Trusts these, or whom the system trusts.
fn tls(roots: Option<RootCertStore>) -> Result<ClientConfig, AzureError> {
    http::client_config(roots, None).map_err(AzureError::Tls)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// What the system trusts is read from the environment, so a process of its own has none.
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
                // Nobody is there either: plain HTTP does not come this way.
                .env("HTTP_PROXY", "http://127.0.0.1:1")
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success() && told.contains("1 passed"), "{told}");
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
        // Who is asked by plain HTTP needs nothing of the kind.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::select! {
            came = listener.accept() => drop(came.unwrap()),
            asked = ask(&url) => panic!("it asked somebody else: {asked:?}"),
        }
    }
}
