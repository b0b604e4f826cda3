//! The draft: all that the documents say together, while it is not yet known to be valid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;
use ironmesh_catalog::{
    Egress, Finding, HttpRoute, HttpRouteGroup, IdentityBinding, IngressBackend, MeshSpecification,
    Namespace, PolicyRevision, Retry, Service, ServiceAccount, ServiceName, Spot, Subject,
    TcpRoute, Telemetry, TrafficSplit, TrafficTarget, UpstreamTrafficSetting,
};

use super::part::{Definition, Definitions, Key, Part, Reference};
use crate::codes;
use crate::findings::Findings;

/// What the one kind is called whose objects are in no namespace.
const NAMESPACE: &str = "namespace";

/// All that the documents say.
#[derive(Debug, Default)]
pub(super) struct Draft<'a> {
    pub(super) findings: Findings,
    pub(super) namespaces: Objects<'a, Namespace>,
    pub(super) services: Objects<'a, Service>,
    pub(super) traffic_targets: Objects<'a, TrafficTarget>,
    pub(super) http_route_groups: Objects<'a, HttpRouteGroup>,
    pub(super) tcp_routes: Objects<'a, TcpRoute>,
    pub(super) traffic_splits: Objects<'a, TrafficSplit>,
    pub(super) identity_bindings: Objects<'a, IdentityBinding>,
    pub(super) http_routes: Objects<'a, HttpRoute>,
    pub(super) retries: Objects<'a, Retry>,
    pub(super) upstream_traffic_settings: Objects<'a, UpstreamTrafficSetting>,
    pub(super) ingress_backends: Objects<'a, IngressBackend>,
    pub(super) telemetries: Objects<'a, Telemetry>,
    pub(super) egresses: Objects<'a, Egress>,
    /// The accounts that services run as.
    pub(super) accounts: BTreeSet<&'a ServiceAccount>,
    /// What objects refer to, whether or not the rest of them is valid.
    pub(super) references: Vec<&'a Reference>,
    /// Names that something unreadable may define. They are never said to be missing.
    pub(super) may_be_defined: BTreeSet<&'a str>,
    /// Something unreadable may define anything at all.
    pub(super) anything_may_be_defined: bool,
}

impl<'a> Draft<'a> {
    /// Puts `part` behind those that are there already.
    pub(super) fn add(&mut self, part: &'a Part) {
        let findings = &mut self.findings;
        findings.extend(part.findings.iter().cloned());
        findings.have_more(part.has_more);
        self.namespaces.add(NAMESPACE, &part.namespaces, findings);
        self.services.add("service", &part.services, findings);
        self.traffic_targets.add("traffic target", &part.traffic_targets, findings);
        self.http_route_groups.add("HTTP route group", &part.http_route_groups, findings);
        self.tcp_routes.add("TCP route", &part.tcp_routes, findings);
        self.traffic_splits.add("traffic split", &part.traffic_splits, findings);
        self.identity_bindings.add("identity binding", &part.identity_bindings, findings);
        self.http_routes.add("HTTP route", &part.http_routes, findings);
        self.retries.add("retry", &part.retries, findings);
        self.upstream_traffic_settings.add(
            "upstream traffic setting",
            &part.upstream_traffic_settings,
            findings,
        );
        self.ingress_backends.add("ingress backend", &part.ingress_backends, findings);
        self.telemetries.add("telemetry", &part.telemetries, findings);
        self.egresses.add("egress", &part.egresses, findings);
        self.accounts.extend(&part.accounts);
        self.references.extend(&part.references);
        self.may_be_defined.extend(part.may_be_defined.iter().map(String::as_str));
    }

    /// Whether all that the documents say could be read and fits together, so that what seems to be
    /// missing is.
    pub(super) fn is_whole(&self) -> bool {
        !self.anything_may_be_defined && !self.findings.has_errors()
    }

    /// The accounts that a subject of a traffic target may come to; `None` where that is not known by
    /// policy alone.
    pub(super) fn accounts_of(&self, subject: &Subject) -> Option<Vec<ServiceAccount>> {
        let (namespace, name) = match subject {
            Subject::Account(account) => return Some(vec![account.clone()]),
            Subject::Binding(namespace, name) => (namespace.clone(), name.clone()),
        };
        let binding = self.identity_bindings.get(&(namespace, name))?;
        let identities = binding.identities.iter().filter_map(|one| Some(one.id.workload()?.1));
        let accounts = binding.account.iter().cloned().chain(identities);
        binding.endpoint_labels.is_none().then(|| accounts.collect())
    }

