//! The model client's view of outputs. It checks some rules in every test with a client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_xds_wire::ResourceType::{
    self, Cluster, Endpoint, ExtensionConfig, Listener, Route, Runtime, Secret,
};
use ironmesh_xds_wire::{Resource, Version};

use super::Client;
use crate::scenarios::dialect::{Dialect, Push, Response};
use crate::stream::{Acked, Nacked, StreamOutput};

impl<V: Dialect> Client<V> {
    pub(super) fn observe(&mut self, outputs: Vec<StreamOutput<V::Response>>) {
        for output in outputs {
            let line = match output {
                StreamOutput::Send(response) => self.receive(response),
                StreamOutput::Acked(Acked { resource_type, names }) => {
                    let mut line = short(resource_type).to_owned();
                    line.extend(names.iter().flat_map(|name| [" ", name]));
                    self.ack_reports.push(line);
                    continue;
                }
                StreamOutput::Nacked(nacked) => self.record_nack(nacked),
                StreamOutput::Late(of) => format!("{} late", short(of)),
                StreamOutput::Close(reason) => format!("closed: {reason}"),
            };
            self.pushes.push(line);
        }
    }

    fn record_nack(&mut self, nacked: Nacked) -> String {
        let Nacked { resource_type: of, resources, error, is_final, .. } = nacked;
        let names: Vec<_> = resources.iter().map(|(name, _)| &**name).collect();
        let outcome = if is_final { "nacked" } else { "bisecting" };
        let line = format!("{} {outcome}: {} ({})", short(of), names.join(" "), error.message);
        if is_final && self.stream.can_attribute_nacks(of) {
            self.nacked.extend(resources.into_iter().map(|(name, version)| ((of, name), version)));
            self.ever_nacked.extend(self.nacked.clone());
            self.nacked.retain(|(of, name), _| self.published.contains(*of, name));
        }
        line
    }

    fn receive(&mut self, response: V::Response) -> String {
        let of = V::pushed(&response, 0).map(|push| push.resource_type);
        let Response { nonce, version, resources, mut removed, is_whole } = V::read(response);
        // R9.
        assert!(nonce > 0 && self.nonces.insert(nonce), "nonces are unique");
        let names: BTreeSet<_> = resources.iter().map(|r| Arc::clone(r.name())).collect();
        let gone: BTreeSet<_> = removed.iter().cloned().collect();
        // R44, R46.
        assert_eq!(names.len(), resources.len(), "a name twice: {resources:?}");
        assert_eq!(gone.len(), removed.len(), "a name twice: {removed:?}");
        assert!(names.is_disjoint(&gone), "both there and removed: {names:?}, {gone:?}");
        let Some(of) = of else { return line("unknown", &resources, &gone) };
        for resource in &resources {
            // R6.
            assert_eq!(resource.resource_type(), of);
            let nacked = self.nacked.get(&(of, Arc::clone(resource.name())));
            // R19.
            assert_ne!(nacked, Some(&resource.version()), "sent what was NACKed: {resource:?}");
        }
        let mut news = resources.clone();
        if is_whole {
            // R41: the response lists all that exists.
            assert_eq!(version, Some(Version::of_all(&resources)));
            let known = self.known(of);
            news.retain(|resource| known.get(resource.name()) != Some(resource));
            removed = known.into_keys().filter(|name| !names.contains(name)).collect();
        }
        let line = line(short(of), &news, &removed.iter().cloned().collect());
        let push = Push { of, nonce, version, resources, news, removed, is_whole };
        self.log.push(push.clone());
        self.open.push(push);
        line
    }

    /// The resources of a type with complete states that the client has or is being sent.
    fn known(&self, of: ResourceType) -> BTreeMap<Arc<str>, Arc<Resource>> {
        if let Some(push) = self.open.iter().rfind(|push| push.of == of) {
            let resources = push.resources.iter().filter(|r| self.covers(of, r.name()));
            return resources.map(|r| (Arc::clone(r.name()), Arc::clone(r))).collect();
        }
        let has = self.has.iter().filter(|((has, _), _)| *has == of);
        has.map(|((_, name), resource)| (Arc::clone(name), Arc::clone(resource))).collect()
    }
}

fn line(what: &str, news: &[Arc<Resource>], removed: &BTreeSet<Arc<str>>) -> String {
    let mut line = what.to_owned();
    let news: BTreeSet<_> = news.iter().map(|resource| resource.name()).collect();
    line.extend(news.into_iter().flat_map(|name| [" +", name]));
    line.extend(removed.iter().flat_map(|name| [" -", name]));
    line
}

fn short(of: ResourceType) -> &'static str {
    match of {
        Runtime => "RTDS",
        ExtensionConfig => "ECDS",
        Secret => "SDS",
        Cluster => "CDS",
        Endpoint => "EDS",
        Listener => "LDS",
        Route => "RDS",
    }
}
