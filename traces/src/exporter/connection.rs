//! The connection to the collector: TCP, with TLS if the address begins with `https`.
//!
//! tonic's own TLS would choose the cryptography by the features of the whole program: TLS here has this project's
//! provider, and the certificate authorities of the system.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

use crate::ExporterError;

/// When a connection is probed, and how long an answer may take.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// A channel to the collector at this address, which connects when it is used.
pub(super) fn channel(endpoint: &str) -> Result<Channel, ExporterError> {
    let invalid = || ExporterError::InvalidEndpoint(endpoint.to_owned());
    let origin: Uri = endpoint.parse().map_err(|_| invalid())?;
    let authority = origin.authority().ok_or_else(invalid)?;
    let port = authority.port_u16().ok_or_else(invalid)?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let tls = match origin.scheme_str() {
        Some("http") => None,
        Some("https") => Some((tls()?, ServerName::try_from(host.clone()).map_err(|_| invalid())?)),
        _ => return Err(invalid()),
    };
    // For tonic the connection is plain: the connector encrypts it.
    let plain = Endpoint::from_shared(format!("http://{authority}")).map_err(|_| invalid())?;
    // A connection that is lost without a sign would else be used until TCP gives up.
    let (interval, patience) = KEEP_ALIVE;
    let plain = plain
        .http2_keep_alive_interval(interval)
        .keep_alive_timeout(patience)
        .keep_alive_while_idle(true);
    let connector = Connector(Arc::new(Target { host, port, tls }));
    Ok(plain.origin(origin).connect_with_connector_lazy(connector))
}

fn tls() -> Result<TlsConnector, ExporterError> {
    let failed = |error: rustls::Error| ExporterError::Tls(error.to_string());
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_platform_verifier()
        .map_err(failed)?
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

struct Target {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// Opens connections to one collector.
#[derive(Clone)]
struct Connector(Arc<Target>);

trait Transport: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Transport for T {}

type Connection = TokioIo<Pin<Box<dyn Transport>>>;

impl Service<Uri> for Connector {
    type Response = Connection;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Connection>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let target = Arc::clone(&self.0);
        Box::pin(async move {
            let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
            stream.set_nodelay(true)?;
            let transport: Pin<Box<dyn Transport>> = match &target.tls {
                None => Box::pin(stream),
                Some((tls, name)) => Box::pin(tls.connect(name.clone(), stream).await?),
            };
            Ok(TokioIo::new(transport))
        })
    }
}
