//! Origins: from a resource back to the policy behind it, so that a NACK can name file and line.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use ironmesh_catalog::telemetries::Telemetries;
use ironmesh_catalog::{
    Cited, EffectiveSetting, Egress, Grant, HttpRoute, IngressBackend, Level, LogSink, Name, Proxy,
    Reach, RouteRule, Service, ServiceAccount, ServiceName, ServicePort, ServiceSecret, Snapshot,
    Spot, Telemetry, TrafficSplit, TrafficTarget, UpstreamSettings,
};
use ironmesh_xds_wire::ResourceType;

use crate::inbound::LISTENER as INBOUND_LISTENER;

/// The maximum number of objects that are named.
const MAX_ORIGINS: usize = 5;

/// An object of policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Its kind and name: ``traffic target `default/buyers` ``.
    pub object: String,
    /// Its source location.
    pub spot: Spot,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.object, self.spot)
    }
}

/// The policy behind a resource of `proxy`, the likeliest first. An object that `error` quotes is
/// likelier: Envoy quotes an expression that it rejects.
pub fn origins(
    snapshot: &Snapshot,
    proxy: &Proxy,
    resource_type: ResourceType,
    name: &str,
    error: &str,
) -> Vec<Origin> {
    let mut trace = Trace { snapshot, error, quoted: Vec::new(), others: Vec::new() };
    let prefixes = ["inbound|", "upstream|", "ingress|", "counted|", "callers|", "withdrawn:"];
    let rest = prefixes.into_iter().find_map(|prefix| name.strip_prefix(prefix));
    let rest = rest.or_else(|| name.strip_prefix("authz:")).unwrap_or(name);
    if let Ok(secret) = name.parse::<ServiceSecret>() {
        let account = match secret {
            ServiceSecret::Own => {
                let first = proxy.record.services.first().and_then(|name| snapshot.service(name));
                first.map(|first| first.account.clone())
            }
            ServiceSecret::OfAccount(account) => Some(account),
        };
        if let Some(account) = account {
            trace.account(&account);
        }
    } else if let Some((service, port)) = service_port(snapshot, rest) {
        let is_authorization =
            ["inbound|", "authz:", "withdrawn:"].iter().any(|prefix| name.starts_with(prefix));
        // The rules of an external service are in the routes of its callers.
        let has_rules = is_authorization || service.external.is_some();
        if has_rules && resource_type != ResourceType::Listener {
            trace.callers(service);
        }
        if name.starts_with("inbound|") || name.starts_with("ingress|") {
            trace.ingress(&port.service);
        }
        if resource_type == ResourceType::Listener {
            // The listener of a declared upstream has the telemetry of the proxy's own calls.
            trace.telemetry(proxy.record.services.first());
        }
        trace.splits(&port.service);
        if resource_type == ResourceType::Route && !is_authorization {
            trace.treated(service);
        }
        let has_settings = [ResourceType::Cluster, ResourceType::Route].contains(&resource_type)
            || name.starts_with("counted|");
        if has_settings {
            trace.upstream_settings(service);
        }
        trace.service(service);
    } else if let Some(collector) = name.strip_prefix("telemetry|") {
        trace.collector(collector);
    } else {
        if resource_type == ResourceType::Listener {
            trace.telemetry(&proxy.record.services);
        }
        // The inbound listener, or the routes by host: all services that the proxy serves, or
        // calls.
        for service in proxy.record.services.iter().filter_map(|name| snapshot.service(name)) {
            if resource_type == ResourceType::Route {
                trace.calls(&service.account);
            }
            trace.service(service);
            if name == INBOUND_LISTENER {
                trace.ingress(&service.name);
            }
        }
        if resource_type == ResourceType::Route {
            for egress in snapshot.specification.egresses.values() {
                trace.egress(proxy, egress);
            }
            for split in snapshot.specification.traffic_splits.values() {
                trace.split(split);
            }
            for route in snapshot.specification.http_routes.values() {
                trace.http_route(route);
            }
            for retry in snapshot.specification.retries.values() {
                trace.cited(Cited::retry(retry));
            }
        }
    }
    let Trace { mut quoted, others, .. } = trace;
    if quoted.is_empty() {
        quoted = others;
    }
    quoted.truncate(MAX_ORIGINS);
    quoted
}

