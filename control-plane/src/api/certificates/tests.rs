use ironmesh_catalog::{Domain, KeyHash, ProxyCredentials, Revocation};
use ironmesh_cert::{Authority, ServerNames};
use ironmesh_config_language::{Document, load_documents};
use jiff::SignedDuration;
use uuid::Uuid;

use super::*;

const POLICY: &str = r#"
[[service]]
name = "store"

[[service]]
name = "buyer"
"#;

const DAY: std::time::Duration = std::time::Duration::from_secs(86_400);

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn days(count: i64) -> Timestamp {
    hours(24 * count)
}

fn hours(count: i64) -> Timestamp {
    start() + SignedDuration::from_hours(count)
}

/// A mesh that starts on day 0, with a certificate of one day for the account of each service.
fn sources(records: Vec<JoinRecord>) -> CertificateSources {
    let trust_domain = TrustDomain::new(Domain::default());
    let authority = Authority::ephemeral(&trust_domain, start()).unwrap();
    let own = authority.issue_control_plane_certificate(&ServerNames::default(), start()).unwrap();
    let loaded = load_documents([Document::new("policy.toml", POLICY)]);
    let specification = loaded.specification.unwrap();
    let accounts = specification.services.values().map(|service| service.account.clone());
    let services = accounts.map(|account| {
        let certificate = authority.issue_service_certificate(&account, DAY, start()).unwrap();
        (account, Arc::new(certificate))
    });
    CertificateSources {
        root: authority.root_facts().clone(),
        intermediate: authority.intermediate_facts().clone(),
        control_plane: own.facts,
        records: records.into_iter().map(|record| (record.id, Arc::new(record))).collect(),
        services: services.collect(),
        specification,
        trust_domain,
        has_api: false,
    }
}

/// A claimed proxy of the store, with a certificate that was issued on day 0.
fn proxy(number: u8, end: Timestamp) -> JoinRecord {
    let current = IssuedCertificate {
        serial: format!("4{number}"),
        service: None,
        issued_at: start(),
        expires_at: end,
        first_used_at: Some(start()),
        chain: None,
    };
    let id = ProxyId(Uuid::from_u128(number.into()));
    let address = ([10, 0, 0, number], 15003).into();
    JoinRecord {
        name: Some(format!("store-{number}").parse().unwrap()),
        claimed_at: Some(start()),
        credentials: Some(ProxyCredentials::new(KeyHash("k".to_owned()), current)),
        ..JoinRecord::new(id, vec!["store".parse().unwrap()], address, start(), end)
    }
}

/// The certificates at a time, of which no proxy is connected.
fn list(records: Vec<JoinRecord>, now: Timestamp) -> Vec<CertificateView> {
    sources(records).list(now, |_| false).certificates
}

/// The states and problems of the proxy certificates at a time.
fn proxies(records: Vec<JoinRecord>, now: Timestamp) -> Vec<(String, Option<CertificateProblem>)> {
    let all = list(records, now).into_iter();
    let proxies = all.filter(|one| one.kind == CertificateKind::Proxy);
    proxies.map(|one| (one.state, one.problem)).collect()
}

