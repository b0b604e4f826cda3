use rustls::client::danger::ServerCertVerifier as _;
use rustls::{
    ClientConfig, ClientConnection, Error, HandshakeKind, ProtocolVersion, ServerConfig,
    ServerConnection, SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{PrivateKeyDer, ServerName, UnixTime};

use super::*;
use crate::tls::{self, TlsError, provider, server_config};
use crate::{SpiffeServerVerifier, generate_proxy_key_and_csr, peer};

fn server(authority: &Authority) -> Arc<ServerConfig> {
    let own = authority.issue_control_plane_certificate(&ServerNames::default(), now()).unwrap();
    server_config(&own, &authority.trust_bundle()).unwrap()
}

fn client(
    authority: &Authority,
    versions: &[&'static SupportedProtocolVersion],
    own: Option<(&str, &str)>,
) -> Arc<ClientConfig> {
    let roots = tls::roots(&authority.trust_bundle()).unwrap();
    let verifier = SpiffeServerVerifier::pinned(roots, trust_domain().control_plane().0);
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some((pem, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain(pem), key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// A handshake without sockets: the server's side of it, or the server's error.
fn handshake(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
) -> Result<(ServerConnection, ClientConnection), Error> {
    let name = ServerName::try_from("control-plane.example").unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
    while client.is_handshaking() || server.is_handshaking() || client.wants_write() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        let mut read = wire.as_slice();
        while !read.is_empty() {
            server.read_tls(&mut read).unwrap();
            server.process_new_packets()?;
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut read = wire.as_slice();
        while !read.is_empty() {
            client.read_tls(&mut read).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    Ok((server, client))
}

const TLS13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

#[test]
fn proxy_with_valid_certificate_connects_and_is_identified() {
    let authority = authority();
    let (key, csr) = generate_proxy_key_and_csr().unwrap();
    let chain = proxy_certificate(&authority, &csr).chain;
    let config = client(&authority, rustls::DEFAULT_VERSIONS, Some((&chain, key.expose())));
    let server_config = server(&authority);
    for _ in 0..2 {
        let (server, client) = handshake(&server_config, &config).unwrap();
        assert_eq!(server.protocol_version(), Some(ProtocolVersion::TLSv1_3));
        assert_eq!(server.alpn_protocol(), Some(&b"h2"[..]));
        let identity = peer::proxy_identity(&server.peer_certificates().unwrap()[0]).unwrap();
        assert_eq!(identity.proxy, proxy());
        // Never resumed: the client's chain is checked each time.
        assert_eq!(server.handshake_kind(), Some(HandshakeKind::Full));
        assert_eq!(client.tls13_tickets_received(), 0);
    }
}

#[test]
fn connection_without_a_client_certificate_is_rejected() {
    let authority = authority();
    let error = handshake(&server(&authority), &client(&authority, TLS13, None)).unwrap_err();
    assert_eq!(error, Error::NoCertificatesPresented);
}

/// A4.
#[test]
fn proxy_of_a_foreign_mesh_is_rejected() {
    let (authority, other) = (authority(), authority());
    let (key, csr) = generate_proxy_key_and_csr().unwrap();
    let chain = proxy_certificate(&other, &csr).chain;
    let config = client(&authority, TLS13, Some((&chain, key.expose())));
    let error = handshake(&server(&authority), &config).unwrap_err();
    assert!(matches!(error, Error::InvalidCertificate(_)), "{error}");
}

/// A2.
#[test]
fn expired_proxy_certificate_is_rejected() {
    let authority = authority();
    let (key, csr) = generate_proxy_key_and_csr().unwrap();
    let past = now() - jiff::SignedDuration::from_hours(2);
    let hour = DAY / 24;
    let certificate =
        authority.issue_proxy_certificate(&csr, proxy(), &services(), hour, past).unwrap();
    let config = client(&authority, TLS13, Some((&certificate.chain, key.expose())));
    let error = handshake(&server(&authority), &config).unwrap_err();
    assert!(matches!(error, Error::InvalidCertificate(_)), "{error}");
}

/// A3.
#[test]
fn not_yet_valid_proxy_certificate_is_rejected() {
    let future = now() + jiff::SignedDuration::from_hours(2);
    let store = authority::with_intermediate_from(future);
    let mut authority = Authority::open(&store, &trust_domain(), future).unwrap();
    let (key, csr) = generate_proxy_key_and_csr().unwrap();
    let certificate =
        authority.issue_proxy_certificate(&csr, proxy(), &services(), DAY, future).unwrap();
    assert!(authority.renew_intermediate(&store, now()).unwrap());
    let config = client(&authority, TLS13, Some((&certificate.chain, key.expose())));
    let error = handshake(&server(&authority), &config).unwrap_err();
    assert!(matches!(error, Error::InvalidCertificate(_)), "{error}");
}

#[test]
fn control_plane_certificate_is_rejected_as_a_client() {
    let authority = authority();
    let own = authority.issue_control_plane_certificate(&ServerNames::default(), now()).unwrap();
    let config = client(&authority, TLS13, Some((&own.chain, own.key.expose())));
    let error = handshake(&server(&authority), &config).unwrap_err();
    assert!(matches!(error, Error::InvalidCertificate(_)), "{error}");
}

#[test]
fn tls_1_2_is_rejected() {
    let authority = authority();
    let (key, csr) = generate_proxy_key_and_csr().unwrap();
    let chain = proxy_certificate(&authority, &csr).chain;
    let tls12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
    let config = client(&authority, tls12, Some((&chain, key.expose())));
    let error = handshake(&server(&authority), &config).unwrap_err();
    assert!(matches!(error, Error::PeerIncompatible(_)), "{error}");
}

#[test]
fn server_is_verified_by_its_chain_and_its_spiffe_id() {
    let (authority, other) = (authority(), authority());
    let control_plane = |authority: &Authority| {
        let names = ServerNames::default();
        chain(&authority.issue_control_plane_certificate(&names, now()).unwrap().chain)
    };
    let account = "shop/bookstore".parse().unwrap();
    let service = authority.issue_service_certificate(&account, DAY, now()).unwrap();
    let verify = |verifier: &SpiffeServerVerifier, chain: &[CertificateDer<'_>]| {
        let name = ServerName::try_from("any.example").unwrap();
        let [leaf, intermediates @ ..] = chain else { panic!("no certificate") };
        let verified =
            verifier.verify_server_cert(leaf, intermediates, &name, &[], UnixTime::now());
        verified.map(|_| ()).map_err(|error| error.to_string())
    };
    let roots = tls::roots(&authority.trust_bundle()).unwrap();
    let any = SpiffeServerVerifier::any(roots.clone());
    let pinned = SpiffeServerVerifier::pinned(roots, trust_domain().control_plane().0);
    verify(&pinned, &control_plane(&authority)).unwrap();
    verify(&any, &control_plane(&authority)).unwrap();
    verify(&any, &chain(&service.chain)).unwrap();
    let error = verify(&pinned, &chain(&service.chain)).unwrap_err();
    assert!(error.contains("/ns/shop/sa/bookstore"), "{error}");
    for verifier in [&any, &pinned] {
        let error = verify(verifier, &control_plane(&other)).unwrap_err();
        assert!(error.contains("UnknownIssuer"), "{error}");
    }
}

#[test]
fn invalid_certificate_key_or_roots_give_no_tls_config() {
    let authority = authority();
    let own = authority.issue_control_plane_certificate(&ServerNames::default(), now()).unwrap();
    let none = TrustBundle { roots: String::new() };
    assert!(matches!(server_config(&own, &none), Err(TlsError::Roots(_))));
    let mut keyless = own.clone();
    keyless.key = ironmesh_catalog::Secret::new(String::new());
    let error = server_config(&keyless, &authority.trust_bundle()).unwrap_err();
    assert!(matches!(error, TlsError::Certificate(_)), "{error}");
    let mut mixed = own;
    mixed.key =
        authority.issue_control_plane_certificate(&ServerNames::default(), now()).unwrap().key;
    let error = server_config(&mixed, &authority.trust_bundle()).unwrap_err();
    assert!(matches!(error, TlsError::Configuration(_)), "{error}");
}
