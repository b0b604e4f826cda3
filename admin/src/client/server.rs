//! A control plane on the network, and the connection to it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ironmesh_catalog::Secret;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Control planes of one mesh on the network, and the credential of an operator.
#[derive(Clone)]
pub struct RemoteServer {
    addresses: Vec<(String, u16)>,
    tls: Arc<ClientConfig>,
    pub(super) token: Option<Secret>,
    /// The place of the address that accepted the last connection: the probe and the request go to the same control plane.
    last: Arc<AtomicUsize>,
}

/// The time in which one of all addresses must accept a connection: less than that of the probe, which begins with it.
const CONNECT_LIMIT: Duration = Duration::from_millis(2_500);

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
    /// The control planes at `addresses`, each with host and port, at least one. The first that accepts a connection is
    /// used: each control plane of a mesh answers the same. `tls` verifies the server, and has the operator's certificate
    /// if that is the credential; otherwise `token` is.
    pub fn new(
        addresses: Vec<(String, u16)>,
        tls: Arc<ClientConfig>,
        token: Option<Secret>,
    ) -> Self {
        Self { addresses, tls, token, last: Arc::default() }
    }

    /// The addresses.
    pub fn addresses(&self) -> &[(String, u16)] {
        &self.addresses
    }

    /// Connects to the first address that accepts, beginning with the last one that did. Returns the `Host` of its
    /// requests, too.
    pub(super) async fn connect(&self) -> io::Result<(TlsStream<TcpStream>, String)> {
        let mut failed = io::Error::new(io::ErrorKind::InvalidInput, "no address");
        // One that is switched off must not use up the time of the others.
        let limit = CONNECT_LIMIT / u32::try_from(self.addresses.len()).unwrap_or(u32::MAX).max(1);
        let last = self.last.load(Ordering::Relaxed);
        let places = (0..self.addresses.len()).map(|step| (last + step) % self.addresses.len());
        for (place, address) in places.filter_map(|at| Some((at, self.addresses.get(at)?))) {
            match timeout(limit, self.connect_to(address)).await {
                Ok(Ok(stream)) => {
                    self.last.store(place, Ordering::Relaxed);
                    return Ok((stream, authority(address)));
                }
                Ok(Err(error)) => failed = error,
                Err(_) => failed = io::Error::from(io::ErrorKind::TimedOut),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::net::TcpListener;

    use super::*;

    fn tls() -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
        let config = config.with_root_certificates(rustls::RootCertStore::empty());
        Arc::new(config.with_no_client_auth())
    }

    /// A control plane that hangs accepts connections and does nothing more.
    #[tokio::test]
    async fn address_that_hangs_leaves_time_for_the_next() {
        let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closing = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [&hanging, &closing].map(|one| {
            let address = one.local_addr().unwrap();
            (address.ip().to_string(), address.port())
        });
        let server = RemoteServer::new(addresses.to_vec(), tls(), None);
        assert!(format!("{server}").contains(", "));
        // The second is tried, and closes the connection.
        let close = async { drop(closing.accept().await.unwrap()) };
        let (connected, ()) = tokio::join!(server.connect(), close);
        assert_ne!(connected.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
