//! The JSON types of the list of certificates, and their summary.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use ironmesh_catalog::ProxyId;
use ironmesh_catalog::network_address;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The certificates of the mesh, by kind and then by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateList {
    /// The certificates.
    pub certificates: Vec<CertificateView>,
}

/// A certificate in the list, without its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateView {
    /// What it is for.
    pub kind: CertificateKind,
    /// Its SPIFFE ID.
    pub subject: String,
    /// The name of the proxy or of the account; for the other kinds, the common name.
    pub name: String,
    /// Its serial number, in lower-case hexadecimal; null for a proxy of an earlier version before it connects.
    pub serial: Option<String>,
    /// For proxies `unclaimed`, `claimed`, `unused` (renewed, and no xDS stream has used it yet), `enrollment_expired`, `expired`, `revoked`, or `predecessor` (renewed, and
    /// still accepted); for the other kinds `valid`, `expiring` (less than a third of its lifetime is left) or `expired`.
    pub state: String,
    /// When it was issued; null if that is not known.
    pub issued_at: Option<Timestamp>,
    /// How many seconds ago that was; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// When it expires.
    pub not_after: Timestamp,
    /// When the control plane renews it; absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_at: Option<Timestamp>,
    /// Where it is used.
    pub used_by: CertificateUse,
    /// Why it needs attention, if it is in use and does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<CertificateProblem>,
}

impl CertificateView {
    /// Its state for people, or its problem.
    pub fn state_text(&self) -> String {
        match self.problem {
            Some(CertificateProblem::Overdue) => "overdue".to_owned(),
            Some(CertificateProblem::Expiring) => "expiring".to_owned(),
            Some(CertificateProblem::Expired) | None => self.state.replace('_', " "),
        }
    }
}

/// What a certificate is for. The order is that of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CertificateKind {
    /// The root of the certificate authority.
    Root,
    /// The intermediate of the certificate authority.
    Intermediate,
    /// The control plane's own certificate.
    ControlPlane,
    /// The certificate of a proxy.
    Proxy,
    /// The certificate of a service account.
    Service,
}

impl CertificateKind {
    /// All kinds, in the order of the list.
    pub const ALL: [Self; 5] =
        [Self::Root, Self::Intermediate, Self::ControlPlane, Self::Proxy, Self::Service];

    /// Its JSON value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Intermediate => "intermediate",
            Self::ControlPlane => "control_plane",
            Self::Proxy => "proxy",
            Self::Service => "service",
        }
    }

    /// The component that renews certificates of this kind; none for the root, which is not renewed.
    pub fn renewer(self) -> Option<CertificateRenewer> {
        match self {
            Self::Root => None,
            Self::Intermediate | Self::ControlPlane | Self::Service => {
                Some(CertificateRenewer::ControlPlane)
            }
            Self::Proxy => Some(CertificateRenewer::Machine),
        }
    }
}

impl fmt::Display for CertificateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_str().replace('_', " "))
    }
}

/// The component that renews a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CertificateRenewer {
    /// The control plane, by itself.
    ControlPlane,
    /// The machine of the proxy.
    Machine,
}

/// Where a certificate is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CertificateUse {
    /// Proxies and the control plane verify their peers against it.
    TrustBundle,
    /// It signs the certificates of the control plane, proxies and accounts.
    Issuing,
    /// These listeners of the control plane present it.
    Listeners(Vec<String>),
    /// A proxy presents it to the control plane.
    Proxy {
        /// The proxy.
        id: ProxyId,
        /// The address at which other proxies dial it.
        #[schema(value_type = network_address::SocketAddress)]
        mesh_address: SocketAddr,
        /// Whether it has an xDS stream now.
        connected: bool,
    },
    /// So many proxies in use serve the account.
    Proxies(usize),
}

impl fmt::Display for CertificateUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TrustBundle => f.write_str("trust bundle"),
            Self::Issuing => f.write_str("issuing"),
            Self::Listeners(listeners) => f.write_str(&listeners.join(", ")),
            Self::Proxy { mesh_address, connected, .. } => {
                mesh_address.ip().fmt(f)?;
                f.write_str(if *connected { ", connected" } else { "" })
            }
            Self::Proxies(1) => f.write_str("1 proxy"),
            Self::Proxies(count) => write!(f, "{count} proxies"),
        }
    }
}

/// Why a certificate in use needs attention, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CertificateProblem {
    /// It has expired.
    Expired,
    /// It should have been renewed: less than a sixth of its lifetime is left.
    Overdue,
    /// It expires soon.
    Expiring,
}

/// The summary of all certificates, what needs attention first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateSummary {
    /// The certificates that need attention, the most urgent first.
    pub problems: Vec<CertificateView>,
    /// The kinds of which there are certificates.
    pub kinds: Vec<CertificateKindSummary>,
}