#[test]
fn list_has_all_kinds_with_their_uses_in_order() {
    let records = vec![proxy(10, days(30)), proxy(2, days(30))];
    let list = sources(records).list(hours(1), |id| id.0.as_u128() == 2).certificates;
    let all: Vec<_> = list.iter().map(|one| (one.kind.as_str(), &*one.name, &*one.state)).collect();
    let [(_, root, _), (_, intermediate, _), rest @ ..] = &all[..] else { panic!("{all:?}") };
    assert!(root.starts_with("ironmesh root "), "{root}");
    assert!(intermediate.starts_with("ironmesh intermediate "), "{intermediate}");
    assert_eq!(
        rest,
        [
            ("control_plane", "ironmesh control plane", "valid"),
            ("proxy", "store-2", "claimed"),
            ("proxy", "store-10", "claimed"),
            ("service", "default/buyer", "valid"),
            ("service", "default/store", "valid"),
        ]
    );
    // The issue date of a service certificate is known to within three seconds.
    let is_new = |at: Timestamp| at.duration_since(start()).abs() <= SignedDuration::from_secs(3);
    assert!(list.iter().all(|one| one.problem.is_none() && one.issued_at.is_some_and(is_new)));
    assert!(
        list.iter().all(|one| one.age_seconds.is_some_and(|age| age.abs_diff(3_600) <= 3)),
        "{list:#?}"
    );
    let subjects: Vec<_> = list.iter().map(|one| &*one.subject).collect();
    let proxy = "proxy/00000000-0000-0000-0000-000000000002/ns/default/svc/store";
    assert_eq!(subjects[..2], ["spiffe://mesh.internal", "spiffe://mesh.internal"]);
    assert_eq!(subjects[2], "spiffe://mesh.internal/control-plane");
    assert_eq!(subjects[3], format!("spiffe://mesh.internal/{proxy}"));
    assert_eq!(subjects[6], "spiffe://mesh.internal/ns/default/sa/store");
    let uses: Vec<_> = list.iter().map(|one| &one.used_by).collect();
    assert_eq!(uses[..2], [&CertificateUse::TrustBundle, &CertificateUse::Issuing]);
    assert_eq!(
        uses[2],
        &CertificateUse::Listeners(vec!["xds".to_owned(), "enrollment".to_owned()])
    );
    let with_api = CertificateSources { has_api: true, ..sources(Vec::new()) };
    let with_api = with_api.list(hours(1), |_| false).certificates;
    let all = ["xds", "enrollment", "api"].map(str::to_owned);
    assert_eq!(with_api[2].used_by, CertificateUse::Listeners(all.into()));
    assert!(matches!(uses[3], CertificateUse::Proxy { connected: true, .. }), "{uses:?}");
    assert!(matches!(uses[4], CertificateUse::Proxy { connected: false, .. }), "{uses:?}");
    assert_eq!(uses[5..], [&CertificateUse::Proxies(0), &CertificateUse::Proxies(2)]);
}

#[test]
fn list_has_no_private_key() {
    let list = CertificateList { certificates: list(vec![proxy(1, days(30))], hours(1)) };
    let json = serde_json::to_string(&list).unwrap();
    assert!(!json.contains("PRIVATE") && !json.contains("BEGIN"), "{json}");
}

#[test]
fn state_follows_the_part_of_the_lifetime_that_is_left() {
    let state = |kind: CertificateKind, now| {
        let one = list(Vec::new(), now).into_iter().find(|one| one.kind == kind).unwrap();
        (one.state, one.problem)
    };
    let is = |text: &str, problem| (text.to_owned(), problem);
    let own = CertificateKind::ControlPlane;
    assert_eq!(state(own, days(20)), is("valid", None));
    assert_eq!(state(own, days(21)), is("expiring", Some(CertificateProblem::Expiring)));
    assert_eq!(state(own, days(26)), is("expiring", Some(CertificateProblem::Overdue)));
    assert_eq!(state(own, days(30)), is("expired", Some(CertificateProblem::Expired)));
    // Nothing renews the root, so its renewal is not overdue.
    let root = CertificateKind::Root;
    assert_eq!(state(root, days(3_640)), is("expiring", Some(CertificateProblem::Expiring)));
}

#[test]
fn proxy_states_are_those_of_the_join_record() {
    let revocation = Revocation::by_operator(start(), None);
    let records = vec![
        JoinRecord { claimed_at: None, ..proxy(1, days(30)) },
        proxy(2, hours(2)),
        JoinRecord { revoked: Some(revocation), ..proxy(3, days(30)) },
    ];
    let states = proxies(records.clone(), hours(3));
    let states: Vec<_> = states.iter().map(|(state, _)| &**state).collect();
    assert_eq!(states, ["unclaimed", "expired", "revoked"]);
    assert_eq!(proxies(records, days(2))[0], ("enrollment_expired".to_owned(), None));
}

#[test]
fn proxy_problem_is_that_of_a_certificate_in_use() {
    let at = |now| proxies(vec![proxy(1, days(30))], now);
    let is = |state: &str, problem| vec![(state.to_owned(), problem)];
    assert_eq!(at(days(20)), is("claimed", None));
    assert_eq!(at(days(21)), is("claimed", Some(CertificateProblem::Expiring)));
    assert_eq!(at(days(26)), is("claimed", Some(CertificateProblem::Overdue)));
    assert_eq!(at(days(30)), is("expired", Some(CertificateProblem::Expired)));
    // A newer proxy at the same address has replaced it.
    let newer = JoinRecord { id: ProxyId(Uuid::from_u128(9)), ..proxy(1, days(90)) };
    let problems: Vec<_> = proxies(vec![proxy(1, days(30)), newer], days(30));
    assert!(problems.iter().all(|(_, problem)| problem.is_none()), "{problems:?}");
}

