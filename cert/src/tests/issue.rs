use std::collections::BTreeSet;

use ironmesh_catalog::{Secret, ServiceAccount};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls_pki_types::UnixTime;
use x509_parser::extensions::GeneralName;

use super::*;
use crate::{IssueError, RequestError, WorkloadLeaf, generate_proxy_key_and_csr};

fn account() -> ServiceAccount {
    "shop/bookstore".parse().unwrap()
}

/// Checks the fields that all leaves share, and returns the usages of a leaf.
fn check_leaf(pem: &str, authority: &Authority, uri: &str) -> (bool, bool) {
    check_leaf_with(pem, authority, uri, None)
}

/// The same of a leaf that may have a DNS name.
fn check_leaf_with(
    pem: &str,
    authority: &Authority,
    uri: &str,
    dns_name: Option<&str>,
) -> (bool, bool) {
    let chain = chain(pem);
    assert_eq!(chain.len(), 2, "leaf and intermediate");
    let [leaf, intermediate] = [&chain[0], &chain[1]].map(|der| inspect::parse(der).unwrap());
    assert_eq!(inspect::uri_names(&leaf).unwrap(), [uri]);
    let names = leaf.subject_alternative_name().unwrap().unwrap();
    let is_uri = |name: &&GeneralName<'_>| matches!(name, GeneralName::URI(_));
    let others: Vec<_> = names.value.general_names.iter().filter(|name| !is_uri(name)).collect();
    let dns_names: Vec<_> = dns_name.iter().map(|name| GeneralName::DNSName(name)).collect();
    assert_eq!(others, dns_names.iter().collect::<Vec<_>>(), "no other name");
    let constraints = leaf.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && !constraints.value.ca);
    let usage = leaf.key_usage().unwrap().unwrap();
    assert!(usage.critical);
    assert_eq!(usage.value.flags, 1, "digitalSignature alone");
    let extended = leaf.extended_key_usage().unwrap().unwrap().value;
    assert!(!extended.any && !extended.code_signing && extended.other.is_empty());
    assert_eq!(leaf.raw_serial().len(), 16);
    assert_eq!(key_identifier(&leaf, true), key_identifier(&intermediate, false));
    assert_eq!(leaf.subject().iter().count(), 1);
    assert_eq!(leaf.issuer(), intermediate.subject());

    let now = UnixTime::since_unix_epoch(Duration::from_secs(now().as_second().unsigned_abs()));
    let roots = roots(&authority.trust_bundle());
    let as_server = rustls::client::verify_server_cert_signed_by_trust_anchor(
        &rustls::server::ParsedCertificate::try_from(&chain[0]).unwrap(),
        &roots,
        &chain[1..],
        now,
        crate::tls::provider().signature_verification_algorithms.all,
    );
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(roots, crate::tls::provider());
    let as_client = verifier.build().unwrap().verify_client_cert(&chain[0], &chain[1..], now);
    assert_eq!(extended.server_auth, as_server.is_ok());
    assert_eq!(extended.client_auth, as_client.is_ok());
    (extended.server_auth, extended.client_auth)
}

fn key_identifier(
    certificate: &x509_parser::certificate::X509Certificate<'_>,
    of_authority: bool,
) -> Vec<u8> {
    use x509_parser::extensions::ParsedExtension as E;
    let found = certificate.extensions().iter().find_map(|e| match e.parsed_extension() {
        E::AuthorityKeyIdentifier(id) if of_authority => {
            Some(id.key_identifier.as_ref()?.0.to_vec())
        }
        E::SubjectKeyIdentifier(id) if !of_authority => Some(id.0.to_vec()),
        _ => None,
    });
    found.unwrap()
}

