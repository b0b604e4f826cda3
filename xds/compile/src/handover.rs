//! What a proxy serves a port with that policy has dropped, for as long as its callers do not know.

use ironmesh_catalog::ServicePort;
use ironmesh_xds_wire::Resource;
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{FilterChain, Listener};

pub use crate::inbound::LISTENER as INBOUND_LISTENER;
use crate::names;

/// How the names of clusters begin that are asked or told about calls, and by which none is led.
pub const ABOUT_CALLS: [&str; 2] = ["rate-limit|", "telemetry|"];

/// The inbound listener `new`, with the filter chains besides by which `old` serves these ports. All
/// else is as in `new`: who was withdrawn from another port is so at once, and a port that is added is
/// served. Where there is no new one, nothing else is served any more.
///
/// `None` where `old` has no such chains: then nothing is to be kept.
pub fn still_serving(
    new: Option<&Resource>,
    old: &Resource,
    ports: &[ServicePort],
) -> Option<Resource> {
    let mut old: Listener = old.message()?;
    let kept: Vec<_> =
        old.filter_chains.extract_if(.., |chain| ports.iter().any(|p| serves(chain, p))).collect();
    if kept.is_empty() {
        return None;
    }
    let mut listener = match new {
        Some(new) => new.message()?,
        None => Listener { filter_chains: Vec::new(), ..old },
    };
    let is_new = |chain: &FilterChain| {
        // Envoy refuses a listener of which two chains match the same.
        !listener.filter_chains.iter().any(|one| one.filter_chain_match == chain.filter_chain_match)
    };
    let kept: Vec<_> = kept.into_iter().filter(is_new).collect();
    listener.filter_chains.extend(kept);
    Some(Resource::new(&listener).urgent())
}

/// Whether a chain is that of this port. Of a TCP port its name goes on with the count of withdrawals.
fn serves(chain: &FilterChain, port: &ServicePort) -> bool {
    let rest = chain.name.strip_prefix(names::INBOUND).and_then(|name| {
        let port = port.to_string();
        name.strip_prefix(port.as_str())
    });
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
}
