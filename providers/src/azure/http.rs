//! Requests, and the whole of their answers, within bounds. It knows nothing of what is asked.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::Secret;
use parking_lot::Mutex;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, StatusCode, Url};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::time::timeout;

use super::error::{AzureError, RequestError, causes};
use super::places::Places;
use super::survey::Call;

/// For how long a connection is waited for.
const CONNECT: Duration = Duration::from_secs(5);
/// For how long the whole answer is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// A page that is larger than this is refused: 1,000 machines with their states take about 8 MiB.
const MAX_BODY: usize = 64 << 20;

/// Whom is asked by which way.
#[derive(Debug)]
pub(super) struct Http {
    /// To the outside, by the proxy of the environment where there is one.
    outside: Client,
    /// To the machine's own metadata, which no proxy may see or answer.
    inside: Client,
    /// What was asked, where somebody wants to see it.
    log: Option<Mutex<Vec<Call>>>,
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
    pub(super) fn new(
        places: &Places,
        ca: Option<&Path>,
        is_logged: bool,
    ) -> Result<Self, AzureError> {
        let doors = [&places.resource_manager, &places.login];
        let is_private = doors.iter().any(|url| url.scheme() == "https");
        let tls = tls(ca, is_private)?;
        let builder = || {
            Client::builder()
                .connect_timeout(CONNECT)
                .tcp_keepalive(Duration::from_secs(30))
                .user_agent(concat!("ironmesh/", env!("CARGO_PKG_VERSION")))
                // Tokens and secrets go where they are sent, and nowhere else.
                .redirect(Policy::none())
                .tls_backend_preconfigured(tls.clone())
        };
        // What stays on this machine has no business with a proxy.
        let outside = if is_private { builder() } else { builder().no_proxy() };
        Ok(Self {
            outside: outside.build().map_err(AzureError::Client)?,
            inside: builder().no_proxy().build().map_err(AzureError::Client)?,
            log: is_logged.then(Mutex::default),
        })
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
        let client = if is_metadata { &self.inside } else { &self.outside };
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

/// What the system trusts is asked for only where somebody is asked by HTTPS: a machine may have nothing of
/// the kind.
fn tls(ca: Option<&Path>, is_used: bool) -> Result<ClientConfig, AzureError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(AzureError::Tls)?;
    let verifying = match ca {
        Some(path) => {
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
            builder.with_root_certificates(roots)
        }
        None if !is_used => builder.with_root_certificates(RootCertStore::empty()),
        None => builder.with_platform_verifier().map_err(AzureError::Tls)?,
    };
    let mut config = verifying.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
