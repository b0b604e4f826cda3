use jiff::SignedDuration;

use super::*;
use crate::profile::{self, Purpose};
use crate::validity::Validity;
use crate::{AuthorityError, ClockReading};

fn years(n: i64) -> SignedDuration {
    SignedDuration::from_hours(n * 365 * 24)
}

#[test]
fn authority_is_unchanged_after_a_restart() {
    let store = MemoryStore::default();
    let first = Authority::open(&store, &trust_domain(), now()).unwrap();
    let kept = store.kept().authority.clone().unwrap();
    let second = Authority::open(&store, &trust_domain(), now()).unwrap();
    assert_eq!(first.trust_bundle(), second.trust_bundle());
    assert_eq!(first.intermediate(), second.intermediate());
    assert_eq!(store.kept().authority.as_ref(), Some(&kept));
    assert!(!format!("{first:?}").contains("PRIVATE"));
}

#[test]
fn two_control_planes_sign_with_one_intermediate() {
    let store = MemoryStore::default();
    let mut one = Authority::open(&store, &trust_domain(), now()).unwrap();
    let mut other = Authority::open(&store, &trust_domain(), now()).unwrap();
    assert!(!other.follow(&store, now()).unwrap());
    let due = one.intermediate_renew_at();
    assert!(one.renew_intermediate(&store, due).unwrap());
    // The other one is outrun, and uses what is stored.
    assert!(other.renew_intermediate(&store, due).unwrap());
    assert_eq!(one.intermediate(), other.intermediate());
    assert!(!one.follow(&store, due).unwrap());
    assert!(!other.renew_intermediate(&store, due).unwrap());
}

#[test]
fn root_and_intermediate_have_the_required_extensions() {
    let authority = authority();
    let pems = [authority.trust_bundle().roots, authority.intermediate().to_owned()];
    let ders = pems.each_ref().map(|pem| leaf(pem));
    let [root, intermediate] = ders.each_ref().map(|der| inspect::parse(der).unwrap());
    for (certificate, path_length) in [(&root, None), (&intermediate, Some(0))] {
        let constraints = certificate.basic_constraints().unwrap().unwrap();
        assert!(constraints.critical && constraints.value.ca);
        assert_eq!(constraints.value.path_len_constraint, path_length);
        let usage = certificate.key_usage().unwrap().unwrap();
        assert!(usage.critical && usage.value.key_cert_sign() && usage.value.crl_sign());
        assert!(!usage.value.digital_signature());
        assert_eq!(certificate.raw_serial().len(), 16);
        assert_eq!(inspect::uri_names(certificate).unwrap(), ["spiffe://mesh.internal"]);
        assert!(certificate.validity().not_before.timestamp() <= now().as_second() - 290);
    }
    assert_eq!(intermediate.issuer(), root.subject());
    assert_ne!(intermediate.serial, root.serial);
    assert!(common_name(&ders[0]).starts_with("ironmesh root "));
    assert!(common_name(&ders[1]).starts_with("ironmesh intermediate "));
    let years_of = |c: &x509_parser::certificate::X509Certificate<'_>| {
        (c.validity().not_after.timestamp() - now().as_second() + 60) / (365 * 86_400)
    };
    assert_eq!((years_of(&root), years_of(&intermediate)), (10, 5));
    intermediate.verify_signature(Some(root.public_key())).unwrap();
}

#[test]
fn facts_follow_from_the_certificates() {
    let store = MemoryStore::default();
    let start = now();
    let mut authority = Authority::open(&store, &trust_domain(), start).unwrap();
    let pem = authority.trust_bundle().roots;
    let der = leaf(&pem);
    let certificate = inspect::parse(&der).unwrap();
    let root = authority.root_facts();
    assert_eq!(root.serial, profile::hex(certificate.raw_serial()));
    assert_eq!((&*root.subject, root.renew_at), ("spiffe://mesh.internal", None));
    assert_eq!(root.name, common_name(&der));
    let issued_at = Timestamp::from_second(start.as_second()).unwrap();
    assert_eq!(root.issued_at, Some(issued_at));
    let intermediate = authority.intermediate_facts();
    assert_eq!(intermediate.issued_at, Some(issued_at));
    assert_eq!(intermediate.renew_at, Some(authority.intermediate_renew_at()));
    // A later intermediate ends with the root, so that nothing renews it.
    assert!(authority.renew_intermediate(&store, start + years(6)).unwrap());
    let last = authority.intermediate_facts();
    assert_eq!(last.not_after, authority.root_facts().not_after);
    assert_eq!((last.issued_at, last.renew_at), (None, None));
}

#[test]
fn intermediate_is_renewed_under_same_root_at_a_third_left() {
    let store = MemoryStore::default();
    let mut authority = Authority::open(&store, &trust_domain(), now()).unwrap();
    let (bundle, intermediate) = (authority.trust_bundle(), authority.intermediate().to_owned());
    assert!(!authority.renew_intermediate(&store, now() + years(3)).unwrap());

    let later = now() + years(4);
    store.kept().rejects_authority = true;
    assert!(authority.renew_intermediate(&store, later).is_err());
    assert_eq!(authority.intermediate(), intermediate, "the one in use stays");
    store.kept().rejects_authority = false;
    assert!(authority.renew_intermediate(&store, later).unwrap());
    assert!(!authority.renew_intermediate(&store, later).unwrap());
    assert_ne!(authority.intermediate(), intermediate);
    assert_eq!(authority.trust_bundle(), bundle);

    let reopened = Authority::open(&store, &trust_domain(), later).unwrap();
    assert_eq!(reopened.intermediate(), authority.intermediate());
    // Opening late does it as well, and never beyond the end of the root.
    let reopened = Authority::open(&store, &trust_domain(), later + years(4)).unwrap();
    assert_ne!(reopened.intermediate(), authority.intermediate());
    assert_eq!(reopened.span().ends, inspect::lifetime_of_pem(&bundle.roots).unwrap().1);
    let error = Authority::open(&store, &trust_domain(), later + years(7)).unwrap_err();
    assert!(matches!(error, AuthorityError::Expired { .. }), "{error}");
}

