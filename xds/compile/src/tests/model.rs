//! A model of who may call whom, derived from policy by plain search instead of an index.

use std::collections::BTreeSet;

use ironmesh_catalog::{
    Port, RouteRule, Service, ServiceAccount, ServicePort, Snapshot, Subject, TrafficTarget,
};

/// Answers the compiler's queries.
pub(super) struct Model<'a>(&'a Snapshot);

impl<'a> Model<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        Self(snapshot)
    }

    /// The SPIFFE IDs that may call a port of a strict service. Each of them must be granted an
    /// existing match, not only a named one.
    pub(super) fn callers_of(&self, service: &Service, port: &Port) -> BTreeSet<String> {
        let trust_domain = &self.0.mesh.trust_domain;
        self.targets()
            .filter(|target| self.is(&target.destination, &service.account))
            .filter(|target| self.grants(target, port, true))
            .flat_map(|target| &target.sources)
            .map(|source| self.account(source))
            .filter(|source| service.is_visible_in(&source.namespace))
            .map(|source| trust_domain.workload(&source).to_string())
            .collect()
    }

    /// The service ports that a target allows `account` to call, those of permissive services, and
    /// their apexes, transitively.
    pub(super) fn callable(&self, account: &ServiceAccount) -> BTreeSet<ServicePort> {
        let services = &self.0.specification.services;
        let granted = |port: &ServicePort| {
            let Some(service) = services.get(&port.service) else { return false };
            let Some(port) = service.port(port.port) else { return false };
            if !service.is_visible_in(&account.namespace) {
                return false;
            }
            self.0.mode_of(service).allows_all()
                || self.targets().any(|target| {
                    self.is(&target.destination, &service.account)
                        && target.sources.iter().any(|source| self.is(source, account))
                        && self.grants(target, port, false)
                })
        };
        let is_visible =
            |port: &ServicePort| services[&port.service].is_visible_in(&account.namespace);
        let all =
            services.values().flat_map(|service| service.service_ports().map(|(port, _)| port));
        all.filter(|port| is_visible(port) && self.reached(port).iter().any(granted)).collect()
    }

    /// A service port, and those that splits lead to from it, whatever their weights.
    pub(super) fn reached(&self, apex: &ServicePort) -> BTreeSet<ServicePort> {
        let services = &self.0.specification.services;
        let is_http = |port: &ServicePort| {
            let port = services.get(&port.service).and_then(|service| service.port(port.port));
            port.map(|port| port.protocol.is_http())
        };
        let mut reached = BTreeSet::from([apex.clone()]);
        loop {
            let known = reached.len();
            for split in self.0.specification.traffic_splits.values() {
                let apex = ServicePort::new(split.service.clone(), apex.port);
                let is_asked = split.matches.is_empty() || is_http(&apex) == Some(true);
                if !reached.contains(&apex) || !is_asked {
                    continue;
                }
                let backends = split.backends.iter();
                let ports = backends.map(|one| ServicePort::new(one.service.clone(), apex.port));
                reached.extend(ports.filter(|port| is_http(port) == is_http(&apex)));
            }
            if reached.len() == known {
                return reached;
            }
        }
    }

    /// Whether the target covers the port; with `must_allow`, also whether the matches that its
    /// HTTP rules name exist.
    fn grants(&self, target: &TrafficTarget, port: &Port, must_allow: bool) -> bool {
        let specification = &self.0.specification;
        let by_tcp = target.rules.iter().any(|rule| match rule {
            RouteRule::Http { .. } => false,
            RouteRule::Tcp { route, .. } => specification
                .tcp_routes
                .get(&(target.namespace.clone(), route.clone()))
                .is_some_and(|route| route.covers(port.number)),
        });
        if !port.protocol.is_http() {
            return by_tcp;
        }
        let mut has_http = false;
        for rule in &target.rules {
            let RouteRule::Http { group, matches, .. } = rule else { continue };
            has_http = true;
            let group =
                specification.http_route_groups.get(&(target.namespace.clone(), group.clone()));
            let allows = group.is_some_and(|group| match matches {
                None => !group.matches.is_empty(),
                Some(names) => group.matches.iter().any(|one| names.contains(&one.name)),
            });
            if allows || !must_allow {
                return true;
            }
        }
        !has_http && by_tcp
    }

    fn is(&self, subject: &Subject, account: &ServiceAccount) -> bool {
        self.account(subject) == *account
    }

    /// The only account of a subject here.
    fn account(&self, subject: &Subject) -> ServiceAccount {
        let (namespace, name) = match subject {
            Subject::Account(account) => return account.clone(),
            Subject::Binding(namespace, name) => (namespace.clone(), name.clone()),
        };
        let binding = &self.0.specification.identity_bindings[&(namespace, name)];
        let of_identity = || {
            let id = binding.identities.first()?.id.as_str();
            let (namespace, name) =
                id.strip_prefix("spiffe://mesh.internal/ns/")?.split_once("/sa/")?;
            format!("{namespace}/{name}").parse().ok()
        };
        binding.account.clone().or_else(of_identity).expect("one of both")
    }

    fn targets(&self) -> impl Iterator<Item = &TrafficTarget> {
        self.0.specification.traffic_targets.values().map(|target| &**target)
    }
}
