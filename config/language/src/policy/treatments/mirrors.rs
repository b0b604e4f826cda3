//! Mirrors: the services to which calls can be mirrored, and the callers whose calls are.

use std::collections::BTreeSet;

use ironmesh_catalog::splits::Splits;
use ironmesh_catalog::{
    Finding, HttpRoute, Mirror, Mode, Port, Service, ServiceAccount, ServiceName,
};

use crate::codes;
use crate::policy::coverage::has_rule_about;
use crate::policy::draft::Draft;

/// Reports mirrors without a usable destination, and mirrors to a service that gets the calls already.
pub(super) fn check(draft: &Draft<'_>, findings: &mut Vec<Finding>) {
    if draft.http_routes.iter().all(|route| route.settings.mirror.is_none()) {
        return;
    }
    let splits = Splits::new(
        draft.services.iter(),
        draft.http_route_groups.iter(),
        draft.traffic_splits.iter(),
    );
    for route in draft.http_routes.iter() {
        let Some(mirror) = &route.settings.mirror else { continue };
        // A missing service is reported already.
        let Some(to) = service(draft, &mirror.service) else { continue };
        let finding = itself(route, mirror)
            .or_else(|| outside(mirror, to))
            .or_else(|| split(draft, mirror))
            .or_else(|| without_port(draft, route, mirror, to))
            .or_else(|| mirror_without_caller(draft, route, mirror, to))
            .or_else(|| answering(&splits, route, mirror, to));
        findings.extend(finding);
    }
}

fn service<'a>(draft: &Draft<'a>, name: &ServiceName) -> Option<&'a Service> {
    draft.services.get(&(name.namespace.clone(), name.name.clone()))
}

fn error(mirror: &Mirror, message: impl Into<String>) -> Finding {
    Finding::error(codes::MIRROR, Some(mirror.spot.clone()), message)
}

fn itself(route: &HttpRoute, mirror: &Mirror) -> Option<Finding> {
    (route.reach.service() == Some(&mirror.service)).then(|| {
        let message = format!("calls of service `{}` are mirrored to itself", mirror.service.name);
        let finding = error(mirror, message).label("has these calls already");
        finding.help("name another service")
    })
}

/// The sidecar of the caller authorizes calls that leave the mesh, but it authorizes no copies.
fn outside(mirror: &Mirror, to: &Service) -> Option<Finding> {
    to.external.is_some().then(|| {
        let name = &to.name.name;
        error(
            mirror,
            format!("calls are mirrored to service `{name}`, which is outside of the mesh"),
        )
        .label("outside of the mesh")
        .related(to.spot.clone(), "the service is defined here")
        .help("name a service of the mesh, whose sidecar authorizes callers")
    })
}

/// The finding for a mirror to a split service: Envoy sends a copy to one cluster, without conditions and
/// weights.
fn split(draft: &Draft<'_>, mirror: &Mirror) -> Option<Finding> {
    let split = draft.traffic_splits.iter().find(|split| split.service == mirror.service)?;
    let message = format!(
        "calls are mirrored to service `{}`, which has a traffic split",
        mirror.service.name
    );
    Some(
        error(mirror, message)
            .label("its backends answer instead")
            .related(split.spot.clone(), "the split is defined here")
            .help("name one of its backends"),
    )
}

/// The finding for a missing port: a copy goes to the port of the same number.
fn without_port(
    draft: &Draft<'_>,
    route: &HttpRoute,
    mirror: &Mirror,
    to: &Service,
) -> Option<Finding> {
    let is_http = |port: &&Port| port.protocol.is_http();
    let has = |port: &Port| to.port(port.number).is_some_and(|port| port.protocol.is_http());
    let name = &to.name.name;
    let (origin, lacking) = match route.reach.service() {
        None if to.ports.iter().any(|port| is_http(&port)) => return None,
        None => (None, Vec::new()),
        Some(origin) => {
            let origin = service(draft, origin)?;
            let lacking: Vec<_> =
                origin.ports.iter().filter(is_http).filter(|port| !has(port)).collect();
            if lacking.is_empty() {
                return None;
            }
            (Some(origin), lacking)
        }
    };
    let has_some = origin.is_some_and(|origin| origin.ports.iter().filter(is_http).any(has));
    let finding = match &lacking[..] {
        [] => {
            error(mirror, format!("calls are mirrored to service `{name}`, which has no HTTP port"))
        }
        [first, ..] => {
            let message = format!(
                "calls are mirrored to service `{name}`, which has no HTTP port {}",
                first.number
            );
            let spot = Some(mirror.spot.clone());
            if has_some {
                Finding::warning(codes::MIRROR, spot, message)
            } else {
                error(mirror, message)
            }
        }
    };
    Some(
        finding
            .label("gets no copy there")
            .related(to.spot.clone(), "the service is defined here")
            .help("a copy goes to the port of the same number: give it one, with `target_port` where its application listens"),
    )
}