#[test]
fn each_certificate_kind_has_its_own_identity_and_usage() {
    let authority = authority();
    let service = authority.issue_service_certificate(&account(), DAY, now()).unwrap();
    let uri = "spiffe://mesh.internal/ns/shop/sa/bookstore";
    let dns_name = format!("{}.shared.mesh.internal", service.serial);
    assert_eq!(service.history.dns_name.as_ref(), Some(&dns_name));
    let uses = check_leaf_with(&service.chain, &authority, uri, Some(&dns_name));
    assert_eq!(uses, (true, true));
    assert_eq!(common_name(&leaf(&service.chain)), "bookstore");

    let (_, csr) = generate_proxy_key_and_csr().unwrap();
    let proxy = proxy_certificate(&authority, &csr);
    let uri = format!("spiffe://mesh.internal/proxy/{UUID}/ns/shop/svc/bookstore");
    assert_eq!(check_leaf(&proxy.chain, &authority, &uri), (false, true));
    assert_eq!(common_name(&leaf(&proxy.chain)), format!("{UUID}.bookstore.shop"));

    let own = authority.issue_control_plane_certificate(&ServerNames::default(), now()).unwrap();
    let uses = check_leaf(&own.chain, &authority, "spiffe://mesh.internal/control-plane");
    assert_eq!(uses, (true, false));
}

#[test]
fn workload_certificate_has_account_proxy_and_csr_key() {
    let authority = authority();
    let (key, csr) = generate_proxy_key_and_csr().unwrap();
    let now = now();
    let issue = || authority.issue_workload_certificate(&csr, proxy(), &account(), DAY, now);
    let workload = issue().unwrap();
    let uri = "spiffe://mesh.internal/ns/shop/sa/bookstore";
    let dns_name = format!("{UUID}.proxy.mesh.internal");
    let uses = check_leaf_with(&workload.chain, &authority, uri, Some(&dns_name));
    assert_eq!(uses, (true, true));
    let der = leaf(&workload.chain);
    assert_eq!(common_name(&der), "bookstore");
    let parsed = inspect::parse(&der).unwrap();
    assert_eq!(parsed.validity().not_after.timestamp(), workload.not_after.as_second());
    assert_eq!(parsed.raw_serial_as_string().replace(':', ""), workload.serial);
    let key = KeyPair::from_pem(key.expose()).unwrap();
    assert_eq!(parsed.public_key().subject_public_key.data.as_ref(), key.public_key_raw());
    let lifetimes = (0..20).map(|_| issue().unwrap().not_after.as_second() - now.as_second());
    let lifetimes: BTreeSet<_> = lifetimes.collect();
    assert!(lifetimes.len() > 1 && lifetimes.iter().all(|life| (77_760..=95_040).contains(life)));
}

#[test]
fn workload_certificate_is_verified_with_its_key_account_and_roots() {
    let authority = authority();
    let (key, csr) = generate_proxy_key_and_csr().unwrap();
    let issued =
        authority.issue_workload_certificate(&csr, proxy(), &account(), DAY, now()).unwrap();
    let verify = |key: &Secret, account: &ServiceAccount, authority: &Authority, hours: i64| {
        let at = now() + jiff::SignedDuration::from_hours(hours);
        let bundle = authority.trust_bundle();
        WorkloadLeaf::verify(&issued.chain, key, account, &trust_domain(), &bundle, at)
    };
    let leaf = verify(&key, &account(), &authority, 0).unwrap();
    assert_eq!((leaf.not_after, leaf.digest.len()), (issued.not_after, 64));
    let other_key = generate_proxy_key_and_csr().unwrap().0;
    verify(&other_key, &account(), &authority, 0).unwrap_err();
    verify(&key, &"shop/other".parse().unwrap(), &authority, 0).unwrap_err();
    verify(&key, &account(), &self::authority(), 0).unwrap_err();
    verify(&key, &account(), &authority, 48).unwrap_err();
    assert_eq!(WorkloadLeaf::read("no certificate"), None);
}

