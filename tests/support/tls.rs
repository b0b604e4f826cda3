//! TLS connections to mesh ports as a peer makes them, with a certificate that the test chooses.

use std::net::SocketAddr;
use std::sync::Arc;

use ironmesh_catalog::TrustBundle;
use ironmesh_cert::SpiffeServerVerifier;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client::dial;

/// Connects to `address` with mutual TLS, as the one whom `chain_pem` and `key_pem` name.
///
/// The server must have a certificate below `roots_pem` with a SPIFFE ID, whichever it is.
pub async fn connect_mesh(
    address: SocketAddr,
    sni: &str,
    alpn: &[&str],
    chain_pem: &str,
    key_pem: &str,
    roots_pem: &str,
) -> anyhow::Result<TlsStream<TcpStream>> {
    let stream = dial(address).await?;
    connect_over(stream, sni, alpn, Some((chain_pem, key_pem)), roots_pem).await
}

/// Starts TLS on an open connection; without a client certificate if `identity` is `None`.
pub async fn connect_over(
    stream: TcpStream,
    sni: &str,
    alpn: &[&str],
    identity: Option<(&str, &str)>,
    roots_pem: &str,
) -> anyhow::Result<TlsStream<TcpStream>> {
    let mut config = client_config(identity, roots_pem)?;
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(sni.to_owned())?;
    Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
}

/// The TLS of a client of the mesh: 1.3, with the chain and key of `identity` where there is one.
pub fn client_config(
    identity: Option<(&str, &str)>,
    roots_pem: &str,
) -> anyhow::Result<ClientConfig> {
    let roots = ironmesh_cert::tls::roots(&TrustBundle { roots: roots_pem.to_owned() })?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(SpiffeServerVerifier::any(roots)));
    Ok(match identity {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>();
            config.with_client_auth_cert(chain?, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?
        }
    })
}

/// A plain HTTP client that ignores proxies of the environment. It sets TLS explicitly, because it
/// would otherwise look for the process's default.
pub fn plain_http_client() -> reqwest::Client {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    reqwest::Client::builder().tls_backend_preconfigured(config).no_proxy().build().unwrap()
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
    use rustls::ServerConfig;
    use rustls::server::WebPkiClientVerifier;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    const SNI: &str = "14001.bookstore.default.mesh.internal";

    struct Authority {
        pem: String,
        issuer: Issuer<'static, KeyPair>,
    }

    impl Authority {
        fn new() -> Self {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            let pem = params.self_signed(&key).unwrap().pem();
            Self { pem, issuer: Issuer::new(params, key) }
        }

        /// A chain and a key with a SPIFFE ID and no host name.
        fn issue(&self, account: &str) -> (String, String) {
            let mut params = CertificateParams::default();
            let id = format!("spiffe://mesh.internal/ns/default/sa/{account}");
            params.subject_alt_names = vec![SanType::URI(id.try_into().unwrap())];
            let key = KeyPair::generate().unwrap();
            (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
        }

        /// Accepts one connection from a client of this authority.
        async fn serve_once(&self) -> SocketAddr {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
            let peers =
                WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
            let (chain, key) = self.issue("bookstore");
            let config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_client_cert_verifier(peers.build().unwrap())
                .with_single_cert(
                    vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
                )
                .unwrap();
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move {
                let (stream, _) = listener.accept().await.unwrap();
                TlsAcceptor::from(Arc::new(config)).accept(stream).await
            });
            address
        }
    }

    #[tokio::test]
    async fn peer_is_verified_by_chain_and_not_by_name() {
        let (ours, other) = (Authority::new(), Authority::new());
        let (chain, key) = ours.issue("bookbuyer");
        for (server, trusted) in [(&ours, true), (&other, false)] {
            let address = server.serve_once().await;
            let connection = connect_mesh(address, SNI, &[], &chain, &key, &ours.pem).await;
            assert_eq!(connection.is_ok(), trusted, "{connection:?}");
        }
    }
}