#[test]
fn authority_that_cannot_be_stored_is_not_used() {
    let store = MemoryStore::default();
    store.kept().rejects_authority = true;
    let error = Authority::open(&store, &trust_domain(), now()).unwrap_err();
    assert!(matches!(error, AuthorityError::Store(_)), "{error}");
}

#[test]
fn foreign_or_inconsistent_authority_is_rejected() {
    let (store, other) = (MemoryStore::default(), MemoryStore::default());
    Authority::open(&store, &trust_domain(), now()).unwrap();
    Authority::open(&other, &trust_domain(), now()).unwrap();
    let name = "other.example".parse().unwrap();
    let error = Authority::open(&store, &name, now()).unwrap_err();
    assert!(matches!(error, AuthorityError::OtherTrustDomain { .. }), "{error}");
    assert!(error.to_string().contains("mesh.internal"), "{error}");

    let json = |store: &MemoryStore| -> serde_json::Value {
        serde_json::from_slice(store.kept().authority.as_ref().unwrap()).unwrap()
    };
    for part in ["root_key", "root_certificate", "intermediate_key", "intermediate_certificate"] {
        let mut mixed = json(&store);
        mixed[part] = json(&other)[part].clone();
        let broken = MemoryStore::default();
        broken.kept().authority = Some(mixed.to_string().into_bytes());
        let error = Authority::open(&broken, &trust_domain(), now()).unwrap_err();
        assert!(matches!(error, AuthorityError::Damaged(_)), "{part}: {error}");
    }
    store.kept().authority = Some(b"{}".to_vec());
    let error = Authority::open(&store, &trust_domain(), now()).unwrap_err();
    assert!(matches!(error, AuthorityError::Damaged(_)), "{error}");
}

#[test]
fn certificates_from_a_fast_clock_are_valid_for_right_clocks() {
    let (store, ahead) = (MemoryStore::default(), now() + SignedDuration::from_hours(72));
    let authority = Authority::open(&store, &trust_domain(), ahead).unwrap();
    for pem in [&authority.trust_bundle().roots, authority.intermediate()] {
        assert!(inspect::lifetime_of_pem(pem).unwrap().0 <= now());
    }
    let own = authority.issue_control_plane_certificate(&ServerNames::default(), ahead).unwrap();
    assert!(inspect::lifetime_of_pem(&own.chain).unwrap().0 <= now());
}

/// An authority as earlier versions made them: its intermediate begins when it was issued.
pub(super) fn with_intermediate_from(begins: Timestamp) -> MemoryStore {
    let store = MemoryStore::default();
    Authority::open(&store, &trust_domain(), now()).unwrap();
    let kept = store.kept().authority.clone().unwrap();
    let mut json: serde_json::Value = serde_json::from_slice(&kept).unwrap();
    let root_key = rcgen::KeyPair::from_pem(json["root_key"].as_str().unwrap()).unwrap();
    let pem = json["root_certificate"].as_str().unwrap();
    let root = rcgen::Issuer::from_ca_cert_pem(pem, root_key).unwrap();
    let validity = Validity { issued_at: begins, not_before: begins, not_after: begins + years(5) };
    let (key, uri) = (profile::new_key().unwrap(), profile::trust_domain_uri(&trust_domain()));
    let (purpose, names) = (Purpose::Intermediate, ServerNames::default());
    let (content, _) = profile::content(purpose, "old", &uri, &names, &validity).unwrap();
    json["intermediate_certificate"] = content.signed_by(&key, &root).unwrap().pem().into();
    json["intermediate_key"] = key.serialize_pem().into();
    store.kept().authority = Some(json.to_string().into_bytes());
    store
}

#[test]
fn not_yet_valid_intermediate_is_replaced() {
    let ahead = now() + SignedDuration::from_hours(72);
    let store = with_intermediate_from(ahead);
    let mut authority = Authority::open(&store, &trust_domain(), ahead).unwrap();
    let old = authority.intermediate().to_owned();
    let own = authority.issue_control_plane_certificate(&ServerNames::default(), ahead).unwrap();
    // The clock is set right.
    assert!(authority.renew_intermediate(&store, now()).unwrap());
    assert_ne!(authority.intermediate(), old);
    assert!(authority.begins() <= now());
    assert!(!authority.renew_intermediate(&store, now()).unwrap());
    // What the old one signed is replaced at once: peers reject its chain.
    let clock = ClockReading { now: now(), steady_for: Duration::ZERO };
    assert!(own.renewal.is_due(&authority, clock), "{:?}", own.renewal);
}

#[test]
fn control_plane_certificate_is_due_outside_of_its_window() {
    let authority = authority();
    let own = authority.issue_control_plane_certificate(&ServerNames::default(), now()).unwrap();
    let is_due = |hours: i64, steady: u64| {
        let now = now() + SignedDuration::from_hours(hours);
        let steady_for = Duration::from_secs(steady * 3600);
        own.renewal.is_due(&authority, ClockReading { now, steady_for })
    };
    assert!(!is_due(0, 100) && !is_due(24 * 19, 0) && is_due(24 * 21, 0));
    assert!(!is_due(-24, 7), "the clock may be wrong now, and peers accept the certificate");
    assert!(is_due(-24, 8), "it was ahead");
}