    /// The specification, for a draft without errors. It shares with the one `before` all that is the
    /// same in both.
    pub(super) fn into_specification(
        self,
        revision: PolicyRevision,
        before: &MeshSpecification,
    ) -> MeshSpecification {
        let name = |(namespace, name): &Key| ServiceName::new(namespace.clone(), name.clone());
        MeshSpecification {
            revision,
            namespaces: self.namespaces.onto(&before.namespaces, |(_, name)| name.clone()),
            services: self.services.onto(&before.services, name),
            traffic_targets: self.traffic_targets.onto(&before.traffic_targets, Key::clone),
            http_route_groups: self.http_route_groups.onto(&before.http_route_groups, Key::clone),
            tcp_routes: self.tcp_routes.onto(&before.tcp_routes, Key::clone),
            traffic_splits: self.traffic_splits.onto(&before.traffic_splits, Key::clone),
            identity_bindings: self.identity_bindings.onto(&before.identity_bindings, Key::clone),
            http_routes: self.http_routes.onto(&before.http_routes, Key::clone),
            retries: self.retries.onto(&before.retries, Key::clone),
            upstream_traffic_settings: self
                .upstream_traffic_settings
                .onto(&before.upstream_traffic_settings, Key::clone),
            ingress_backends: self.ingress_backends.onto(&before.ingress_backends, Key::clone),
            telemetries: self.telemetries.onto(&before.telemetries, Key::clone),
            egresses: self.egresses.onto(&before.egresses, Key::clone),
        }
    }
}

/// The objects of one kind, by their names.
#[derive(Debug)]
pub(super) struct Objects<'a, T>(BTreeMap<&'a Key, &'a Definition<T>>);

impl<'a, T> Objects<'a, T> {
    /// Takes what is defined. The second of a name is told, and what it says is not looked at further.
    fn add(&mut self, kind: &str, definitions: &'a Definitions<T>, findings: &mut Findings) {
        for definition in &definitions.0 {
            let Some(first) = self.0.get(&definition.key) else {
                self.0.insert(&definition.key, definition);
                continue;
            };
            // What is recovered near a syntax error may have been meant to have another name.
            if definition.is_damaged {
                continue;
            }
            let (namespace, name) = &definition.key;
            let place = if kind == NAMESPACE {
                String::new()
            } else {
                format!(" in namespace `{namespace}`")
            };
            let message = format!("{kind} `{name}` is defined twice{place}");
            let spot = definition.spot.clone();
            findings.push(
                Finding::error(codes::DUPLICATE_NAME, Some(spot), message)
                    .label("defined again")
                    .related(first.spot.clone(), "first defined here"),
            );
        }
    }

    /// The spot of a name that is defined, validly or not.
    pub(super) fn spot(&self, key: &Key) -> Option<&Spot> {
        self.0.get(key).map(|definition| &definition.spot)
    }

    /// The object of that name, if it could be read.
    pub(super) fn get(&self, key: &Key) -> Option<&'a T> {
        self.0.get(key).and_then(|definition| object(definition)).map(|object| &**object)
    }

    /// All names that are defined, validly or not.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'a Key> + Clone {
        self.0.keys().copied()
    }

    /// The objects that could be read, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a T> {
        self.valid().map(|(_, object)| &**object)
    }

    /// The same, as they are shared.
    pub(super) fn shared(&self) -> impl Iterator<Item = &'a Arc<T>> {
        self.valid().map(|(_, object)| object)
    }

    fn valid(&self) -> impl Iterator<Item = (&'a Key, &'a Arc<T>)> {
        self.0.iter().filter_map(|(key, definition)| Some((*key, object(definition)?)))
    }

    /// The map of them, made out of the one `before`: it shares with that what is the same value in
    /// both, so that the difference between the two costs as much as it is large. (What says the same in
    /// another place is another value: findings name the place.)
    fn onto<K: Ord + Clone>(
        self,
        before: &OrdMap<K, Arc<T>>,
        key: impl Fn(&Key) -> K,
    ) -> OrdMap<K, Arc<T>> {
        let mut map = before.clone();
        let mut names = BTreeSet::new();
        for (name, object) in self.valid() {
            let name = key(name);
            if !map.get(&name).is_some_and(|known| Arc::ptr_eq(known, object)) {
                map.insert(name.clone(), Arc::clone(object));
            }
            names.insert(name);
        }
        for name in before.keys().filter(|name| !names.contains(*name)) {
            map.remove(name);
        }
        map
    }
}

fn object<T>(definition: &Definition<T>) -> Option<&Arc<T>> {
    definition.object.as_ref().ok()
}

impl<T> Default for Objects<'_, T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}