#[test]
fn workload_csr_names_are_ignored_and_other_key_kinds_rejected() {
    let authority = authority();
    let issue =
        |csr: &str| authority.issue_workload_certificate(csr, proxy(), &account(), DAY, now());
    let key = crate::profile::new_key().unwrap();
    let mut wish = CertificateParams::new(vec!["evil.example".to_owned()]).unwrap();
    wish.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let csr = wish.serialize_request(&key).unwrap().pem().unwrap();
    let uri = "spiffe://mesh.internal/ns/shop/sa/bookstore";
    let dns_name = format!("{UUID}.proxy.mesh.internal");
    let workload = issue(&csr).unwrap();
    check_leaf_with(&workload.chain, &authority, uri, Some(&dns_name));

    let other = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let csr = CertificateParams::default().serialize_request(&other).unwrap().pem().unwrap();
    let error = issue(&csr).unwrap_err();
    assert!(matches!(error, IssueError::Request(RequestError::OtherKey)), "{error}");
}

#[test]
fn certificate_metadata_matches_the_certificate() {
    let authority = authority();
    let service = authority.issue_service_certificate(&account(), DAY, now()).unwrap();
    let der = leaf(&service.chain);
    let parsed = inspect::parse(&der).unwrap();
    assert_eq!(parsed.validity().not_before.timestamp(), service.not_before.as_second());
    assert_eq!(parsed.validity().not_after.timestamp(), service.not_after.as_second());
    assert_eq!(parsed.raw_serial_as_string().replace(':', ""), service.serial);
    let (key, csr) = generate_proxy_key_and_csr().unwrap();
    let proxy = proxy_certificate(&authority, &csr);
    let der = leaf(&proxy.chain);
    let parsed = inspect::parse(&der).unwrap();
    assert_eq!(parsed.validity().not_after.timestamp(), proxy.not_after.as_second());
    let key = KeyPair::from_pem(key.expose()).unwrap();
    assert_eq!(parsed.public_key().subject_public_key.data.as_ref(), key.public_key_raw());
}

#[test]
fn service_certificate_lifetimes_vary_and_renew_at_two_thirds() {
    let authority = authority();
    let now = now();
    let mut lifetimes = BTreeSet::new();
    let mut serials = BTreeSet::new();
    for _ in 0..100 {
        let certificate = authority.issue_service_certificate(&account(), DAY, now).unwrap();
        let life = certificate.not_after.as_second() - now.as_second();
        assert!((77_760..=95_040).contains(&life), "{life}");
        let renew = certificate.renew_at.as_second() - now.as_second();
        assert_eq!(renew, life * 2 / 3);
        lifetimes.insert(life);
        serials.insert(certificate.serial);
    }
    // Certificates count in seconds, of which the range has 17,280: a few may be equal.
    assert!(lifetimes.len() > 90, "{}", lifetimes.len());
    assert!(lifetimes.last().unwrap() - lifetimes.first().unwrap() > 8_640);
    assert_eq!(serials.len(), 100);
}

#[test]
fn proxy_certificate_uses_only_the_key_of_its_csr() {
    let authority = authority();
    let key = crate::profile::new_key().unwrap();
    let mut wish = CertificateParams::new(vec!["evil.example".to_owned()]).unwrap();
    wish.subject_alt_names
        .push(SanType::URI("spiffe://mesh.internal/control-plane".try_into().unwrap()));
    wish.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    wish.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    wish.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    wish.custom_extensions =
        vec![CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99_999, 1], vec![5, 0])];
    let csr = wish.serialize_request(&key).unwrap().pem().unwrap();
    let proxy = proxy_certificate(&authority, &csr);
    let uri = format!("spiffe://mesh.internal/proxy/{UUID}/ns/shop/svc/bookstore");
    assert_eq!(check_leaf(&proxy.chain, &authority, &uri), (false, true));
    assert_eq!(common_name(&leaf(&proxy.chain)), format!("{UUID}.bookstore.shop"));
    let der = leaf(&proxy.chain);
    assert_eq!(inspect::parse(&der).unwrap().extensions().len(), 6);
}

