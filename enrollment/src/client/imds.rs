//! The Instance Metadata Service (IMDS) of an Azure machine: it signs attested documents for the machine's programs.
//!
//! Requests never leave the machine or its host: the address is fixed, no proxy is used, and nothing is followed.
//!
//! ClientSource: Azure Instance Metadata Service, "attested data" and "errors and debugging".

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Where IMDS answers, on every Azure machine.
const ADDRESS: SocketAddr =
    SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 169, 254)), 80);

/// A version whose documents have a `subscriptionId`.
const VERSION: &str = "2021-02-01";

/// The time limit of one request.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most bytes of an answer: a document, or the reason why there is none.
const MAX_ANSWER: usize = 64 << 10;

/// The wait after 410, while IMDS is updated, and how often: Azure documents up to 70 seconds.
const GONE: (u32, u32) = (10, 7);

/// The repetitions after other failures that pass.
const REPETITIONS: u32 = 3;

/// The metadata service of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataService {
    address: SocketAddr,
    /// The first wait after a failure; the others are multiples of it.
    wait: Duration,
}

impl Default for MetadataService {
    fn default() -> Self {
        Self { address: ADDRESS, wait: Duration::from_secs(1) }
    }
}

impl MetadataService {
    /// The attested document for `nonce`, in base64.
    ///
    /// # Errors
    ///
    /// If IMDS cannot be reached or has no document, also after some repetitions.
    pub async fn attested_document(&self, nonce: &str) -> Result<String, ImdsError> {
        let (mut repetitions, mut gone) = (0, 0);
        loop {
            let answer = timeout(PATIENCE, self.request(nonce)).await;
            let error = match answer.unwrap_or_else(|_| Err("no answer within 5 s".into())) {
                Ok((StatusCode::OK, body)) => return self.document(&body),
                Ok((status, _)) if status == StatusCode::GONE && gone < GONE.1 => {
                    gone += 1;
                    sleep(self.wait * GONE.0).await;
                    continue;
                }
                Ok((status, body)) => {
                    let error = ImdsError::Status {
                        service: *self,
                        status,
                        // (It is shown escaped.)
                        answer: String::from_utf8_lossy(&body).chars().take(200).collect(),
                    };
                    let passes = matches!(status.as_u16(), 404 | 429) || status.is_server_error();
                    if !passes {
                        return Err(error);
                    }
                    error
                }
                Err(source) => ImdsError::Unreachable { service: *self, source },
            };
            if repetitions == REPETITIONS {
                return Err(error);
            }
            sleep(self.wait * 2_u32.pow(repetitions)).await;
            repetitions += 1;
        }
    }

    async fn request(
        &self,
        nonce: &str,
    ) -> Result<(StatusCode, Bytes), Box<dyn Error + Send + Sync>> {
        let stream = TcpStream::connect(self.address).await?;
        let request = Request::get(format!(
            "/metadata/attested/document?api-version={VERSION}&nonce={nonce}"
        ))
        .header(header::HOST, self.address.to_string())
        .header("Metadata", "true")
        .body(Empty::<Bytes>::new())?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let response = async move {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await?;
            Ok((status, body.to_bytes()))
        };
        // Either may end first; the response is read to its end.
        tokio::join!(response, connection).0
    }

    fn document(&self, body: &[u8]) -> Result<String, ImdsError> {
        #[derive(Deserialize)]
        struct Answer {
            signature: String,
        }
        let answer: Result<Answer, _> = serde_json::from_slice(body);
        let answer = answer.map_err(|source| ImdsError::NoDocument { service: *self, source })?;
        Ok(answer.signature)
    }
}

impl fmt::Display for MetadataService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.address)
    }
}

/// Reads the address of a stand-in on this machine, for tests: `http://127.0.0.1:PORT`.
impl FromStr for MetadataService {
    type Err = NoMetadataService;

    fn from_str(text: &str) -> Result<Self, NoMetadataService> {
        let address = text.strip_prefix("http://").and_then(|address| address.parse().ok());
        let address = address.filter(|address: &SocketAddr| {
            let is_link_local = matches!(address.ip(), IpAddr::V4(ip) if ip.is_link_local());
            address.ip().is_loopback() || is_link_local
        });
        let address = address.ok_or_else(|| NoMetadataService { text: text.to_owned() })?;
        Ok(Self { address, wait: Duration::from_millis(10) })
    }
}

/// A text that is no address of a metadata service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no address of a metadata service on this machine: it is `http://IP:PORT`")]
pub struct NoMetadataService {
    text: String,
}

/// The failure to get an attested document.
#[derive(Debug, thiserror::Error)]
pub enum ImdsError {
    /// Nothing answers.
    #[error(
        "cannot get an attested document from the metadata service of this machine at {service}: see that this is an Azure machine, and that no firewall keeps this user from it"
    )]
    Unreachable {
        /// The service.
        service: MetadataService,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// It answers with an error.
    #[error(
        "the metadata service of this machine at {service} answered {status} instead of an attested document ({answer:?}): try again, and see Azure's service health"
    )]
    Status {
        /// The service.
        service: MetadataService,
        /// The status.
        status: StatusCode,
        /// The beginning of its answer.
        answer: String,
    },
    /// Its answer has no document.
    #[error(
        "the answer of {service} has no attested document: see that nothing else answers at this address"
    )]
    NoDocument {
        /// The service.
        service: MetadataService,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
}
