//! The address ranges that proxies block for every caller, whatever policy allows by a wildcard, a name or a range.
//!
//! They belong to the machine, to its cloud or to the mesh.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ip_range::IpRange;

/// The blocked address ranges, each with a description. At some of them clouds hand out secrets of machines. Each
/// IPv4 range is also listed in the IPv6 forms that translators use.
pub fn blocked_ranges() -> impl Iterator<Item = (IpRange, &'static str)> {
    let embedded = v4().into_iter().chain([LOOPBACK]).flat_map(|range| embedded(range, range.2));
    ranges(v4()).chain(ranges(v6())).chain(embedded)
}

/// An IPv4 address, the prefix length of the range around it, and a description.
type RangeV4 = (Ipv4Addr, u8, &'static str);

const LOOPBACK: RangeV4 = (Ipv4Addr::new(127, 0, 0, 0), 8, "a machine's own loopback");

fn v4() -> [RangeV4; 5] {
    [
        (Ipv4Addr::UNSPECIFIED, 8, "no address of another machine"),
        (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local, where clouds have their metadata"),
        (Ipv4Addr::new(168, 63, 129, 16), 32, "Azure's own"),
        (Ipv4Addr::new(100, 100, 100, 200), 32, "where Alibaba Cloud has its metadata"),
        (Ipv4Addr::new(192, 0, 0, 192), 32, "where Oracle Cloud has its metadata"),
    ]
}

fn v6() -> [(Ipv6Addr, u8, &'static str); 8] {
    let v6 = Ipv6Addr::new;
    [
        (v6(0, 0, 0, 0, 0, 0, 0, 0), 128, "no address of another machine"),
        (v6(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, "IPv4 written as IPv6"),
        (v6(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, "IPv4 translated to IPv6"),
        // Each network decides where the IPv4 address is in it (RFC 8215).
        (v6(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "NAT64 of a network's own"),
        (v6(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
        (v6(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32, "where AWS has its metadata"),
        (v6(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, "where Google Cloud has its metadata"),
        (v6(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42), 128, "where Scaleway has its metadata"),
    ]
}

/// A range of IPv4 as NAT64 (RFC 6052), 6to4 (RFC 3056) and the old form of IPv4 in IPv6 (RFC 4291) write it.
fn embedded(
    (address, length, _): RangeV4,
    what: &'static str,
) -> impl Iterator<Item = (IpRange, &'static str)> {
    let bits = u128::from(address.to_bits());
    let nat64 = (0x0064_ff9b << 96 | bits, 96 + length);
    let six_to_four = (0x2002 << 112 | bits << 80, 16 + length);
    // (Of 0.0.0.0/8 and of the loopback these are IPv6's own, `::1` among them.)
    let compatible = (length > 8).then_some((bits, 96 + length));
    let all = [Some(nat64), Some(six_to_four), compatible].into_iter().flatten();
    let range = |(bits, length)| IpRange::around(IpAddr::V6(Ipv6Addr::from(bits)), length);
    all.filter_map(range).map(move |range| (range, what))
}

/// The loopback ranges. They are blocked too, except for proxies with a loopback mesh address: then the whole mesh
/// runs on one machine.
pub fn loopback() -> impl Iterator<Item = IpRange> {
    let all = [
        (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8, ""),
        (IpAddr::V6(Ipv6Addr::LOCALHOST), 128, ""),
    ];
    ranges(all).map(|(range, _)| range)
}

fn ranges<A: Into<IpAddr>, const N: usize>(
    all: [(A, u8, &'static str); N],
) -> impl Iterator<Item = (IpRange, &'static str)> {
    let range = |(address, length, what): (A, u8, _)| {
        Some((IpRange::around(address.into(), length)?, what))
    };
    all.into_iter().filter_map(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_called_addresses_have_the_expected_ranges() {
        let named: Vec<_> = blocked_ranges().map(|(range, _)| range.to_string()).collect();
        let expected = [
            "0.0.0.0/8",
            "169.254.0.0/16",
            "168.63.129.16/32",
            "100.100.100.200/32",
            "192.0.0.192/32",
            "::/128",
            "::ffff:0.0.0.0/96",
            "::ffff:0:0:0/96",
            "64:ff9b:1::/48",
            "fe80::/10",
            "fd00:ec2::/32",
            "fd20:ce::254/128",
            "fd00:42::42/128",
            "64:ff9b::/104",
            "2002::/24",
            "64:ff9b::a9fe:0/112",
            "2002:a9fe::/32",
            "::a9fe:0/112",
            "64:ff9b::a83f:8110/128",
            "2002:a83f:8110::/48",
            "::a83f:8110/128",
            "64:ff9b::6464:64c8/128",
            "2002:6464:64c8::/48",
            "::6464:64c8/128",
            "64:ff9b::c000:c0/128",
            "2002:c000:c0::/48",
            "::c000:c0/128",
            "64:ff9b::7f00:0/104",
            "2002:7f00::/24",
        ];
        assert_eq!(named, expected);
        assert_eq!(
            loopback().map(|one| one.to_string()).collect::<Vec<_>>(),
            ["127.0.0.0/8", "::1/128"]
        );
        // Addresses of other machines are not blocked.
        for free in ["64:ff9b::808:808", "2002:808:808::1", "10.0.0.1", "::1", "fd12::1"] {
            let free = IpRange::of(free.parse().unwrap());
            assert!(!blocked_ranges().any(|(never, _)| never.includes(free)), "{free}");
        }
    }
}
