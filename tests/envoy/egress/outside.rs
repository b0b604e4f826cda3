//! Hosts outside the mesh: TLS servers, and clients that reach them by CONNECT.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ironmesh_tests::TcpConnection;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

const PATIENCE: Duration = Duration::from_secs(30);

/// A TLS server with its own certificate that greets each client and then echoes.
pub(crate) struct TlsServer {
    certificate: CertificateDer<'static>,
    task: JoinHandle<()>,
}

impl TlsServer {
    pub(crate) async fn start(names: &[&str], address: SocketAddr) -> Self {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let own = rcgen::generate_simple_self_signed(names).unwrap();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let certificate = own.cert.der().clone();
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(address).await.unwrap();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut stream = acceptor.accept(stream).await?;
                    stream.write_all(b"hello\n").await?;
                    let (mut source, mut sink) = tokio::io::split(stream);
                    tokio::io::copy(&mut source, &mut sink).await
                });
            }
        });
        Self { certificate, task }
    }

    /// The greeting to a client on `stream` that verifies the server name `name`.
    pub(crate) async fn greeting(&self, stream: TcpStream, name: &str) -> anyhow::Result<String> {
        self.connection(stream, name).await?.line().await
    }

    /// A connection of a client on `stream` that verifies the server name `name`.
    pub(crate) async fn connection(
        &self,
        stream: TcpStream,
        name: &str,
    ) -> anyhow::Result<TcpConnection<TlsStream<TcpStream>>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned())?;
        let shaken = TlsConnector::from(Arc::new(config)).connect(name, stream);
        let shaken = timeout(PATIENCE, shaken).await.context("no handshake, and no end either")?;
        Ok(TcpConnection::over(shaken?))
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Sends CONNECT for `authority` to a proxy. Returns the status, and the stream or the answer's
/// text.
pub(crate) async fn connect(
    proxy: SocketAddr,
    authority: &str,
) -> anyhow::Result<(u16, TcpStream, String)> {
    let requested = async {
        let mut stream = TcpStream::connect(proxy).await?;
        let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        // Byte by byte, so that no byte after the head is consumed.
        let head = until_empty_line(&mut stream).await?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        let length = head
            .to_lowercase()
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
        let mut body = vec![0; if status == 200 { 0 } else { length.unwrap_or(0) }];
        stream.read_exact(&mut body).await?;
        anyhow::Ok((status, stream, String::from_utf8(body)?))
    };
    timeout(PATIENCE, requested).await.context("no answer to CONNECT")?
}

async fn until_empty_line(stream: &mut TcpStream) -> anyhow::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8(head)?)
}
