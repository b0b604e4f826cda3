//! Target ports at which no application is known to listen.

use std::collections::BTreeSet;

use crate::codes::PORT_WITHOUT_LISTENER;
use crate::finding::Finding;
use crate::service::{Port, Service};
use crate::snapshot::Snapshot;

impl Service {
    /// A warning for the ports whose target is none of `listening`, the ports of all known endpoints: a typing
    /// error in `target_port` shows so. None where an endpoint has no port, because it may listen at each
    /// target; none of a service with one port either, where the ports of endpoints count (IM0510).
    pub(crate) fn ports_without_listener(
        &self,
        listening: impl IntoIterator<Item = Option<u16>>,
    ) -> Option<Finding> {
        if self.ports.len() < 2 || self.is_subset() || self.external.is_some() {
            return None;
        }
        let listening: BTreeSet<u16> = listening.into_iter().collect::<Option<_>>()?;
        let is_without = |port: &&Port| !listening.contains(&port.target);
        let without: Vec<_> = self.ports.iter().filter(is_without).map(in_words).collect();
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
            .label("a target port without a known listener")
            .help("correct `target_port`, or register an instance with that port");
        Some(finding)
    }
}

fn in_words(port: &Port) -> String {
    format!("port {} (target port {})", port.number, port.target)
}

impl Snapshot {
    /// The services that have target ports at which none of their known endpoints listens.
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
