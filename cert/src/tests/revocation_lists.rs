//! Certificate revocation lists: one for each issuer, with dates that follow from no clock.

use std::collections::BTreeSet;

use ironmesh_catalog::RevocationLists;
use jiff::SignedDuration;
use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

use super::*;
use crate::generate_proxy_key_and_csr;

fn serials(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|serial| (*serial).to_owned()).collect()
}

/// Of each list: its issuer, when its validity begins and ends, its number, and its serial numbers.
fn read(lists: &RevocationLists) -> Vec<(String, i64, i64, u64, BTreeSet<String>)> {
    let all = CertificateRevocationListDer::pem_slice_iter(lists.pem.as_bytes());
    let read = all.map(|der| {
        let der = der.unwrap();
        let (rest, list) = CertificateRevocationList::from_der(&der).unwrap();
        assert!(rest.is_empty());
        let serials =
            list.iter_revoked_certificates().map(|one| crate::profile::hex(one.raw_serial()));
        (
            list.issuer().to_string(),
            list.last_update().timestamp(),
            list.next_update().unwrap().timestamp(),
            list.crl_number().unwrap().iter_u64_digits().next().unwrap_or_default(),
            serials.collect(),
        )
    });
    read.collect()
}

fn subject(pem: &str) -> String {
    inspect::parse(&leaf(pem)).unwrap().subject().to_string()
}

/// The serial number of a new service certificate.
fn issued(authority: &Authority) -> String {
    let (_, csr) = generate_proxy_key_and_csr().unwrap();
    let account = "shop/till".parse().unwrap();
    authority.issue_workload_certificate(&csr, proxy(), &account, DAY, now()).unwrap().serial
}

#[test]
fn each_issuer_of_unexpired_leaves_has_one_list() {
    let store = MemoryStore::default();
    let years = |n: i64| SignedDuration::from_hours(n * 365 * 24);
    let start = now();
    let mut authority = Authority::open(&store, &trust_domain(), start).unwrap();
    let mut issuers = vec![subject(authority.intermediate())];
    let revoked = serials(&[&issued(&authority)]);
    let mut lists = authority.revocation_lists(&revoked, None).unwrap();
    let only = |lists: &RevocationLists| {
        read(lists).into_iter().map(|(issuer, .., serials)| (issuer, serials)).collect::<Vec<_>>()
    };
    assert_eq!(only(&lists), [(issuers[0].clone(), revoked.clone())]);

    // A new intermediate: leaves of both may be valid, and the lists change although the serial numbers do not.
    for (after, count) in [(4, 2), (8, 2)] {
        assert!(authority.renew_intermediate(&store, start + years(after)).unwrap());
        issuers.insert(0, subject(authority.intermediate()));
        issuers.truncate(count);
        let number = lists.number;
        lists = authority.revocation_lists(&revoked, Some(&lists)).unwrap();
        assert_eq!(lists.number, number + 1);
        let expected: Vec<_> = issuers.iter().map(|one| (one.clone(), revoked.clone())).collect();
        assert_eq!(only(&lists), expected, "after {after} years");
    }
    // After a restart, the same authority has the same lists.
    let reopened = Authority::open(&store, &trust_domain(), start + years(8)).unwrap();
    assert_eq!(reopened.revocation_lists(&revoked, Some(&lists)).unwrap(), lists);
}

#[test]
fn changed_serials_or_issuers_sign_a_newer_list() {
    let authority = authority();
    let (one, two) = (issued(&authority), issued(&authority));
    let first = authority.revocation_lists(&serials(&[&one]), None).unwrap();
    assert_eq!(authority.revocation_lists(&serials(&[&one]), Some(&first)).unwrap(), first);
    let mut last = first;
    for revoked in [serials(&[&one, &two]), serials(&[&two]), serials(&[])] {
        let next = authority.revocation_lists(&revoked, Some(&last)).unwrap();
        let ([(_, before, _, number, _)], [(_, begins, ends, next_number, listed)]) =
            (&read(&last)[..], &read(&next)[..])
        else {
            panic!("{next:?}");
        };
        assert_eq!((begins - before, next_number - number), (1, 1));
        assert_eq!(*listed, revoked);
        // No clock is so wrong that a peer finds them from the future, or too old.
        let (year_2020, year) = (1_577_836_800, 365 * 86_400);
        assert!((year_2020..year_2020 + 3600).contains(begins), "{begins}");
        assert!(*ends > now().as_second() + 20 * year, "{ends}");
        last = next;
    }
}

#[test]
fn list_is_signed_by_its_issuer_and_names_its_key() {
    let authority = authority();
    let lists = authority.revocation_lists(&serials(&[&issued(&authority)]), None).unwrap();
    let der = CertificateRevocationListDer::from_pem_slice(lists.pem.as_bytes()).unwrap();
    let (_, list) = CertificateRevocationList::from_der(&der).unwrap();
    let intermediate = leaf(authority.intermediate());
    let intermediate = inspect::parse(&intermediate).unwrap();
    list.verify_signature(intermediate.public_key()).unwrap();
    let text = "no serial number";
    assert!(authority.revocation_lists(&serials(&[text]), None).is_err());
}
