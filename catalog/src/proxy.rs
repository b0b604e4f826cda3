//! Proxies: what they joined as, what they say of themselves, and how far they have come.

mod outside;
mod statement;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::labels::Labels;
use crate::locality::Locality;
use crate::name::ServiceName;

pub use outside::{HostUpstream, OutsideAuthority, OutsideHost};
pub use statement::{LogFolder, ProxyStatement, Upstream};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The UUID of one sidecar, given to it when it joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProxyId(pub Uuid);

impl ProxyId {
    /// Reads the UUID out of an Envoy node id: the UUID itself, or `type~ip~UUID~domain`.
    pub fn from_node_id(node_id: &str) -> Option<Self> {
        let mut parts = node_id.split('~');
        match (parts.next(), parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(uuid), None, ..) | (Some(_), Some(_), Some(uuid), Some(_), None) => {
                uuid.parse().ok()
            }
            _ => None,
        }
    }
}

impl fmt::Display for ProxyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ProxyId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::parse_str(text).map(Self)
    }
}

/// What a proxy joined as. The record decides what the proxy may do, not what the proxy says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRecord {
    /// The proxy.
    pub id: ProxyId,
    /// The services that it may serve, at least one. The first names its certificate, and its
    /// account is who the proxy is when it calls others.
    pub services: Vec<ServiceName>,
    /// Where others dial it.
    pub mesh_address: SocketAddr,
    /// By which addresses providers know its machine besides that of the mesh: its own behind a NAT, say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// By which key providers know its machine, where they have one: in Azure, the `vmId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Uuid>,
    /// When it joined.
    pub joined_at: Timestamp,
    /// When its certificate ends.
    pub certificate_expires_at: Timestamp,
    /// When its first xDS connection was accepted: the certificate is claimed since then.
    pub claimed_at: Option<Timestamp>,
    /// What whoever let it in said of it: the version that it runs, say.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Where it is, in the words of whoever let it in: its own calls follow from that, and it is that of
    /// its endpoints where no provider knows another.
    #[serde(default, skip_serializing_if = "Locality::is_empty")]
    pub locality: Locality,
    /// How far it has come with each service.
    pub participation: Participation,
    /// The ports of these at which it leads to where policy says, as no provider knows an application there or
    /// it has not heard of that yet. It is not called on behalf of one that listens elsewhere.
    #[serde(default, skip_serializing_if = "Participation::is_empty")]
    pub vacant: Participation,
    /// Whether it was told never to come again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revocation>,
    /// Since when it is suspected to be dead: its xDS stream has been lost for long, and those of others
    /// have not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspect_since: Option<Timestamp>,
}

/// That a proxy is let in no more, whatever certificate it shows. There is no way back from it: the
/// machine joins again, as another proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// Since when.
    pub at: Timestamp,
    /// Why, in the words of whoever revoked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl fmt::Display for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The second is as much as people want to know.
        write!(f, "revoked on {:.0}", self.at)?;
        self.reason.iter().try_for_each(|reason| write!(f, ": {reason}"))
    }
}

/// What has become of a proxy's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateState {
    /// No connection was accepted with it yet.
    Unclaimed,
    /// It identifies a proxy that has connected.
    Claimed,
    /// It was never used, and is not let in any more.
    Forfeit,
    /// Its time has passed.
    Expired,
    /// It is not let in any more, as an operator wishes.
    Revoked,
}

impl JoinRecord {
    /// How long a certificate may wait for its first connection (docs/reference/names.md).
    const UNCLAIMED: SignedDuration = SignedDuration::from_hours(24);

    /// The record of a proxy that has just joined: unclaimed, without labels, with no port configured.
    pub fn new(
        id: ProxyId,
        services: Vec<ServiceName>,
        mesh_address: SocketAddr,
        joined_at: Timestamp,
        certificate_expires_at: Timestamp,
    ) -> Self {
        Self {
            id,
            services,
            mesh_address,
            addresses: Vec::new(),
            machine: None,
            joined_at,
            certificate_expires_at,
            claimed_at: None,
            labels: Labels::default(),
            locality: Locality::default(),
            participation: Participation::default(),
            vacant: Participation::default(),
            revoked: None,
            suspect_since: None,
        }
    }

