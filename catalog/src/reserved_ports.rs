//! Reserved ports: the numbers that belong to Ironmesh on every machine (docs/reference/names.md).
//!
//! Policy, providers and egress never use them. The listeners at these ports belong to the sidecar drivers and
//! the control plane.

/// The default mesh port of a proxy.
pub const MESH: u16 = 15003;

/// The ports of a proxy, with future ones. No application listens there, and calls to the first ones change the
/// proxy itself.
pub const PROXY_PORTS: [u16; 8] = [15000, 15001, MESH, 15006, 15010, 15021, 15053, 15080];

/// The ports of the control plane.
const CONTROL_PLANE_PORTS: [u16; 3] = [15014, 15128, 15129];

/// All reserved ports.
pub fn all() -> impl Iterator<Item = u16> {
    PROXY_PORTS.into_iter().chain(CONTROL_PLANE_PORTS)
}
