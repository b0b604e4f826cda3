//! The service ports that an account may call.

use super::*;
use crate::reach::{is_port_reachable, reachable_ports};

#[test]
fn reachable_ports_follow_grants_modes_and_visibility() {
    let mut mesh = mesh();
    let ports = |mesh: &MeshSpecification, caller: &str| -> Vec<_> {
        let ports = reachable_ports(&snapshot(mesh.clone()), &caller.parse().unwrap());
        ports.iter().map(ToString::to_string).collect()
    };
    assert_eq!(ports(&mesh, "shop/buyer"), ["shop/v1|80"], "not the apex that leads there");
    assert_eq!(ports(&mesh, "shop/cook"), ["shop/ledger|3306"], "of two ports one has a route");
    assert_eq!(ports(&mesh, "shop/ledger"), [""; 0]);
    let mut v2 = service("v2", &HTTP);
    v2.mode = Some(Mode::Audit);
    v2.visibility = Visibility::Private;
    mesh.services.insert(v2.name.clone(), Arc::new(v2));
    assert_eq!(ports(&mesh, "shop/ledger"), ["shop/v2|80"], "audit allows the namespace");
    assert_eq!(ports(&mesh, "bank/ledger"), [""; 0]);
}

#[test]
fn single_port_is_reachable_exactly_if_it_is_listed() {
    let snapshot = snapshot(mesh());
    for caller in ["shop/buyer", "shop/cook", "shop/ledger", "bank/ledger"] {
        let caller = caller.parse().unwrap();
        let listed = reachable_ports(&snapshot, &caller);
        let services = snapshot.specification.services.values();
        for (port, _) in services.flat_map(|service| service.service_ports()) {
            let is_reachable = is_port_reachable(&snapshot, &caller, &port);
            assert_eq!(is_reachable, listed.contains(&port), "{caller} {port}");
        }
    }
    let buyer = "shop/buyer".parse().unwrap();
    let missing = ServicePort::new("shop/v1".parse().unwrap(), 81);
    assert!(!is_port_reachable(&snapshot, &buyer, &missing));
}
