//! Random instances, as a provider finds them.

use std::net::{IpAddr, Ipv4Addr};

use ironmesh_catalog::{Endpoint, Health, JoinRecord, Locality, Provider};
use proptest::option;
use proptest::prelude::*;

use super::Shape;

/// An instance in numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct InstanceShape {
    port: u16,
    weight: u32,
    health: Health,
    zone: Option<char>,
    is_named: bool,
}

pub(super) fn instance() -> impl Strategy<Value = InstanceShape> {
    let health = prop_oneof![
        3 => Just(Health::Healthy),
        1 => Just(Health::Draining),
        1 => Just(Health::Unhealthy),
    ];
    let zone = option::of(prop_oneof![Just('a'), Just('b')]);
    let instance = (8080..8083_u16, 1..4_u32, health, zone, any::<bool>());
    instance.prop_map(|(port, weight, health, zone, is_named)| InstanceShape {
        port,
        weight,
        health,
        zone,
        is_named,
    })
}

impl Shape {
    /// This fleet with one instance of its service behind its proxy.
    pub(in crate::tests) fn with_instance(mut self, health: Health, weight: u32) -> Self {
        let instance = InstanceShape { port: 80, weight, health, zone: None, is_named: true };
        if let Some(service) = self.services.first_mut() {
            service.found = vec![(0, instance)];
            service.is_listed = true;
        }
        self
    }
}

impl InstanceShape {
    /// The instance at the address of a proxy, or at one without a proxy.
    pub(super) fn at(self, record: Option<&JoinRecord>) -> Endpoint {
        let nobody = IpAddr::V4(Ipv4Addr::new(10, 2, 0, 1));
        let address = record.map_or(nobody, |record| record.mesh_address.ip());
        let zone = self.zone.map(|zone| zone.to_string().into()).unwrap_or_default();
        Endpoint {
            port: Some(self.port),
            weight: self.weight,
            health: self.health,
            proxy: record.filter(|_| self.is_named).map(|record| record.id),
            locality: Locality { zone, ..Locality::default() },
            ..Endpoint::new(Provider::Consul, address)
        }
    }
}
