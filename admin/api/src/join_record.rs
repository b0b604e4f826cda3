//! The join record of a proxy, on the wire.
//!
//! The API promises its keys and their order. The store keeps the catalog's record, which may
//! change independently.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ironmesh_catalog::network_address;
use ironmesh_catalog::{
    CertificateSource, JoinRecord, Labels, Locality, Participation, ProxyId, ProxyName,
    ProxyVersions, Revocation, RevocationCause, ServiceName,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::cordons::CordonView;

/// The join record of an enrolled proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinRecordView {
    /// The proxy.
    pub id: ProxyId,
    /// Its name, for people: its id if an earlier version enrolled it.
    pub name: ProxyName,
    /// The services that it may serve, its first one first.
    pub services: Vec<ServiceName>,
    /// The mesh address, to which callers connect.
    #[schema(value_type = network_address::SocketAddress)]
    pub mesh_address: SocketAddr,
    /// Further addresses by which providers know its machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<network_address::IpAddress>)]
    pub addresses: Vec<IpAddr>,
    /// The key by which providers know its machine: in Azure, the `vmId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Uuid>,
    /// The id of its machine's resource in Azure, if Azure attested the machine at its enrollment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub azure_resource: Option<String>,
    /// The time of its enrollment.
    pub enrolled_at: Timestamp,
    /// The time at which its certificate expires.
    pub certificate_expires_at: Timestamp,
    /// The time of its first accepted xDS connection.
    pub claimed_at: Option<Timestamp>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Its locality at the enrollment.
    #[serde(default, skip_serializing_if = "Locality::is_empty")]
    pub locality: Locality,
    /// The service ports in which it participates.
    pub participation: BTreeSet<(ServiceName, u16)>,
    /// The ports without a backend: no provider reports an application behind them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ports_without_backend: BTreeSet<(ServiceName, u16)>,
    /// Where its Envoy gets its service certificates from: `ads` or `agent`.
    #[serde(default)]
    pub certificates: CertificateSource,
    /// The revocation of its identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<RevocationView>,
    /// Since when it is unreachable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable_since: Option<Timestamp>,
    /// The cordon by which an operator has taken it out of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<CordonView>,
    /// The versions of its programs, as they were known last.
    #[serde(default, skip_serializing_if = "VersionsView::is_empty")]
    pub versions: VersionsView,
}

/// The versions of the programs of a proxy, on the wire.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionsView {
    /// That of its Envoy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envoy: Option<String>,
    /// That of the agent of its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

impl VersionsView {
    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The revocation of a proxy, on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevocationView {
    /// The time of the revocation.
    pub at: Timestamp,
    /// The reason that the user gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The cause. None of an earlier version: an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RevocationCause>,
}

impl RevocationView {
    /// Whether servers refuse the proxy's certificates.
    pub fn is_refused_by_peers(&self) -> bool {
        self.cause.is_none_or(|cause| cause == RevocationCause::Operator)
    }
}

impl From<&JoinRecord> for JoinRecordView {
    fn from(record: &JoinRecord) -> Self {
        // A new field of the record must be included or excluded here.
        let JoinRecord {
            id,
            name: _,
            // Shown with the certificates.
            kind: _,
            driver: _,
            token: _,
            credentials: _,
            // `proxy show` has what they let a revoked proxy call.
            workload_certificates: _,
            shared_accounts: _,
            refused: _,
            services,
            mesh_address,
            addresses,
            machine,
            azure,
            enrolled_at,
            certificate_expires_at,
            claimed_at,
            labels,
            locality,
            participation: Participation(participation),
            ports_without_backend: Participation(ports_without_backend),
            certificates,
            versions: ProxyVersions { envoy, agent, unknown: _ },
            revoked,
            cordon,
            unreachable_since,
            unknown: _,
        } = record.clone();
        Self {
            id,
            name: record.display_name(),
            services,
            mesh_address,
            addresses,
            machine,
            azure_resource: azure.map(|azure| azure.resource),
            enrolled_at,
            certificate_expires_at,
            claimed_at,
            labels,
            locality,
            participation,
            ports_without_backend,
            certificates,
            revoked: revoked.map(RevocationView::from),
            unreachable_since,
            cordon: cordon.map(CordonView::from),
            versions: VersionsView { envoy, agent },
        }
    }
}

impl From<Revocation> for RevocationView {
    fn from(revocation: Revocation) -> Self {
        let cause = Some(revocation.cause());
        Self { at: revocation.at, reason: revocation.reason, cause }
    }
}

impl fmt::Display for RevocationView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Revocation::by_operator(self.at, self.reason.clone()).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::{AzureBinding, Cordon, CordonMode};

