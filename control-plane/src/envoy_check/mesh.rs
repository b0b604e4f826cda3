//! The synthetic mesh of a validation with Envoy: one proxy per service, and one temporary certificate for all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{
    JoinRecord, LogFolder, MeshSpecification, NodeMetadata, Participation, Proxy, ProxyId, Records,
    Service, ServiceAccount, ServiceName, Snapshot, TrustDomain, Upstream, reserved_ports,
};
use ironmesh_cert::Authority;
use ironmesh_config_settings::Settings;
use ironmesh_xds_compile::rendering::PlaceholderSecrets;
use jiff::Timestamp;
use uuid::Uuid;

use crate::forecast::offline;

/// The first local port of upstreams. Lower ports are those of Envoy and Ironmesh.
const FIRST_LOCAL_PORT: u16 = 20_000;

/// The mesh of `specification` with these settings, its proxies, and the certificate for all of them.
pub(super) fn of(
    settings: &Settings,
    specification: &Arc<MeshSpecification>,
) -> anyhow::Result<(Snapshot, Vec<Proxy>, PlaceholderSecrets)> {
    let services = specification.services.values().zip(1..);
    let records: Vec<JoinRecord> =
        services.map(|(service, number)| enrolled(service, number)).collect();
    let by_id = |record: &JoinRecord| (record.id, Arc::new(record.clone()));
    let by_id: Records = records.iter().map(by_id).collect();
    let temporary = temporary_certificate(&settings.trust_domain)?;
    let snapshot = offline::snapshot(settings, specification, by_id);
    let mut callers = callers(&snapshot);
    let proxies = records.into_iter().map(|record| {
        let service = record.services.first().and_then(|name| specification.services.get(name));
        // One proxy per account gets the upstreams: those of further proxies would be the same.
        let called = service.and_then(|service| callers.remove(&service.account));
        let upstreams = upstreams(specification, &called.unwrap_or_default());
        let access_log_dir = Some(LogFolder::assumed());
        let metadata = NodeMetadata {
            upstreams,
            access_log_dir,
            bootstrap_version: NodeMetadata::BOOTSTRAP_VERSION,
            ..NodeMetadata::default()
        };
        Proxy { record, metadata }
    });
    let proxies = proxies.collect();
    Ok((snapshot, proxies, temporary))
}

/// The record of a proxy that serves the service, and has ACKed all its ports.
fn enrolled(service: &Service, number: u32) -> JoinRecord {
    let ports = service.ports.iter().map(|port| (service.name.clone(), port.number));
    // Each proxy has its own loopback address, so that listeners do not conflict.
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 0)).wrapping_add(number));
    JoinRecord {
        participation: Participation(ports.collect()),
        ..JoinRecord::new(
            ProxyId(Uuid::from_u128(number.into())),
            vec![service.name.clone()],
            SocketAddr::from((address, reserved_ports::MESH)),
            Timestamp::UNIX_EPOCH,
            Timestamp::MAX,
        )
    }
}

/// The services that each account may call, including services whose splits lead there.
fn callers(snapshot: &Snapshot) -> BTreeMap<ServiceAccount, BTreeSet<ServiceName>> {
    let specification = &snapshot.specification;
    let mut services: BTreeMap<&ServiceAccount, Vec<&ServiceName>> = BTreeMap::new();
    for service in specification.services.values() {
        services.entry(&service.account).or_default().push(&service.name);
    }
    let mut split_services: BTreeMap<&ServiceName, Vec<&ServiceName>> = BTreeMap::new();
    for split in specification.traffic_splits.values() {
        for backend in &split.backends {
            split_services.entry(&backend.service).or_default().push(&split.service);
        }
    }
    let mut callers: BTreeMap<ServiceAccount, BTreeSet<ServiceName>> = BTreeMap::new();
    for grant in snapshot.grants.by_target().values() {
        let called = grant.destinations.iter().filter_map(|account| services.get(account));
        let mut open: Vec<&ServiceName> = called.flatten().copied().collect();
        let mut called = BTreeSet::new();
        while let Some(service) = open.pop() {
            if called.insert(service.clone()) {
                open.extend(split_services.get(service).into_iter().flatten());
            }
        }
        for source in &grant.sources {
            callers.entry(source.clone()).or_default().extend(called.iter().cloned());
        }
    }
    callers
}

/// An upstream for each port of the services, until local ports run out.
fn upstreams(specification: &MeshSpecification, services: &BTreeSet<ServiceName>) -> Vec<Upstream> {
    let services = services.iter().filter_map(|name| specification.services.get(name));
    let ports = services.flat_map(|service| service.service_ports());
    let upstream = |((port, _), local_port): ((ironmesh_catalog::ServicePort, _), u16)| Upstream {
        service: port.service,
        port: Some(port.port),
        local_port,
    };
    ports.zip(FIRST_LOCAL_PORT..).map(upstream).collect()
}

/// A certificate of an authority that is discarded at once.
fn temporary_certificate(trust_domain: &TrustDomain) -> anyhow::Result<PlaceholderSecrets> {
    let now = Timestamp::now();
    let authority = Authority::ephemeral(trust_domain, now)?;
    let account = ServiceAccount::new(
        ironmesh_catalog::Name::default_namespace(),
        ironmesh_catalog::Name::default_namespace(),
    );
    let day = Duration::from_secs(86_400);
    let certificate = authority.issue_service_certificate(&account, day, now)?;
    let roots = authority.trust_bundle().roots;
    Ok(PlaceholderSecrets { roots, chain: certificate.chain, key: certificate.key })
}
