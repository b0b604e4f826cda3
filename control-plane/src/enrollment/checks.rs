//! The checks of what a new proxy may be: its services, its address and the keys of its machine.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ironmesh_api::MAX_KNOWN_AS;
use ironmesh_catalog::{MeshSpecification, ServiceName};
use ironmesh_config_language::closest;
use uuid::Uuid;

/// Rejects services that policy does not define, or that no proxy serves: the proxy would serve nothing without any
/// error. `upstreams` must only be defined.
pub(crate) fn check_services<'a>(
    specification: Option<&MeshSpecification>,
    services: &'a [ServiceName],
    upstreams: impl IntoIterator<Item = &'a ServiceName>,
) -> Result<(), String> {
    if services.is_empty() {
        return Err("a proxy serves at least one service: name one".to_owned());
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = services.iter().find(|service| !seen.insert(*service)) {
        return Err(format!("the service `{twice}` is named twice"));
    }
    let specification =
        specification.ok_or_else(|| "no policy is active yet: see `ironmesh status`".to_owned())?;
    let known = |name| specification.services.get(name);
    if let Some(part) = services.iter().filter_map(known).find(|one| one.is_subset()) {
        let (part, whole) = (&part.name, part.served_as());
        return Err(format!(
            "`{part}` is a subset of the service `{whole}`: enroll the proxy for `{whole}`, with the labels of the subset (`--label`)"
        ));
    }
    let mut defined = services.iter().filter_map(known);
    if let Some(external) = defined.find(|one| one.external.is_some()) {
        let name = &external.name;
        return Err(format!("the service `{name}` is external to the mesh: no proxy serves it"));
    }
    let named = services.iter().chain(upstreams);
    let unknown = named.into_iter().find(|name| known(name).is_none());
    unknown.map_or(Ok(()), |name| Err(undefined(specification, name)))
}

/// The error about a service that policy does not define.
fn undefined(specification: &MeshSpecification, name: &ServiceName) -> String {
    let known: Vec<_> = specification.services.keys().map(ToString::to_string).collect();
    let near = closest(&name.to_string(), known.iter().map(String::as_str));
    let advice = match (near, known.as_slice()) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, []) => "it defines none".to_owned(),
        (None, few @ [_, ..]) if few.len() <= 10 => format!("it defines: {}", few.join(", ")),
        (None, many) => format!("it defines {} others", many.len()),
    };
    format!("policy defines no service `{name}`; {advice}")
}

/// Rejects an address to which callers cannot connect.
pub(crate) fn check_address(address: IpAddr) -> Result<(), String> {
    if address.is_unspecified() || address.is_multicast() {
        return Err(format!(
            "callers cannot connect to a proxy at {address}: give an address of its machine"
        ));
    }
    Ok(())
}

/// Rejects keys by which no provider knows a machine. Several proxies cannot share one machine's keys.
pub(crate) fn check_known_as(
    addresses: &[IpAddr],
    machine: Option<Uuid>,
    proxies: usize,
) -> Result<(), String> {
    let mut unusable = addresses.iter().filter(|ip| ip.is_unspecified() || ip.is_multicast());
    if let Some(bad) = unusable.next() {
        return Err(format!(
            "a provider cannot know a machine by {bad}: give an address of the machine"
        ));
    }
    if addresses.len() > MAX_KNOWN_AS {
        return Err(format!("a machine is known by at most {MAX_KNOWN_AS} addresses"));
    }
    if proxies > 1 && !addresses.is_empty() {
        return Err("several proxies cannot be known by the same addresses".to_owned());
    }
    if machine.is_some_and(|machine| machine.is_nil()) {
        return Err("no machine has this key: it is all zeros".to_owned());
    }
    if proxies > 1 && machine.is_some() {
        return Err("several proxies cannot be known by the same machine".to_owned());
    }
    Ok(())
}
