//! Where the calls of a service port go, and who may know of it: as the caller's sidecar is told.

use crate::name::{ServiceAccount, ServicePort};
use crate::service::{Mode, Port, Service};
use crate::snapshot::Snapshot;
use crate::specification::MeshSpecification;
use crate::way::{Cited, allowances};

/// Where calls go.
#[derive(Debug)]
pub(super) struct Destinations {
    /// What sends them there, where it is not the service itself.
    pub(super) split: Option<Cited>,
    /// Who answers, and with what weight, which is never 0.
    pub(super) leaves: Vec<(ServicePort, u32)>,
}

/// Where calls of `asked` go.
pub(super) fn destinations(specification: &MeshSpecification, asked: &ServicePort) -> Destinations {
    let mut splits = specification.traffic_splits.values();
    let Some(split) = splits.find(|split| split.service == asked.service) else {
        return Destinations { split: None, leaves: vec![(asked.clone(), 1)] };
    };
    let is_http = |service| {
        let service = specification.services.get(service)?;
        Some(service.port(asked.port)?.protocol.is_http())
    };
    // SMI: a backend without the port is left out.
    let has_port =
        |service| is_http(service).is_some() && is_http(service) == is_http(&asked.service);
    let backends = split.backends.iter().filter(|one| one.weight > 0 && has_port(&one.service));
    let leaf = |service| ServicePort::new(service, asked.port);
    let object = format!("traffic split `{}/{}`", split.namespace, split.name);
    Destinations {
        split: Some(Cited { object, spot: split.spot.clone() }),
        leaves: backends.map(|one| (leaf(one.service.clone()), one.weight)).collect(),
    }
}

/// Whether the proxies of `caller` are told of `asked`: they may call it in some way, or a backend of its
/// split, with or without a weight.
pub(super) fn is_known(snapshot: &Snapshot, caller: &ServiceAccount, asked: &ServicePort) -> bool {
    let specification = &snapshot.specification;
    let splits = specification.traffic_splits.values();
    let of_asked = splits.filter(|split| split.service == asked.service);
    let backends = of_asked.flat_map(|split| &split.backends).map(|one| &one.service);
    let mut services = [&asked.service].into_iter().chain(backends);
    services.any(|name| {
        let service = specification.services.get(name);
        let port = service.and_then(|service| Some((service, service.port(asked.port)?)));
        port.is_some_and(|(service, port)| may_call(snapshot, caller, service, port))
    })
}

/// Whether `caller` may call a port in some way.
fn may_call(snapshot: &Snapshot, caller: &ServiceAccount, service: &Service, port: &Port) -> bool {
    match snapshot.mode_of(service) {
        Mode::Permissive => true,
        Mode::Strict => snapshot.grants.by_target.values().any(|grant| {
            grant.destinations.contains(&service.account)
                && grant.sources.contains(caller)
                && !allowances(&snapshot.specification, &grant.target, port).is_empty()
        }),
    }
}
