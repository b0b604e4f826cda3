//! Ranges of IP addresses in CIDR form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A range of IP addresses: `10.0.0.0/8`, `2001:db8::/32`.
///
/// Invariant: the address has no bits after the prefix, so equal ranges are equal values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IpRange {
    address: IpAddr,
    length: u8,
}

impl IpRange {
    /// The range of one address. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { address, length: bits(address) }
    }

    /// The range of all addresses with the first `length` bits of `address`; `None` if it has fewer.
    pub fn around(address: IpAddr, length: u8) -> Option<Self> {
        let host_bits = u32::from(bits(address).checked_sub(length)?);
        let address = match address {
            IpAddr::V4(one) => {
                let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(one.to_bits() & mask))
            }
            IpAddr::V6(one) => {
                let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(one.to_bits() & mask))
            }
        };
        Some(Self { address, length })
    }

    /// Its first address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// The length of its prefix in bits.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Whether it contains all of `other`.
    pub fn includes(self, other: Self) -> bool {
        self.length <= other.length && Self::around(other.address, self.length) == Some(self)
    }
}

/// A text that is not a range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("address range `{text}` {problem}: write one as `10.1.0.0/16` or `10.1.2.3/32`")]
pub struct InvalidIpRange {
    /// The text.
    pub text: String,
    /// The problem, as a continuation of "the range".
    pub problem: &'static str,
}

impl TryFrom<String> for IpRange {
    type Error = InvalidIpRange;

    fn try_from(text: String) -> Result<Self, InvalidIpRange> {
        text.parse()
    }
}

impl From<IpRange> for String {
    fn from(range: IpRange) -> Self {
        range.to_string()
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for IpRange {
    type Err = InvalidIpRange;

    fn from_str(text: &str) -> Result<Self, InvalidIpRange> {
        let invalid = |problem| InvalidIpRange { text: text.to_owned(), problem };
        let (address, length) =
            text.split_once('/').ok_or_else(|| invalid("has no prefix length"))?;
        let address: IpAddr =
            address.parse().map_err(|_| invalid("does not begin with an IP address"))?;
        let is_number = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
        let range = length.parse().ok().filter(|_| is_number);
        let range = range.and_then(|length| Self::around(address, length));
        let range = range.ok_or_else(|| invalid("has an invalid prefix length"))?;
        if range.address != address {
            return Err(invalid("has address bits after its prefix"));
        }
        Ok(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_range_parses_only_in_canonical_form() {
        for good in ["10.0.0.0/8", "10.1.2.3/32", "0.0.0.0/0", "2001:db8::/32", "::/0", "::1/128"] {
            assert_eq!(good.parse::<IpRange>().unwrap().to_string(), good);
        }
        let bad = ["10.0.0.1/8", "10.0.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8"];
        for bad in bad.into_iter().chain(["/8", "10.0.0/8", "10.0.0.0/8/8", "a.example/8"]) {
            assert!(bad.parse::<IpRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ip_range_error_names_the_problem_and_the_form() {
        for (bad, problem) in [
            ("10.0.0.0", "has no prefix length"),
            ("a.example/8", "does not begin with an IP address"),
            ("10.0.0.0/33", "has an invalid prefix length"),
            ("10.0.0.1/8", "has address bits after its prefix"),
        ] {
            let error = bad.parse::<IpRange>().unwrap_err().to_string();
            let begin = format!("address range `{bad}` {problem}: write one as ");
            assert!(error.starts_with(&begin), "{error}");
        }
    }

    #[test]
    fn ip_range_includes_longer_prefixes_of_the_same_family() {
        let includes = |wide: &str, narrow: &str| {
            wide.parse::<IpRange>().unwrap().includes(narrow.parse().unwrap())
        };
        for narrow in ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32"] {
            assert!(includes("10.0.0.0/8", narrow) && includes("0.0.0.0/0", narrow), "{narrow}");
            assert!(!includes("::/0", narrow) && !includes("11.0.0.0/8", narrow), "{narrow}");
        }
        assert!(!includes("10.1.0.0/16", "10.0.0.0/8"));
        assert!(includes("2001:db8::/32", "2001:db8:1::/48"));
    }

    #[test]
    fn single_address_range_has_the_full_prefix_of_its_family() {
        let of = |text: &str| IpRange::of(text.parse().unwrap()).to_string();
        assert_eq!(of("10.1.2.3"), "10.1.2.3/32");
        assert_eq!(of("::ffff:10.1.2.3"), "10.1.2.3/32");
        assert_eq!(of("2001:db8::1"), "2001:db8::1/128");
    }
}