#[test]
fn long_service_name_reduces_common_name_to_uuid() {
    let authority = authority();
    let (_, csr) = generate_proxy_key_and_csr().unwrap();
    // With the UUID and two dots, 26 characters are 64.
    for (name, fits) in [("x".repeat(22), true), ("x".repeat(23), false), ("x".repeat(63), false)] {
        let services = [format!("shop/{name}").parse().unwrap()];
        let certificate =
            authority.issue_proxy_certificate(&csr, proxy(), &services, DAY, now()).unwrap();
        let expected = if fits { format!("{UUID}.{name}.shop") } else { UUID.to_owned() };
        let der = leaf(&certificate.chain);
        assert_eq!(common_name(&der), expected);
        assert_eq!(crate::peer::proxy_identity(&der).unwrap().service, services[0]);
    }
}

#[test]
fn forged_or_malformed_csr_is_rejected() {
    let (_, csr) = generate_proxy_key_and_csr().unwrap();
    // The last line of base64 holds nothing but signature.
    let last = csr.trim_end().rfind('\n').and_then(|end| csr[..end].rfind('\n')).unwrap() + 1;
    let changed = if csr[last..].starts_with('A') { "B" } else { "A" };
    let mut forged = csr;
    forged.replace_range(last..=last, changed);
    let issue = |csr: &str| {
        let error = authority().issue_proxy_certificate(csr, proxy(), &services(), DAY, now());
        match error.unwrap_err() {
            IssueError::Request(error) => error,
            other => panic!("{other}"),
        }
    };
    assert!(matches!(issue(&forged), RequestError::Signature));
    assert!(matches!(issue("no PEM"), RequestError::Unreadable));
    assert!(matches!(issue(&"x".repeat(20_000)), RequestError::TooLong { .. }));
    let other = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let csr = CertificateParams::default().serialize_request(&other).unwrap().pem().unwrap();
    assert!(matches!(issue(&csr), RequestError::OtherKey));
}

#[test]
fn proxy_without_a_service_gets_no_certificate() {
    let (_, csr) = generate_proxy_key_and_csr().unwrap();
    let error = authority().issue_proxy_certificate(&csr, proxy(), &[], DAY, now()).unwrap_err();
    assert!(matches!(error, IssueError::NoService), "{error}");
}

#[test]
fn proxy_lifetime_fits_the_intermediate_before_its_renewal() {
    let authority = authority();
    let (_, csr) = generate_proxy_key_and_csr().unwrap();
    let late = authority.intermediate_renew_at();
    let certificate = authority
        .issue_proxy_certificate(&csr, proxy(), &services(), crate::PROXY_LIFETIME, late)
        .unwrap();
    assert_eq!(certificate.not_after.as_second() - late.as_second(), 365 * 86_400);
}

#[test]
fn control_plane_certificate_names_hosts_and_addresses() {
    let authority = authority();
    let names = ServerNames {
        hosts: ["cp.example".to_owned()].into(),
        addresses: ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()].into(),
    };
    let own = authority.issue_control_plane_certificate(&names, now()).unwrap();
    let der = leaf(&own.chain);
    let parsed = inspect::parse(&der).unwrap();
    assert_eq!(inspect::uri_names(&parsed).unwrap(), ["spiffe://mesh.internal/control-plane"]);
    let certificate = rustls::server::ParsedCertificate::try_from(&der).unwrap();
    for name in ["cp.example", "10.0.0.1", "fd00::1"] {
        let name = rustls_pki_types::ServerName::try_from(name).unwrap();
        rustls::client::verify_server_name(&certificate, &name).unwrap();
    }
    let other = rustls_pki_types::ServerName::try_from("10.0.0.2").unwrap();
    rustls::client::verify_server_name(&certificate, &other).unwrap_err();
}
