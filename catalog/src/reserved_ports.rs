//! Reserved ports: the numbers that belong to Ironmesh on every machine (docs/reference/names.md).
//!
//! Policy, providers and egress never lead to them. The model knows only that they are taken: what listens
//! there is for the sidecar drivers and the control plane to say.

/// The port on which the mesh reaches a proxy, where its join record names no other.
pub const MESH: u16 = 15003;

/// Those of a proxy, with what is still to come. No application listens there, and what is sent to the first
/// of them changes the proxy itself.
pub const OF_PROXIES: [u16; 8] = [15000, 15001, MESH, 15006, 15010, 15021, 15053, 15080];

/// Those of the control plane.
const OF_CONTROL_PLANES: [u16; 3] = [15014, 15128, 15129];

/// All of them.
pub fn all() -> impl Iterator<Item = u16> {
    OF_PROXIES.into_iter().chain(OF_CONTROL_PLANES)
}
