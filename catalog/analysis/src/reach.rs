//! The service ports that an account may call.

use std::collections::BTreeSet;

use ironmesh_catalog::{OpenCallers, Port, Service, ServiceAccount, ServicePort, Snapshot};

/// The ports of services of the mesh to which policy allows `account` some access. Ports of subsets and apexes are those of
/// the services behind them, so they are not listed.
pub fn reachable_ports(snapshot: &Snapshot, account: &ServiceAccount) -> BTreeSet<ServicePort> {
    let services = snapshot.specification.services.values();
    let inside = services.filter(|service| service.external.is_none() && !service.is_subset());
    let ports = inside.flat_map(|service| {
        service.service_ports().map(move |(service_port, port)| (service, service_port, port))
    });
    ports
        .filter(|(service, _, port)| is_reachable(snapshot, account, service, port))
        .map(|(_, service_port, _)| service_port)
        .collect()
}

/// Whether policy allows an account some access to a service port; to that of a subset as to that of its service.
pub fn is_port_reachable(
    snapshot: &Snapshot,
    account: &ServiceAccount,
    port: &ServicePort,
) -> bool {
    let served = snapshot.served_port(port);
    snapshot.service(&served.service).is_some_and(|service| {
        let port = service.port(served.port);
        port.is_some_and(|port| is_reachable(snapshot, account, service, port))
    })
}

fn is_reachable(
    snapshot: &Snapshot,
    account: &ServiceAccount,
    service: &Service,
    port: &Port,
) -> bool {
    match service.open_callers(snapshot.mode_of(service)) {
        Some(OpenCallers::All) => true,
        Some(OpenCallers::Namespace(namespace)) => account.namespace == *namespace,
        None => {
            let specification = &snapshot.specification;
            service.is_visible_in(&account.namespace)
                && !snapshot
                    .grants
                    .allowed_traffic(specification, account, service, port)
                    .is_empty()
        }
    }
}
