//! Example meshes that are built from a policy folder alone, without a control plane.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use imbl::OrdMap;
use ironmesh_analysis::verdict::VerdictBasis;
use ironmesh_api::{FindingView, Plan};
use ironmesh_catalog::{
    Inputs, JoinRecord, LogFolder, Mesh, MeshSpecification, NodeMetadata, Participation, Proxy,
    ProxyId, Records, Service, Snapshot, TcpAccesses, TrustBundle, reserved_ports,
};
use ironmesh_config_settings::Settings;
use ironmesh_providers::{GuardedEndpoints, discover};
use jiff::Timestamp;
use uuid::Uuid;

use super::{ForecastCancelled, ForecastProxy, add_findings, forecast, placeholder_certificate};

/// The snapshot of a policy with exactly these join records.
pub fn snapshot(
    settings: &Settings,
    specification: &Arc<MeshSpecification>,
    records: Records,
) -> Snapshot {
    let accounts = Snapshot::accounts_served(specification, &records);
    let certificates = accounts.into_iter().map(|one| (one.clone(), placeholder_certificate(one)));
    let inputs = Inputs {
        mesh: Mesh { domain: settings.domain.clone(), trust_domain: settings.trust_domain.clone() },
        mode: settings.mode,
        egress: settings.egress,
        discovered: discover(specification, &records, &GuardedEndpoints::default()),
        specification: Arc::clone(specification),
        records,
        revoked: Records::new(),
        leaving: ironmesh_catalog::LeavingProxies::new(),
        health: ironmesh_catalog::ReportedApplications::new(),
        certificates: certificates.collect::<OrdMap<_, _>>(),
        trust_bundle: Arc::new(TrustBundle { roots: "the roots of the mesh".to_owned() }),
        revoked_callers: Arc::default(),
    };
    Snapshot::assemble(inputs, TcpAccesses::default())
}

/// The plan of a change from one policy to another, each with its findings, for a mesh of example proxies.
pub fn plan(
    settings: &Settings,
    (before, findings_before): (&Arc<MeshSpecification>, &[FindingView]),
    (after, findings_after): (&Arc<MeshSpecification>, &[FindingView]),
    with_fields: bool,
) -> Result<Plan, ForecastCancelled> {
    let proxies = example_proxies(before, after);
    let before = Arc::new(snapshot(settings, before, records(&proxies)));
    let basis = VerdictBasis::PolicyOnly;
    let mut plan = forecast(&before, after, &proxies, basis, with_fields, &|| true)?;
    add_findings(&mut plan, findings_before, findings_after);
    Ok(plan)
}

/// One example proxy for each service of either policy. (No proxy is enrolled for a subset or an external service.)
pub fn example_proxies(
    before: &MeshSpecification,
    after: &MeshSpecification,
) -> Vec<ForecastProxy> {
    let services = before.services.clone().union(after.services.clone());
    let served = services.values().filter(|one| !one.is_subset() && one.external.is_none());
    let proxies = served.zip(1..).map(|(service, number)| ForecastProxy {
        proxy: Proxy {
            record: record(service, number, before),
            metadata: NodeMetadata {
                access_log_dir: Some(LogFolder::assumed()),
                ..NodeMetadata::default()
            },
        },
        connected: true,
    });
    proxies.collect()
}

/// The join records of example proxies.
pub fn records(proxies: &[ForecastProxy]) -> Records {
    let records = proxies.iter().map(|known| &known.proxy.record);
    records.map(|record| (record.id, Arc::new(record.clone()))).collect()
}

/// The record of an example proxy that serves all ports that a service has in `before`. Its address is the first one of
/// the service's static endpoints, or else one for documentation (RFC 3849).
fn record(service: &Service, number: u32, before: &MeshSpecification) -> JoinRecord {
    let providers = service.endpoints.providers();
    let listed = providers.and_then(|one| one.fixed.first()).map(|first| first.address);
    let documentation = 0x2001_0db8 << 96;
    let address =
        listed.unwrap_or_else(|| IpAddr::V6(Ipv6Addr::from(documentation | u128::from(number))));
    let ports = before.services.get(&service.name).into_iter().flat_map(|one| one.service_ports());
    JoinRecord {
        participation: Participation(ports.map(|(port, _)| (port.service, port.port)).collect()),
        ..JoinRecord::new(
            ProxyId(Uuid::from_u128(number.into())),
            vec![service.name.clone()],
            SocketAddr::new(address, reserved_ports::MESH),
            Timestamp::MIN,
            Timestamp::MAX,
        )
    }
}
