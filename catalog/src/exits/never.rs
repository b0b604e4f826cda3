//! Where no proxy lets anybody go, whatever policy says by a wildcard, a name or a wide range: what is the
//! machine's own, or the mesh's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ip_range::IpRange;
use crate::proxy::Proxy;

/// The ports of the control plane (docs/reference/names.md).
const CONTROL_PLANE_PORTS: [u16; 3] = [15014, 15128, 15129];

/// All ports of the mesh's own: those of proxies and of control planes.
pub fn mesh_ports() -> impl Iterator<Item = u16> {
    Proxy::OWN_PORTS.into_iter().chain(CONTROL_PLANE_PORTS)
}

/// The addresses that are never called, in words as well. Clouds tell machines their secrets at some of
/// them.
pub fn never_called() -> impl Iterator<Item = (IpRange, &'static str)> {
    let v4 = |a, b, c, d| IpAddr::V4(Ipv4Addr::new(a, b, c, d));
    let v6 = |a, b, g, h| IpAddr::V6(Ipv6Addr::new(a, b, 0, 0, 0, 0, g, h));
    let mapped = IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0));
    ranges([
        (v4(0, 0, 0, 0), 8, "no address of another machine"),
        (v4(169, 254, 0, 0), 16, "link-local, where clouds have their metadata"),
        (v4(168, 63, 129, 16), 32, "Azure's own"),
        (v6(0, 0, 0, 0), 128, "no address of another machine"),
        (mapped, 96, "IPv4 written as IPv6"),
        (v6(0xfe80, 0, 0, 0), 10, "link-local"),
        (v6(0xfd00, 0xec2, 0, 0x254), 128, "where AWS has its metadata"),
    ])
}

/// Each machine's own loopback. It is never called either, but by proxies whose own mesh address is one of
/// it: then the mesh is one of this machine.
pub fn loopback() -> impl Iterator<Item = IpRange> {
    let all = [
        (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8, ""),
        (IpAddr::V6(Ipv6Addr::LOCALHOST), 128, ""),
    ];
    ranges(all).map(|(range, _)| range)
}

fn ranges<const N: usize>(
    all: [(IpAddr, u8, &'static str); N],
) -> impl Iterator<Item = (IpRange, &'static str)> {
    let range = |(address, length, what)| Some((IpRange::around(address, length)?, what));
    all.into_iter().filter_map(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_never_called_is_named_by_its_ranges() {
        let named: Vec<_> = never_called().map(|(range, _)| range.to_string()).collect();
        let expected = [
            "0.0.0.0/8",
            "169.254.0.0/16",
            "168.63.129.16/32",
            "::/128",
            "::ffff:0.0.0.0/96",
            "fe80::/10",
            "fd00:ec2::254/128",
        ];
        assert_eq!(named, expected);
        assert_eq!(
            loopback().map(|one| one.to_string()).collect::<Vec<_>>(),
            ["127.0.0.0/8", "::1/128"]
        );
        assert!(mesh_ports().any(|port| port == Proxy::MESH_PORT));
    }
}
