//! The service ports that an account may call.

use super::*;
use crate::reach::reachable_ports;

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