    use super::*;

    fn record() -> JoinRecord {
        JoinRecord::new(
            "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap(),
            vec!["shop/bookstore".parse().unwrap()],
            "10.0.0.1:15003".parse().unwrap(),
            "2026-01-01T00:00:00Z".parse().unwrap(),
            "2027-01-01T00:00:00Z".parse().unwrap(),
        )
    }

    #[test]
    fn join_record_has_the_keys_of_the_api() {
        let port = ("shop/bookstore".parse().unwrap(), 14001);
        let at = "2026-01-02T00:00:00Z".parse().unwrap();
        let full = JoinRecord {
            name: Some("bookstore-1".parse().unwrap()),
            addresses: vec!["192.0.2.1".parse().unwrap()],
            machine: Some(Uuid::nil()),
            azure: Some(AzureBinding { resource: "/subscriptions/s".to_owned(), os_disk: None }),
            claimed_at: Some(at),
            labels: [("version", "v1")].into_iter().collect(),
            locality: "eu/1".parse().unwrap(),
            participation: Participation([port.clone()].into()),
            ports_without_backend: Participation([port].into()),
            certificates: CertificateSource::Agent,
            revoked: Some(Revocation::by_operator(at, Some("stolen".to_owned()))),
            cordon: Cordon::requested(None, CordonMode::Drain, Some("ann".to_owned()), None, at),
            versions: ProxyVersions {
                envoy: Some("1.40.0".to_owned()),
                ..ProxyVersions::default()
            },
            unreachable_since: Some(at),
            ..record()
        };
        let least = r#"{"id":"6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f","name":"6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f","services":["shop/bookstore"],"mesh_address":"10.0.0.1:15003","enrolled_at":"2026-01-01T00:00:00Z","certificate_expires_at":"2027-01-01T00:00:00Z","claimed_at":null,"participation":[],"certificates":"ads"}"#;
        let most = r#"{"id":"6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f","name":"bookstore-1","services":["shop/bookstore"],"mesh_address":"10.0.0.1:15003","addresses":["192.0.2.1"],"machine":"00000000-0000-0000-0000-000000000000","azure_resource":"/subscriptions/s","enrolled_at":"2026-01-01T00:00:00Z","certificate_expires_at":"2027-01-01T00:00:00Z","claimed_at":"2026-01-02T00:00:00Z","labels":{"version":"v1"},"locality":{"region":"eu","zone":"1"},"participation":[["shop/bookstore",14001]],"ports_without_backend":[["shop/bookstore",14001]],"certificates":"agent","revoked":{"at":"2026-01-02T00:00:00Z","reason":"stolen","cause":"operator"},"unreachable_since":"2026-01-02T00:00:00Z","cordon":{"mode":"drain","since":"2026-01-02T00:00:00Z","by":"ann","drain_since":"2026-01-02T00:00:00Z"},"versions":{"envoy":"1.40.0"}}"#;
        for (record, json) in [(record(), least), (full, most)] {
            let view = JoinRecordView::from(&record);
            assert_eq!(serde_json::to_string(&view).unwrap(), json);
            assert_eq!(serde_json::from_str::<JoinRecordView>(json).unwrap(), view);
        }
    }
}
