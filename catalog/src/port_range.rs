//! Ranges of ports.

use std::fmt;

/// A range of ports, both ends included: `8081`, `20000-32000`.
///
/// Invariant: the first is at least 1 and at most the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// The range from `first` to `last`; `None` if it is invalid.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        (1..=last).contains(&first).then_some(Self { first, last })
    }

    /// Parses `FIRST-LAST`, or one port.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |digits: &str| {
            let is_number = digits.len() <= 5 && digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse().ok().filter(|_| is_number)
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Self::new(number(first)?, number(last)?)
    }

    /// Whether it contains `port`.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { first, last } if first == last => write!(f, "{first}"),
            Self { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_range_text_round_trips_and_invalid_text_is_rejected() {
        for text in ["1", "8081", "20000-32000", "1-65535"] {
            assert_eq!(PortRange::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["", "0", "0-1", "2-1", "+1", "1-", "-1", "65536", "1-65536", "1-2-3", " 1", "a"]
        {
            assert_eq!(PortRange::parse(text), None, "{text}");
        }
        let range = PortRange::parse("20000-32000").unwrap();
        let inside = [19_999, 20_000, 32_000, 32_001].map(|port| range.contains(port));
        assert_eq!(inside, [false, true, true, false]);
    }
}