/// The summary of the certificates of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateKindSummary {
    /// The kind.
    pub kind: CertificateKind,
    /// The count of certificates in each state.
    pub states: BTreeMap<String, usize>,
    /// The certificate that expires next, of those that can still be used; null if there is none.
    pub next: Option<CertificateView>,
    /// The component that renews certificates of this kind; null for the root, which is not renewed.
    pub renewed_by: Option<CertificateRenewer>,
}

impl CertificateList {
    /// The summary of the list.
    pub fn summary(&self) -> CertificateSummary {
        let problems = self.certificates.iter().filter(|one| one.problem.is_some());
        let mut problems: Vec<_> = problems.cloned().collect();
        problems.sort_by_key(|one| (one.problem, one.not_after));
        let kinds = CertificateKind::ALL.into_iter().filter_map(|kind| self.kind_summary(kind));
        CertificateSummary { problems, kinds: kinds.collect() }
    }

    fn kind_summary(&self, kind: CertificateKind) -> Option<CertificateKindSummary> {
        let (mut states, mut next) = (BTreeMap::new(), None::<&CertificateView>);
        for one in self.certificates.iter().filter(|one| one.kind == kind) {
            *states.entry(one.state.clone()).or_default() += 1;
            let is_usable =
                matches!(&*one.state, "valid" | "expiring" | "claimed" | "unclaimed" | "unused");
            if is_usable && next.is_none_or(|next| one.not_after < next.not_after) {
                next = Some(one);
            }
        }
        let (next, renewed_by) = (next.cloned(), kind.renewer());
        (!states.is_empty()).then_some(CertificateKindSummary { kind, states, next, renewed_by })
    }
}

impl CertificateSummary {
    /// The count of certificates in use that have expired, or should have been renewed.
    pub fn failures(&self) -> usize {
        let is_failure = |one: &&CertificateView| one.problem < Some(CertificateProblem::Expiring);
        self.problems.iter().filter(is_failure).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(name: &str, state: &str, end: i64) -> CertificateView {
        CertificateView {
            kind: CertificateKind::Proxy,
            subject: format!("spiffe://mesh.internal/{name}"),
            name: name.to_owned(),
            serial: Some("4a".to_owned()),
            state: state.to_owned(),
            issued_at: Some(Timestamp::UNIX_EPOCH),
            age_seconds: Some(60),
            not_after: Timestamp::from_second(end).unwrap(),
            renew_at: None,
            used_by: CertificateUse::Proxies(0),
            problem: None,
        }
    }

    #[test]
    fn summary_has_problems_first_and_the_next_usable_expiry() {
        let problem = |problem, view| CertificateView { problem: Some(problem), ..view };
        let list = CertificateList {
            certificates: vec![
                problem(CertificateProblem::Expiring, proxy("a", "claimed", 60)),
                proxy("b", "revoked", 50),
                proxy("b", "predecessor", 40),
                problem(CertificateProblem::Overdue, proxy("c", "claimed", 90)),
                problem(CertificateProblem::Expired, proxy("d", "expired", 10)),
                CertificateView { kind: CertificateKind::Root, ..proxy("root", "valid", 900) },
            ],
        };
        let summary = list.summary();
        let names: Vec<_> = summary.problems.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["d", "c", "a"]);
        assert_eq!(summary.failures(), 2);
        let [root, proxies] = &summary.kinds[..] else { panic!("{summary:?}") };
        assert_eq!((root.kind, root.renewed_by), (CertificateKind::Root, None));
        assert_eq!(proxies.states["claimed"], 2);
        assert_eq!(proxies.next.as_ref().unwrap().name, "a");
        assert_eq!(proxies.renewed_by, Some(CertificateRenewer::Machine));
    }

    #[test]
    fn certificate_has_the_keys_of_the_api() {
        let id = "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap();
        let mesh_address = "10.0.0.1:15003".parse().unwrap();
        let used_by = CertificateUse::Proxy { id, mesh_address, connected: true };
        let problem = Some(CertificateProblem::Overdue);
        let full = CertificateView { used_by, problem, ..proxy("a", "claimed", 60) };
        let json = r#"{"kind":"proxy","subject":"spiffe://mesh.internal/a","name":"a","serial":"4a","state":"claimed","issued_at":"1970-01-01T00:00:00Z","age_seconds":60,"not_after":"1970-01-01T00:01:00Z","used_by":{"proxy":{"id":"6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f","mesh_address":"10.0.0.1:15003","connected":true}},"problem":"overdue"}"#;
        assert_eq!(serde_json::to_string(&full).unwrap(), json);
        assert_eq!(serde_json::from_str::<CertificateView>(json).unwrap(), full);
        let text = |used_by: &CertificateUse| serde_json::to_string(used_by).unwrap();
        assert_eq!(text(&CertificateUse::TrustBundle), r#""trust_bundle""#);
        assert_eq!(text(&CertificateUse::Proxies(3)), r#"{"proxies":3}"#);
        for kind in CertificateKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
