//! Handover: after policy drops a port, its proxy serves it until all callers have ACKed the removal.

use ironmesh_catalog::ServicePort;
use ironmesh_xds_wire::Resource;
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{FilterChain, Listener};

pub use crate::inbound::LISTENER as INBOUND_LISTENER;
use crate::names;

/// The inbound listener `new`, with the filter chains of `old` for these ports added.
///
/// All other chains are those of `new`: a withdrawal from another port applies at once, and an added port is
/// served. Without `new`, the listener serves only these ports. `None` if `old` has no filter chain for them.
pub fn keep_filter_chains(
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
        // Envoy rejects a listener with two chains of the same match.
        !listener.filter_chains.iter().any(|one| one.filter_chain_match == chain.filter_chain_match)
    };
    let kept: Vec<_> = kept.into_iter().filter(is_new).collect();
    listener.filter_chains.extend(kept);
    Some(Resource::new(&listener).urgent())
}

/// Whether a chain belongs to this port. The name of a TCP port's chain ends with the count of
/// withdrawals.
fn serves(chain: &FilterChain, port: &ServicePort) -> bool {
    let rest = chain.name.strip_prefix(names::INBOUND).and_then(|name| {
        let port = port.to_string();
        name.strip_prefix(port.as_str())
    });
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
}
