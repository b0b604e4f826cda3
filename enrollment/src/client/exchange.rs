//! One exchange with the control plane: the connection, the verified server, the request and the response.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::{AlertDescription, ClientConfig};
use rustls_pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::ControlPlaneAddress;
use super::ca_hash_verifier::spiffe_id;
use super::error::EnrollmentClientError;
use super::untrusted::UntrustedServer;
use crate::api::EnrollmentErrorBody;

/// The most bytes of a response: certificates, roots and notes.
const MAX_RESPONSE: usize = 256 << 10;

/// A connection to a verified control plane, for one request.
pub(crate) struct Exchange<'a> {
    address: &'a ControlPlaneAddress,
    stream: TlsStream<TcpStream>,
    control_plane: String,
}

impl<'a> Exchange<'a> {
    /// Connects, and verifies the server: the one at `peer`, or any to which the address leads.
    pub(crate) async fn open(
        tls: &Arc<ClientConfig>,
        address: &'a ControlPlaneAddress,
        peer: Option<SocketAddr>,
    ) -> Result<Self, EnrollmentClientError> {
        let unreachable = |source: io::Error| {
            let address = address.clone();
            match alert(&source) {
                Some(AlertDescription::NoApplicationProtocol) => {
                    EnrollmentClientError::OtherPort { address }
                }
                _ => EnrollmentClientError::Unreachable { address, source },
            }
        };
        let untrusted =
            |source| EnrollmentClientError::Untrusted { address: address.clone(), source };
        let host = address.host.as_str();
        let tcp = match peer {
            Some(peer) => TcpStream::connect(peer).await,
            None => TcpStream::connect((host, address.port)).await,
        };
        let tcp = tcp.map_err(unreachable)?;
        tcp.set_nodelay(true).map_err(unreachable)?;
        // Only for SNI: the verifier compares the SPIFFE ID.
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| unreachable(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, tcp).await;
        let stream = stream.map_err(|error| match UntrustedServer::of(&error) {
            Some(reason) => untrusted(reason),
            None => unreachable(error),
        })?;
        let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let control_plane = leaf.and_then(spiffe_id);
        let control_plane = control_plane.ok_or_else(|| untrusted(UntrustedServer::NoIdentity))?;
        Ok(Self { address, stream, control_plane })
    }

    /// Where the server is. A name may lead to several, and each accepts only its own challenges.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.stream.get_ref().0.peer_addr().ok()
    }

    /// The SPIFFE ID of the verified control plane.
    pub(crate) fn control_plane(&self) -> &str {
        &self.control_plane
    }

    /// Sends the request and reads the response.
    pub(crate) async fn send<B: Serialize, A: DeserializeOwned>(
        self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<A, EnrollmentClientError> {
        let Self { address, stream, .. } = self;
        let invalid = |problem: String| EnrollmentClientError::InvalidResponse {
            address: address.clone(),
            problem,
        };
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|error| invalid(error.to_string()))?.unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, address.to_string())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::<Bytes>::from(body))
            .map_err(|error| invalid(error.to_string()))?;
        let exchange = async {
            let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
            let (mut sender, connection) = handshake.await?;
            let response = async move {
                let response = sender.send_request(request).await?;
                let status = response.status();
                let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await?;
                Ok::<_, Box<dyn Error + Send + Sync>>((status, body.to_bytes()))
            };
            // Either may end first; the response is read to its end.
            tokio::join!(response, connection).0
        };
        let (status, body) = exchange.await.map_err(|error| lost(address, error))?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| invalid(error.to_string()));
        }
        match serde_json::from_slice::<EnrollmentErrorBody>(&body) {
            Ok(EnrollmentErrorBody { error, code }) => {
                Err(EnrollmentClientError::Rejected { code, message: error })
            }
            Err(_) => Err(invalid(status.to_string())),
        }
    }
}

/// The error of a connection that ended early. In TLS 1.3 a server's alert about the client certificate arrives
/// only after the handshake.
fn lost(
    address: &ControlPlaneAddress,
    error: Box<dyn Error + Send + Sync>,
) -> EnrollmentClientError {
    let address = address.clone();
    match alert(&*error) {
        Some(
            alert @ (AlertDescription::CertificateExpired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied),
        ) => EnrollmentClientError::CertificateRefused { address, alert },
        _ => EnrollmentClientError::Lost { address, source: error },
    }
}

/// The alert of TLS among the causes of `error`.
fn alert(error: &(dyn Error + 'static)) -> Option<AlertDescription> {
    let mut next = Some(error);
    while let Some(error) = next {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let tls = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(rustls::Error::AlertReceived(alert)) = tls {
            return Some(*alert);
        }
        next = error.source();
    }
    None
}
