//! A control plane on the network, and the connection to it.

use std::fmt;
use std::io;
use std::sync::Arc;

use ironmesh_catalog::Secret;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Control planes of one mesh on the network, and the credential of an operator.
#[derive(Clone)]
pub struct RemoteServer {
    /// The addresses, each with host and port, at least one. The first that accepts a connection is used: each control
    /// plane of a mesh answers the same.
    pub addresses: Vec<(String, u16)>,
    /// TLS, with the verification of the server, and the operator's certificate if it is the credential.
    pub tls: Arc<ClientConfig>,
    /// The token, if it is the credential.
    pub token: Option<Secret>,
}

impl fmt::Debug for RemoteServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteServer({self})")
    }
}

impl fmt::Display for RemoteServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<_> = self.addresses.iter().map(authority).collect();
        f.write_str(&addresses.join(", "))
    }
}

impl RemoteServer {
    /// Connects to the first address that accepts. Returns the `Host` of its requests, too.
    pub(super) async fn connect(&self) -> io::Result<(TlsStream<TcpStream>, String)> {
        let mut failed = io::Error::new(io::ErrorKind::InvalidInput, "no address");
        for address in &self.addresses {
            match self.connect_to(address).await {
                Ok(stream) => return Ok((stream, authority(address))),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    async fn connect_to(&self, (host, port): &(String, u16)) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        // The verifier compares the SPIFFE ID; the name only has to be one.
        let name = ServerName::try_from(host.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await
    }
}

/// `host:port`, an IPv6 address in brackets.
fn authority((host, port): &(String, u16)) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