    /// All addresses by which providers may know its machine, each once.
    pub fn known_as(&self) -> BTreeSet<IpAddr> {
        self.addresses.iter().copied().chain([self.mesh_address.ip()]).collect()
    }

    /// What has become of its certificate until `now`.
    pub fn certificate_state(&self, now: Timestamp) -> CertificateState {
        match self.claimed_at {
            _ if self.revoked.is_some() => CertificateState::Revoked,
            _ if self.certificate_expires_at <= now => CertificateState::Expired,
            Some(_) => CertificateState::Claimed,
            None if now.duration_since(self.joined_at) > Self::UNCLAIMED => {
                CertificateState::Forfeit
            }
            None => CertificateState::Unclaimed,
        }
    }

    /// Whether the proxy is or may yet be there.
    pub fn is_in_use(&self, now: Timestamp) -> bool {
        let state = self.certificate_state(now);
        matches!(state, CertificateState::Unclaimed | CertificateState::Claimed)
    }
}

/// Which service ports a proxy has in force: it has ACKed the inbound listener with the port and
/// the port's certificate. Kept over restarts, so that ours is no event (invariant 8).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Participation(pub BTreeSet<(ServiceName, u16)>);

impl Participation {
    /// Whether it is no port at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A proxy as the compiler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// What it joined as.
    pub record: JoinRecord,
    /// What it says of itself.
    pub statement: ProxyStatement,
}

impl Proxy {
    /// The address on which it listens for the mesh.
    pub fn bind(&self) -> IpAddr {
        self.statement.bind.unwrap_or_else(|| self.record.mesh_address.ip())
    }

    /// The address on which it listens for its own applications, and Envoy for its admin.
    ///
    /// 127.0.0.1, unless the proxy's mesh address is itself one of the loopback: then that one, so
    /// that several proxies on one machine have ports of their own.
    pub fn local_address(&self) -> IpAddr {
        local_address(self.bind())
    }

    /// Where its applications listen.
    pub fn app_address(&self) -> IpAddr {
        self.statement.app_address.unwrap_or(LOCALHOST)
    }
}

/// The address for what only the proxy's own machine may reach, given the one for the mesh.
pub fn local_address(bind: IpAddr) -> IpAddr {
    if bind.is_loopback() { bind } else { LOCALHOST }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_state_follows_claim_expiry_and_revocation() {
        let joined: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let after = |hours| joined + SignedDuration::from_hours(hours);
        let mut record = JoinRecord::new(
            ProxyId(Uuid::nil()),
            vec!["store".parse().unwrap()],
            SocketAddr::from(([10, 0, 0, 1], 15003)),
            joined,
            after(1000),
        );
        let is = |record: &JoinRecord, hours, state| {
            assert_eq!(record.certificate_state(after(hours)), state, "after {hours} h");
        };
        is(&record, 24, CertificateState::Unclaimed);
        is(&record, 25, CertificateState::Forfeit);
        assert!(record.is_in_use(after(24)) && !record.is_in_use(after(25)));
        record.claimed_at = Some(after(1));
        is(&record, 25, CertificateState::Claimed);
        is(&record, 999, CertificateState::Claimed);
        is(&record, 1000, CertificateState::Expired);
        assert!(record.is_in_use(after(999)) && !record.is_in_use(after(1000)));
        record.revoked = Some(Revocation { at: after(2), reason: Some("stolen".to_owned()) });
        is(&record, 3, CertificateState::Revoked);
        assert!(!record.is_in_use(after(3)));
        let words = record.revoked.unwrap().to_string();
        assert_eq!(words, "revoked on 2026-01-01T02:00:00Z: stolen");
    }

    #[test]
    fn proxy_id_is_read_from_a_uuid_or_four_part_node_id() {
        let uuid = "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f";
        let id: ProxyId = uuid.parse().unwrap();
        assert_eq!(ProxyId::from_node_id(uuid), Some(id));
        let four = format!("sidecar~10.0.0.1~{uuid}~mesh.internal");
        assert_eq!(ProxyId::from_node_id(&four), Some(id));
        for bad in ["", "vm1", "a~b", &format!("{four}~x"), &format!("sidecar~{uuid}"), "a~b~c~d"] {
            assert_eq!(ProxyId::from_node_id(bad), None, "{bad}");
        }
    }
}
