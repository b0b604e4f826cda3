//! The name of a proxy, for people. It authorizes nothing, and no resource carries it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::name::InvalidName;

/// The name of a proxy, unique among those in use: letters in lower case, digits, `-`, `_` and `.`, as in a hostname.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProxyName(pub(crate) Arc<str>);

impl ProxyName {
    /// The longest name, in characters: that of a hostname.
    pub const MAX_LENGTH: usize = 253;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProxyName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let invalid = |problem| InvalidName { text: text.to_owned(), problem };
        if text.len() > Self::MAX_LENGTH {
            return Err(invalid("is longer than 253 characters"));
        }
        problem_in_hostname(text).map_or_else(|| Ok(Self(text.into())), |p| Err(invalid(p)))
    }
}

/// Why a text has not the form of a hostname, whatever its length.
pub(crate) fn problem_in_hostname(text: &str) -> Option<&'static str> {
    let is_alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_part = |b: u8| is_alphanumeric(b) || matches!(b, b'-' | b'_' | b'.');
    let ends = [text.bytes().next(), text.bytes().next_back()];
    if text.is_empty() {
        Some("is empty")
    } else if !text.bytes().all(is_part) {
        Some("may only have `a-z`, `0-9`, `-`, `_` and `.`")
    } else if !ends.into_iter().flatten().all(is_alphanumeric) {
        Some("must begin and end with a letter or a digit")
    } else {
        None
    }
}

impl TryFrom<String> for ProxyName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<ProxyName> for String {
    fn from(name: ProxyName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for ProxyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostnames_are_names_and_other_texts_are_not() {
        for good in ["a", "web-1", "vm_3.eu.example.com", "0"] {
            assert_eq!(good.parse::<ProxyName>().unwrap().as_str(), good);
        }
        let long = "a".repeat(254);
        for bad in ["", "-a", "a.", "Web", "a b", "a/b", "ä", "a\n", &long] {
            assert!(bad.parse::<ProxyName>().is_err(), "{bad:?}");
        }
    }
}
