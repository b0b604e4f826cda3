//! Findings about target ports without a known application.

use std::collections::BTreeSet;

use crate::codes::PORT_WITHOUT_LISTENER;
use crate::finding::Finding;
use crate::service::{Port, Service};
use crate::snapshot::Snapshot;

impl Service {
    /// A warning about ports whose target is not among `listening`, the ports of all known endpoints, as after
    /// a typing error in `target_port`. None if an endpoint has no port, because it may listen at each target,
    /// and none for a service with one port, which uses the ports of endpoints (IM0510).
    pub(crate) fn ports_without_listener(
        &self,
        listening: impl IntoIterator<Item = Option<u16>>,
    ) -> Option<Finding> {
        if self.ports.len() < 2 || self.is_subset() || self.external.is_some() {
            return None;
        }
        let listening: BTreeSet<u16> = listening.into_iter().collect::<Option<_>>()?;
        let is_without = |port: &&Port| !listening.contains(&port.target);
        let without: Vec<_> = self.ports.iter().filter(is_without).map(port_text).collect();
        if listening.is_empty() || without.is_empty() {
            return None;
        }
        let listening: Vec<_> = listening.iter().map(ToString::to_string).collect();
        let message = format!(
            "no known endpoint of service `{}` listens at the target of {}: the endpoints have port {}",
            self.name,
            without.join(", "),
            listening.join(", ")
        );
        let finding = Finding::warning(PORT_WITHOUT_LISTENER, Some(self.spot.clone()), message)
            .object(&self.name)
            .label("a target port without a known listener")
            .help("correct `target_port`, or register an instance with that port");
        Some(finding)
    }
}

fn port_text(port: &Port) -> String {
    format!("port {} (target port {})", port.number, port.target)
}

impl Snapshot {
    /// Warnings about services with target ports at which no known endpoint listens.
    pub fn ports_without_listener(&self) -> Vec<Finding> {
        let discovered = self.inputs().discovered;
        let of_service = |service: &Service| {
            let known = discovered.0.get(&service.name)?;
            let listening = known.iter().filter(|one| one.exclusion.is_none()).map(|one| one.port);
            service.ports_without_listener(listening)
        };
        self.specification.services.values().filter_map(|service| of_service(service)).collect()
    }
}
