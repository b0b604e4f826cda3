//! The ports of a sidecar on its own machine, besides the mesh port (docs/reference/names.md).

/// Envoy's admin interface, where it is on a TCP port.
pub const ADMIN: u16 = 15000;

/// Statistics and readiness, and nothing else of the admin interface.
pub const METRICS: u16 = 15010;

/// The HTTP listener that routes calls by `Host`.
pub const OUTBOUND_HTTP: u16 = 15080;

#[cfg(test)]
mod tests {
    use ironmesh_catalog::reserved_ports;

    use super::*;

    #[test]
    fn ports_are_reserved() {
        for port in [ADMIN, METRICS, OUTBOUND_HTTP] {
            assert!(reserved_ports::PROXY_PORTS.contains(&port), "{port}");
        }
    }
}
