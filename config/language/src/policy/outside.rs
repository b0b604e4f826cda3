//! External services across documents: each hostname belongs to one service, and splits stay inside of the
//! mesh.

use std::collections::BTreeMap;

use ironmesh_catalog::{Finding, Hostname, Name, Service, Spot};

use super::draft::Draft;
use crate::codes;

/// Reports the external services of `draft` that conflict with other services.
pub(super) fn check(draft: &mut Draft<'_>) {
    let mut findings = Vec::new();
    let mut known: BTreeMap<(&Hostname, u16), &Service> = BTreeMap::new();
    let mut without_port: BTreeMap<&Hostname, &Service> = BTreeMap::new();
    for service in draft.services.iter() {
        let Some(hostname) = service.external.as_ref().and_then(|one| one.hostname.as_ref()) else {
            continue;
        };
        if let Some(own) = mesh_service_with_hostname(draft, hostname) {
            findings.push(called_as(service, own, hostname));
        }
        for port in &service.ports {
            if let Some(first) = known.insert((hostname, port.number), service) {
                let port = format!("port `{}` of `{hostname}`", port.number);
                findings.push(called_the_same(service, first, &port));
            }
        }
        // With only one HTTP port, callers may omit the port.
        let mut http = service.ports.iter().filter(|port| port.protocol.is_http());
        if let (Some(_), None) = (http.next(), http.next())
            && let Some(first) = without_port.insert(hostname, service)
        {
            findings.push(called_the_same(
                service,
                first,
                &format!("hostname `{hostname}` without a port"),
            ));
        }
    }
    for split in draft.traffic_splits.iter() {
        let backends = split.backends.iter().map(|backend| (&backend.service, &backend.spot));
        for (name, spot) in backends.chain([(&split.service, &split.spot)]) {
            let service = draft.services.get(&(name.namespace.clone(), name.name.clone()));
            let external = service.filter(|service| service.external.is_some());
            findings.extend(external.map(|service| split_outside(service, spot)));
        }
    }
    draft.findings.extend(findings);
}

/// The service of the mesh with this hostname.
pub(super) fn mesh_service_with_hostname<'a>(
    draft: &Draft<'a>,
    hostname: &Hostname,
) -> Option<&'a Service> {
    let (name, namespace) = hostname.as_str().split_once('.')?;
    draft.services.get(&(Name::new(namespace).ok()?, Name::new(name).ok()?))
}

fn called_as(service: &Service, own: &Service, hostname: &Hostname) -> Finding {
    let message = format!("hostname `{hostname}` already belongs to service `{}`", own.name);
    Finding::error(codes::DUPLICATE_NAME, Some(service.spot.clone()), message)
        .label("outside of the mesh")
        .related(own.spot.clone(), "in the mesh")
        .help("give the external service its whole hostname")
}

/// The finding for a hostname of two services: a call could belong to either.
fn called_the_same(service: &Service, first: &Service, what: &str) -> Finding {
    let message = format!("two services have {what}");
    Finding::error(codes::DUPLICATE_NAME, Some(service.spot.clone()), message)
        .label("the second")
        .related(first.spot.clone(), "the first")
        .help("define it once, and name its account in the targets of all who may call it")
}

/// The finding for a split across the mesh's border: the server's proxy authorizes callers, and an external
/// service has none.
fn split_outside(service: &Service, spot: &Spot) -> Finding {
    let message = format!("splits cannot use external service `{}`", service.name.name);
    Finding::error(codes::SPLIT_SHAPE, Some(spot.clone()), message)
        .label("an external service")
        .related(service.spot.clone(), "it is defined here")
        .help("name services of the mesh")
}