/// Parses `<namespace>/<service>|<port>`, with anything after it.
fn service_port<'a>(snapshot: &'a Snapshot, text: &str) -> Option<(&'a Service, ServicePort)> {
    let mut parts = text.split('|');
    let service = snapshot.service(&parts.next()?.parse().ok()?)?;
    let port = parts.next()?.parse().ok()?;
    Some((service, ServicePort::new(service.name.clone(), port)))
}

struct Trace<'a> {
    snapshot: &'a Snapshot,
    error: &'a str,
    quoted: Vec<Origin>,
    others: Vec<Origin>,
}

impl Trace<'_> {
    fn add(&mut self, is_quoted: bool, object: String, spot: &Spot) {
        let list = if is_quoted { &mut self.quoted } else { &mut self.others };
        let origin = Origin { object, spot: spot.clone() };
        if !list.contains(&origin) {
            list.push(origin);
        }
    }

    fn service(&mut self, service: &Service) {
        self.add(false, format!("service `{}`", service.name), &service.spot);
    }

    fn upstream_settings(&mut self, service: &Service) {
        let settings = UpstreamSettings::of(&self.snapshot.specification);
        for EffectiveSetting { by, .. } in settings.effective(service) {
            self.add(false, by.object, &by.spot);
        }
    }

    fn account(&mut self, account: &ServiceAccount) {
        let services = self.snapshot.specification.services.clone();
        for service in services.values().filter(|service| service.account == *account) {
            self.service(service);
        }
    }

    /// Adds the targets by which a service may be called.
    fn callers(&mut self, service: &Service) {
        self.targets(|grant| grant.destinations.contains(&service.account));
    }

    /// Adds the targets by which an account may call.
    fn calls(&mut self, account: &ServiceAccount) {
        self.targets(|grant| grant.sources.contains(account));
    }

    /// Adds the targets whose grant is `wanted`, in their current text.
    fn targets(&mut self, wanted: impl Fn(&Grant) -> bool) {
        let snapshot = self.snapshot;
        for (key, _) in snapshot.grants.by_target().iter().filter(|(_, grant)| wanted(grant)) {
            if let Some(target) = snapshot.specification.traffic_targets.get(key) {
                self.target(target);
            }
        }
    }

    fn target(&mut self, target: &TrafficTarget) {
        let (namespace, name) = (&target.namespace, &target.name);
        self.add(false, format!("traffic target `{namespace}/{name}`"), &target.spot);
        for rule in &target.rules {
            if let RouteRule::Http { group, .. } = rule {
                self.group(namespace, group);
            }
        }
    }

    /// Adds an egress of the account as which the proxy calls.
    fn egress(&mut self, proxy: &Proxy, egress: &Egress) {
        let caller = proxy.record.services.first().and_then(|name| self.snapshot.service(name));
        if caller.is_some_and(|caller| egress.sources.contains(&caller.account)) {
            let (namespace, name) = (&egress.namespace, &egress.name);
            self.add(false, format!("egress `{namespace}/{name}`"), &egress.spot);
            for named in &egress.matches {
                self.group(namespace, &named.group);
            }
        }
    }

    /// Adds the ingress backends of a service.
    fn ingress(&mut self, service: &ServiceName) {
        let policies = self.snapshot.specification.ingress_backends.clone();
        for policy in policies.values() {
            let IngressBackend { namespace, name, .. } = &**policy;
            if policy.backends.iter().any(|backend| backend.port.service == *service) {
                self.add(false, format!("ingress backend `{namespace}/{name}`"), &policy.spot);
                for named in &policy.matches {
                    self.group(namespace, &named.group);
                }
            }
        }
    }

    /// Adds the matches of a group.
    fn group(&mut self, namespace: &Name, group: &Name) {
        let groups = &self.snapshot.specification.http_route_groups;
        let Some(found) = groups.get(&(namespace.clone(), group.clone())).cloned() else { return };
        for one in &found.matches {
            let path =
                one.path.iter().flat_map(|path| [Some(&path.text), path.before_query.as_ref()]);
            let mut expressions = path.flatten().chain(one.headers.values());
            let is_quoted = expressions.any(|text: &Arc<str>| self.error.contains(&**text));
            let object = format!("match `{}` of route group `{namespace}/{group}`", one.name);
            self.add(is_quoted, object, &one.spot);
        }
    }

    /// Adds the splits of a service, and of its backends.
    fn splits(&mut self, service: &ServiceName) {
        let splits = self.snapshot.specification.traffic_splits.clone();
        let (mut services, mut visited) = (vec![service.clone()], BTreeSet::new());
        while let Some(service) = services.pop() {
            if !visited.insert(service.clone()) {
                continue;
            }
            for split in splits.values().filter(|split| split.service == service) {
                self.split(split);
                services.extend(split.backends.iter().map(|backend| backend.service.clone()));
            }
        }
    }

    /// Adds the objects that treat calls to a service.
    fn treated(&mut self, service: &Service) {
        let snapshot = self.snapshot;
        let is_about = |route: &&Arc<HttpRoute>| match &route.reach {
            Reach::All(Level::Mesh) => true,
            Reach::All(Level::Namespace(namespace)) => *namespace == service.name.namespace,
            Reach::All(Level::Service(name)) | Reach::Requests(name, _) => *name == service.name,
        };
        for route in snapshot.specification.http_routes.values().filter(is_about) {
            self.http_route(route);
        }
        for retry in snapshot.specification.retries.values() {
            if retry.destinations.iter().any(|one| one.service == service.name) {
                self.cited(Cited::retry(retry));
            }
        }
    }

    fn http_route(&mut self, route: &HttpRoute) {
        let rewrite = route.settings.rewrite.as_ref().and_then(|rewrite| rewrite.path.as_ref());
        let is_quoted = rewrite.is_some_and(|change| self.error.contains(&change.expression()));
        let Cited { object, spot } = Cited::http_route(route);
        self.add(is_quoted, object, &spot);
        if let Reach::Requests(_, matches) = &route.reach {
            for named in matches {
                self.group(&route.namespace, &named.group);
            }
        }
    }

    fn cited(&mut self, Cited { object, spot }: Cited) {
        self.add(false, object, &spot);
    }

    /// Adds the telemetry of these services. Envoy quotes the file that it cannot write.
    fn telemetry<'a>(&mut self, services: impl IntoIterator<Item = &'a ServiceName>) {
        let telemetries = Telemetries::of(&self.snapshot.specification);
        for service in services {
            if let Some((log, by)) = telemetries.access_log(service) {
                let is_quoted = match &log.sink {
                    LogSink::File(path) => self.error.contains(&**path),
                    LogSink::Stdout | LogSink::OpenTelemetry { .. } => false,
                };
                self.add(is_quoted, Cited::from(by).object, &by.spot);
            }
            if let Some((_, by)) = telemetries.tracing(service) {
                self.cited(Cited::from(by));
            }
        }
    }

    /// Adds the telemetry objects that use a collector.
    fn collector(&mut self, collector: &str) {
        let snapshot = self.snapshot;
        let names_collector =
            |one: &&Arc<Telemetry>| one.collectors().any(|known| known.to_string() == collector);
        for one in snapshot.specification.telemetries.values().filter(names_collector) {
            self.cited(Cited::from(&**one));
        }
    }

    fn split(&mut self, split: &TrafficSplit) {
        let (namespace, name) = (&split.namespace, &split.name);
        self.add(false, format!("traffic split `{namespace}/{name}`"), &split.spot);
        for named in &split.matches {
            self.group(namespace, &named.group);
        }
    }
}