#[test]
fn predecessor_is_listed_while_it_is_accepted() {
    let mut record = proxy(1, days(40));
    let credentials = record.credentials.as_mut().unwrap();
    let first = IssuedCertificate {
        serial: "40".to_owned(),
        expires_at: days(30),
        ..credentials.current.clone()
    };
    credentials.current.issued_at = days(10);
    credentials.current.first_used_at = None;
    credentials.predecessor = Some(first);
    let listed = list(vec![record.clone()], days(11));
    let both: Vec<_> = listed.iter().filter(|one| one.kind == CertificateKind::Proxy).collect();
    assert_eq!(both[0].state, "unused");
    let [current, predecessor] = both[..] else { panic!("{both:?}") };
    assert_eq!((current.serial.as_deref(), current.issued_at), (Some("41"), Some(days(10))));
    assert_eq!(predecessor.serial.as_deref(), Some("40"));
    assert_eq!((&*predecessor.state, predecessor.not_after), ("predecessor", days(30)));
    // It has expired, or the overlap after the first use of its successor is over.
    assert_eq!(proxies(vec![record.clone()], days(30)).len(), 1);
    record.credentials.as_mut().unwrap().current.first_used_at = Some(days(11));
    assert_eq!(proxies(vec![record.clone()], days(11)).len(), 2);
    assert_eq!(proxies(vec![record.clone()], days(11))[0].0, "claimed");
    assert_eq!(proxies(vec![record], days(11) + SignedDuration::from_mins(11)).len(), 1);
}

#[test]
fn subject_is_that_of_the_issue_after_the_services_changed() {
    let mut record = proxy(1, days(30));
    record.credentials.as_mut().unwrap().current.service = record.services.first().cloned();
    record.services = vec!["buyer".parse().unwrap()];
    let listed = list(vec![record], hours(1));
    let one = listed.iter().find(|one| one.kind == CertificateKind::Proxy).unwrap();
    assert!(one.subject.ends_with("/ns/default/svc/store"), "{}", one.subject);
}

#[test]
fn record_of_an_earlier_version_has_no_serial() {
    let record = JoinRecord { credentials: None, ..proxy(1, days(365)) };
    let listed = list(vec![record], days(1));
    let one = listed.iter().find(|one| one.kind == CertificateKind::Proxy).unwrap();
    assert_eq!((&one.serial, one.not_after), (&None, days(365)));
}

#[test]
fn counts_agree_with_the_list_at_each_time() {
    let revocation = Revocation::by_operator(start(), None);
    let records = vec![
        proxy(1, days(30)),
        proxy(2, days(90)),
        JoinRecord { claimed_at: None, ..proxy(3, days(30)) },
        JoinRecord { revoked: Some(revocation), ..proxy(4, days(30)) },
    ];
    // Both must see the same certificates: lifetimes of service certificates are random.
    let sources = sources(records);
    for hour in (0..24 * 60).step_by(7) {
        let now = hours(hour);
        let mut listed = BTreeMap::new();
        for one in sources.list(now, |_| false).certificates {
            let state = match (one.problem, &*one.state) {
                (Some(CertificateProblem::Overdue), _) => "overdue",
                (Some(CertificateProblem::Expiring), _) => "expiring",
                (Some(CertificateProblem::Expired), _) => "expired",
                // Nothing uses it.
                (None, "enrollment_expired") => continue,
                (None, "expired") if one.kind == CertificateKind::Proxy => continue,
                (None, "claimed" | "valid") => "valid",
                (None, other) => {
                    ["unclaimed", "revoked"].into_iter().find(|s| *s == other).unwrap()
                }
            };
            *listed.entry((one.kind, state)).or_default() += 1;
        }
        let mut counted = sources.count(now).counts;
        counted.retain(|_, count| *count > 0);
        assert_eq!(counted, listed, "after {hour} hours");
    }
}

#[test]
fn first_expiry_of_proxies_is_that_of_a_valid_certificate() {
    let first = |records, now| sources(records).count(now).first_expiry;
    let both = || vec![proxy(1, days(30)), proxy(2, days(90))];
    let of_proxies = |now| first(both(), now).get(&CertificateKind::Proxy).copied();
    assert_eq!(of_proxies(days(29)), Some(days(30)));
    assert_eq!(of_proxies(days(31)), Some(days(90)), "the first one may be gone for good");
    assert_eq!(of_proxies(days(91)), None);
    let service = first(both(), days(2)).get(&CertificateKind::Service).copied();
    assert!(service.is_some_and(|end| end < days(2)), "an expired one is an outage: {service:?}");
}
