use ironmesh_api::{
    CertificateKind, CertificateList, CertificateProblem, CertificateUse, CertificateView,
};
use jiff::{SignedDuration, Timestamp};

use super::{summary, table};

fn now() -> Timestamp {
    "2026-01-11T00:00:00Z".parse().unwrap()
}

fn view(
    kind: CertificateKind,
    name: &str,
    state: &str,
    used_by: CertificateUse,
) -> CertificateView {
    let day = SignedDuration::from_hours(24);
    CertificateView {
        kind,
        subject: format!("spiffe://mesh.internal/{name}"),
        name: name.to_owned(),
        serial: Some("4a5b".to_owned()),
        state: state.to_owned(),
        issued_at: Some(now() - day * 10),
        age_seconds: Some(10 * 86_400),
        not_after: now() + day * 20,
        renew_at: None,
        used_by,
        problem: None,
    }
}

fn proxy(name: &str, state: &str, address: &str) -> CertificateView {
    let id = "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap();
    let connected = state == "claimed";
    let used_by = CertificateUse::Proxy { id, mesh_address: address.parse().unwrap(), connected };
    view(CertificateKind::Proxy, name, state, used_by)
}

fn list() -> CertificateList {
    let root = view(CertificateKind::Root, "root 1a2b", "valid", CertificateUse::TrustBundle);
    let listeners = CertificateUse::Listeners(vec!["xds".to_owned(), "enrollment".to_owned()]);
    let renew_at = Some(now() + SignedDuration::from_hours(36));
    let own = view(CertificateKind::ControlPlane, "control plane", "valid", listeners);
    let unknown = CertificateView {
        issued_at: None,
        serial: None,
        ..proxy("web-2", "enrollment_expired", "[2001:db8:0:1:2:3:4:5]:15003")
    };
    let service = view(CertificateKind::Service, "shop/web", "valid", CertificateUse::Proxies(1));
    CertificateList {
        certificates: vec![
            root,
            CertificateView { renew_at, ..own },
            proxy("web-1", "claimed", "10.0.0.1:15003"),
            unknown,
            CertificateView { renew_at: Some(now()), ..service },
        ],
    }
}

/// The list with a claimed certificate that has expired, and one whose renewal is overdue.
fn failing() -> CertificateList {
    let hour = SignedDuration::from_hours(1);
    let expired = CertificateView {
        problem: Some(CertificateProblem::Expired),
        not_after: now() - hour * 3,
        ..proxy("old-1", "expired", "10.0.0.9:15003")
    };
    let overdue = CertificateView {
        problem: Some(CertificateProblem::Overdue),
        not_after: now() + hour * 3,
        ..proxy("old-2", "claimed", "10.0.0.8:15003")
    };
    let mut list = list();
    list.certificates.extend([overdue, expired]);
    list
}

#[test]
fn table_fits_a_terminal_and_shows_state_age_expiry_and_use() {
    let text = table::narrow(&list().certificates, now());
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "KIND           NAME           STATE               AGE  EXPIRES  USED BY",
            "root           root 1a2b      valid               10d  in 20d   trust bundle",
            "control plane  control plane  valid               10d  in 20d   xds, enrollment",
            "proxy          web-1          claimed             10d  in 20d   10.0.0.1, conne…",
            "proxy          web-2          enrollment expired  -    in 20d   2001:db8:0:1:2:…",
            "service        shop/web       valid               10d  in 20d   1 proxy",
        ]
    );
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn table_shows_the_address_beside_a_predecessor() {
    let name = "ironmesh intermediate 71c2d05e";
    let authority = view(CertificateKind::Intermediate, name, "valid", CertificateUse::Issuing);
    let predecessor = proxy("bookstore-1", "predecessor", "10.0.10.15:15003");
    let text = table::narrow(&[authority, predecessor], now());
    assert!(text.lines().any(|line| line.ends_with("  10.0.10.15")), "{text}");
    assert!(text.contains("1c2d05e") && text.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn wide_table_adds_renewal_serial_and_subject() {
    let text = table::wide(&list().certificates, now());
    let own = text.lines().nth(2).unwrap();
    for part in ["in 1d", "xds, enrollment", "4a5b", "spiffe://mesh.internal/control plane"] {
        assert!(own.contains(part), "{part}: {text}");
    }
    assert!(text.contains("2001:db8:0:1:2:3:4:5"), "{text}");
}

#[test]
fn summary_begins_with_the_certificates_that_need_attention() {
    let text = summary::summary_text(&failing().summary(), now());
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[1].contains("old-1") && lines[1].contains("3h ago"), "{text}");
    assert!(lines[2].contains("old-2  overdue") && lines[2].contains("in 3h"), "{text}");
    assert_eq!(
        lines[3..],
        [
            "",
            "root           1 valid",
            "               next: root 1a2b expires in 20d; not renewed",
            "control plane  1 valid",
            "               next: control plane expires in 20d; renewed by the control plane in 1d12h",
            "proxy          2 claimed, 1 enrollment expired, 1 expired",
            "               next: old-2 expires in 3h; renewed by its machine",
            "service        1 valid",
            "               next: shop/web expires in 20d; its renewal by the control plane is due",
        ]
    );
}
