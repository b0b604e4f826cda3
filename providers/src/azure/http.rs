//! Requests, and the whole of their answers, within bounds. It knows nothing of what is asked.

use std::error::Error as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::Secret;
use parking_lot::Mutex;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Method, StatusCode, Url};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::time::timeout;

use super::error::{AzureError, RequestError, causes};
use super::survey::Call;
use crate::PeerClock;

/// For how long a connection is waited for.
const CONNECT: Duration = Duration::from_secs(5);
/// For how long the whole answer is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// A page that is larger than this is refused: 1,000 machines with their states take about 8 MiB.
const MAX_BODY: usize = 64 << 20;

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

/// What is answered, with whatever status.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
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
        let host = request.url.host_str().unwrap_or_default().to_owned();
        match timeout(PATIENCE, self.send(request, &host)).await {
            Ok(answer) => answer,
            Err(_) => Err(RequestError::Silent { host, patience: PATIENCE }),
        }
    }

    async fn send(&self, request: Request, host: &str) -> Result<Answer, RequestError> {
        let Request { url, body, token, is_metadata } = request;
        let client = self.client(&url, is_metadata).map_err(|error| RequestError::Transport {
            host: host.to_owned(),
            reason: match error.source() {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            },
        })?;
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut asked = client.request(method, url);
        if is_metadata {
            asked = asked.header("Metadata", "true");
        }
        if let Some(token) = token {
            // Whoever read the token has looked whether it is a header value.
            if let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", token.expose())) {
                value.set_sensitive(true);
                asked = asked.header("Authorization", value);
            }
        }
        if let Some(Body { kind, text }) = body {
            asked = asked.header("Content-Type", kind).body(text);
        }
        let failed = |error: reqwest::Error| RequestError::Transport {
            host: host.to_owned(),
            reason: causes(&error),
        };
        let mut answer = asked.send().await.map_err(failed)?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        if !is_metadata {
            self.peer_clock.note(host, &headers);
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > MAX_BODY {
                let reason = format!("a page has more than {} MiB", MAX_BODY >> 20);
                return Err(RequestError::TooLarge(reason));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, headers, body })
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

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

fn builder(tls: ClientConfig) -> ClientBuilder {
    Client::builder()
        .connect_timeout(CONNECT)
        .tcp_keepalive(Duration::from_secs(30))
        .user_agent(concat!("ironmesh/", env!("CARGO_PKG_VERSION")))
        // Tokens and secrets go where they are sent, and nowhere else.
        .redirect(Policy::none())
        .tls_backend_preconfigured(tls)
}

/// The certificates of a file.
fn roots(path: &Path) -> Result<RootCertStore, AzureError> {
    let failed = |source| AzureError::Pem { path: path.to_owned(), source };
    let pem = fs_err::read(path).map_err(AzureError::File)?;
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(failed)?;
    if found.is_empty() {
        return Err(failed(rustls_pki_types::pem::Error::NoItemsFound));
    }
    let mut roots = RootCertStore::empty();
    for certificate in found {
        roots.add(certificate).map_err(AzureError::Tls)?;
    }
    Ok(roots)
}

/// Trusts these, or whom the system trusts.
fn tls(roots: Option<RootCertStore>) -> Result<ClientConfig, AzureError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(AzureError::Tls)?;
    let verifying = match roots {
        Some(roots) => builder.with_root_certificates(roots),
        None => builder.with_platform_verifier().map_err(AzureError::Tls)?,
    };
    let mut config = verifying.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
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