/// Calls of a caller that may not call the service itself are not mirrored to it.
fn mirror_without_caller(
    draft: &Draft<'_>,
    route: &HttpRoute,
    mirror: &Mirror,
    to: &Service,
) -> Option<Finding> {
    // An object with an error may be the one that grants access.
    if draft.findings.has_errors() {
        return None;
    }
    let callers = callers(draft, to)?;
    let origin = route.reach.service().and_then(|name| service(draft, name));
    let has_splits =
        |origin: &&Service| draft.traffic_splits.iter().any(|split| split.service == origin.name);
    let concerned = match &route.sources {
        Some(sources) => Some(sources.iter().cloned().collect()),
        None => origin
            .filter(|origin| !has_splits(origin))
            .and_then(|origin| self::callers(draft, origin)),
    };
    let is_idle = match concerned {
        // (Another check reports a service that no caller may call.)
        Some(concerned) => !concerned.is_empty() && callers.is_disjoint(&concerned),
        None => callers.is_empty(),
    };
    let (name, account) = (&to.name.name, &to.account.name);
    is_idle.then(|| {
        let message = format!(
            "nothing is mirrored to service `{name}`: no caller of these calls may call it"
        );
        Finding::warning(codes::MIRROR, Some(mirror.spot.clone()), message)
            .label("gets no copy")
            .related(to.spot.clone(), format!("it runs as `{account}`"))
            .help(format!(
                "let a traffic target with the destination `{account}` have the same sources"
            ))
    })
}

/// A service that answers all calls needs no copies of them. If other backends may answer a call, its backend
/// is not known in advance, so the mirror is useful.
fn answering(
    splits: &Splits<'_>,
    route: &HttpRoute,
    mirror: &Mirror,
    to: &Service,
) -> Option<Finding> {
    let origin = splits.service(route.reach.service()?)?;
    let known = splits.paths_from(&origin.name);
    let mut paths = Vec::new();
    for (port, _) in origin.service_ports().filter(|(_, port)| port.protocol.is_http()) {
        match known.get(&port) {
            Some(Ok(some)) => {
                let backends = some.iter().map(|path| &path.backends);
                paths.extend(backends.map(|all| all.iter().map(|(name, _)| *name).collect()));
            }
            // Another check reports these as too many.
            Some(Err(_)) => return None,
            None => paths.push(vec![&origin.name]),
        }
    }
    let is_to = |path: &Vec<&ServiceName>| path.as_slice() == [&to.name];
    let has_some = |path: &Vec<&ServiceName>| {
        path.contains(&&to.name) || (to.is_subset() && path.contains(&to.served_as()))
    };
    let name = &to.name.name;
    let message = if !paths.is_empty() && paths.iter().all(is_to) {
        format!("nothing is mirrored to service `{name}`: it answers all of these calls")
    } else if paths.iter().any(|path| has_some(path) && !is_to(path)) {
        format!(
            "service `{name}` gets calls of service `{}` twice: it answers some of those that are mirrored to it",
            origin.name.name
        )
    } else {
        return None;
    };
    let finding = Finding::warning(codes::MIRROR, Some(mirror.spot.clone()), message)
        .label("has these calls already");
    let finding = match splits.of(&origin.name) {
        [] => finding.related(to.spot.clone(), "its endpoints are some of those of the service"),
        [first, ..] => finding.related(first.spot.clone(), "the split is defined here"),
    };
    Some(finding.help("name a service that answers none of these calls"))
}

/// The accounts that may call a service; `None` if all may, or if policy alone does not determine them.
fn callers(draft: &Draft<'_>, to: &Service) -> Option<BTreeSet<ServiceAccount>> {
    let namespace = &to.name.namespace;
    let namespace = draft.namespaces.get(&(namespace.clone(), namespace.clone()));
    let mode = to.mode.or_else(|| namespace?.mode);
    if mode.is_some_and(Mode::allows_all) {
        return None;
    }
    let ports: Vec<_> = to.ports.iter().filter(|port| port.protocol.is_http()).collect();
    let mut callers = BTreeSet::new();
    for target in draft.traffic_targets.iter() {
        let destinations = draft.accounts_of(&target.destination)?;
        let is_about = |port: &&Port| has_rule_about(draft, target, port);
        if destinations.contains(&to.account) && ports.iter().any(is_about) {
            for source in &target.sources {
                callers.extend(draft.accounts_of(source)?);
            }
        }
    }
    callers.retain(|account| to.is_visible_in(&account.namespace));
    Some(callers)
}
