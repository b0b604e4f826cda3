//! Mirrors: whether calls can be mirrored to whom they name, and whose.

use std::collections::BTreeSet;

use ironmesh_catalog::splits::Splits;
use ironmesh_catalog::{
    Finding, HttpRoute, Mirror, Mode, Port, Service, ServiceAccount, ServiceName,
};

use crate::codes;
use crate::policy::coverage::covers;
use crate::policy::draft::Draft;

/// Tells mirrors that lead nowhere, or to who has the calls already.
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
        // One that is not there has been told already.
        let Some(to) = service(draft, &mirror.service) else { continue };
        let finding = itself(route, mirror)
            .or_else(|| outside(mirror, to))
            .or_else(|| split(draft, mirror))
            .or_else(|| without_port(draft, route, mirror, to))
            .or_else(|| uncalled(draft, route, mirror, to))
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

/// What goes outside is judged by the caller's sidecar, which judges no copies.
fn outside(mirror: &Mirror, to: &Service) -> Option<Finding> {
    to.external.is_some().then(|| {
        let name = &to.name.name;
        error(
            mirror,
            format!("calls are mirrored to service `{name}`, which is outside of the mesh"),
        )
        .label("outside of the mesh")
        .related(to.spot.clone(), "the service is defined here")
        .help("name a service of the mesh, whose sidecar judges who calls")
    })
}

/// Envoy sends a copy to one cluster, and knows of no conditions and weights there.
fn split(draft: &Draft<'_>, mirror: &Mirror) -> Option<Finding> {
    let split = draft.traffic_splits.iter().find(|split| split.service == mirror.service)?;
    let message = format!(
        "calls are mirrored to service `{}`, which has a traffic split",
        mirror.service.name
    );
    Some(
        error(mirror, message)
            .label("others answer for it")
            .related(split.spot.clone(), "the split is defined here")
            .help("name one of its backends"),
    )
}

/// A copy goes to the port of the same number.
fn without_port(
    draft: &Draft<'_>,
    route: &HttpRoute,
    mirror: &Mirror,
    to: &Service,
) -> Option<Finding> {
    let is_http = |port: &&Port| port.protocol.is_http();
    let has = |port: &Port| to.port(port.number).is_some_and(|port| port.protocol.is_http());
    let name = &to.name.name;
    let (asked, lacking) = match route.reach.service() {
        None if to.ports.iter().any(|port| is_http(&port)) => return None,
        None => (None, Vec::new()),
        Some(asked) => {
            let asked = service(draft, asked)?;
            let lacking: Vec<_> =
                asked.ports.iter().filter(is_http).filter(|port| !has(port)).collect();
            if lacking.is_empty() {
                return None;
            }
            (Some(asked), lacking)
        }
    };
    let has_some = asked.is_some_and(|asked| asked.ports.iter().filter(is_http).any(has));
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

/// Of whoever may not call the service itself, no call is mirrored to it.
fn uncalled(
    draft: &Draft<'_>,
    route: &HttpRoute,
    mirror: &Mirror,
    to: &Service,
) -> Option<Finding> {
    // What is wrong may have been meant to allow what nothing seems to.
    if draft.findings.has_errors() {
        return None;
    }
    let callers = callers(draft, to)?;
    let asked = route.reach.service().and_then(|name| service(draft, name));
    let has_splits =
        |asked: &&Service| draft.traffic_splits.iter().any(|split| split.service == asked.name);
    let concerned = match &route.sources {
        Some(sources) => Some(sources.iter().cloned().collect()),
        None => {
            asked.filter(|asked| !has_splits(asked)).and_then(|asked| self::callers(draft, asked))
        }
    };
    let is_idle = match concerned {
        // (That nobody may call the service itself is told elsewhere.)
        Some(concerned) => !concerned.is_empty() && callers.is_disjoint(&concerned),
        None => callers.is_empty(),
    };
    let (name, account) = (&to.name.name, &to.account.name);
    is_idle.then(|| {
        let message = format!(
            "nothing is mirrored to service `{name}`: nobody may call it whose calls this is about"
        );
        Finding::warning(codes::MIRROR, Some(mirror.spot.clone()), message)
            .label("gets no copy")
            .related(to.spot.clone(), format!("it runs as `{account}`"))
            .help(format!(
                "let a traffic target with the destination `{account}` have the same sources"
            ))
    })
}

/// Who answers calls needs no copies of them. A call that goes one way to nobody else has none; of one that may
/// go to others it is not known before.
fn answering(
    splits: &Splits<'_>,
    route: &HttpRoute,
    mirror: &Mirror,
    to: &Service,
) -> Option<Finding> {
    let asked = splits.service(route.reach.service()?)?;
    let known = splits.paths_from(&asked.name);
    let mut ways = Vec::new();
    for (port, _) in asked.service_ports().filter(|(_, port)| port.protocol.is_http()) {
        match known.get(&port) {
            Some(Ok(some)) => {
                let backends = some.iter().map(|way| &way.backends);
                ways.extend(backends.map(|all| all.iter().map(|(name, _)| *name).collect()));
            }
            // Those are too many, which is told.
            Some(Err(_)) => return None,
            None => ways.push(vec![&asked.name]),
        }
    }
    let is_to = |way: &Vec<&ServiceName>| way.as_slice() == [&to.name];
    let has_some = |way: &Vec<&ServiceName>| {
        way.contains(&&to.name) || (to.is_subset() && way.contains(&to.served_as()))
    };
    let name = &to.name.name;
    let message = if !ways.is_empty() && ways.iter().all(is_to) {
        format!("nothing is mirrored to service `{name}`: it answers all of these calls")
    } else if ways.iter().any(|way| has_some(way) && !is_to(way)) {
        format!(
            "service `{name}` gets calls of service `{}` twice: it answers some of those that are mirrored to it",
            asked.name.name
        )
    } else {
        return None;
    };
    let finding = Finding::warning(codes::MIRROR, Some(mirror.spot.clone()), message)
        .label("has these calls already");
    let finding = match splits.of(&asked.name) {
        [] => finding.related(to.spot.clone(), "its endpoints are some of those of the service"),
        [first, ..] => finding.related(first.spot.clone(), "the split is defined here"),
    };
    Some(finding.help("name a service that answers none of these calls"))
}

/// The accounts that may ask something of a service; `None` where that may be any, or is not known by policy
/// alone.
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
        let is_about =
            |port: &&Port| target.rules.iter().any(|rule| covers(draft, target, rule, port));
        if destinations.contains(&to.account) && ports.iter().any(is_about) {
            for source in &target.sources {
                callers.extend(draft.accounts_of(source)?);
            }
        }
    }
    callers.retain(|account| to.is_visible_in(&account.namespace));
    Some(callers)
}
