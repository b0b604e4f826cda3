//! The name of a proxy, for people. It authorizes nothing, and no resource carries it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::name::{InvalidName, ServiceName};
use crate::proxy::{JoinRecord, ProxyId};

/// The name of a proxy, unique among those in use: letters in lower case, digits, `-`, `_` and `.`, as in a hostname.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProxyName(Arc<str>);

impl ProxyName {
    /// The longest name, in characters: that of a hostname.
    pub const MAX_LENGTH: usize = 253;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `count` names `<service>-<n>` that no record has, with the lowest numbers.
    pub fn defaults<'a>(
        service: &ServiceName,
        count: usize,
        records: impl IntoIterator<Item = &'a JoinRecord>,
    ) -> Vec<Self> {
        let used: BTreeSet<_> =
            records.into_iter().filter_map(|record| record.name.as_ref()).collect();
        let name = |number: usize| Self(format!("{}-{number}", service.name).into());
        (1..).map(name).filter(|name| !used.contains(name)).take(count).collect()
    }
}

impl FromStr for ProxyName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let is_alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let is_part = |b: u8| is_alphanumeric(b) || matches!(b, b'-' | b'_' | b'.');
        let ends = [text.bytes().next(), text.bytes().next_back()];
        let problem = if text.is_empty() {
            "is empty"
        } else if text.len() > Self::MAX_LENGTH {
            "is longer than 253 characters"
        } else if !text.bytes().all(is_part) {
            "may only have `a-z`, `0-9`, `-`, `_` and `.`"
        } else if !ends.into_iter().flatten().all(is_alphanumeric) {
            "must begin and end with a letter or a digit"
        } else {
            return Ok(Self(text.into()));
        };
        Err(InvalidName { text: text.to_owned(), problem })
    }
}

/// The name of a proxy without a name of its own.
impl From<ProxyId> for ProxyName {
    fn from(id: ProxyId) -> Self {
        Self(id.to_string().into())
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
    use std::net::SocketAddr;

    use jiff::Timestamp;
    use uuid::Uuid;

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

    #[test]
    fn default_names_have_the_lowest_free_numbers() {
        let service: ServiceName = "shop/web".parse().unwrap();
        let record = |name: Option<&str>| JoinRecord {
            name: name.map(|name| name.parse().unwrap()),
            ..JoinRecord::new(
                ProxyId(Uuid::nil()),
                vec![service.clone()],
                SocketAddr::from(([10, 0, 0, 1], 15003)),
                Timestamp::UNIX_EPOCH,
                Timestamp::MAX,
            )
        };
        let records = [record(Some("web-2")), record(None), record(Some("other-1"))];
        let names = ProxyName::defaults(&service, 3, &records);
        assert_eq!(
            names.iter().map(ProxyName::as_str).collect::<Vec<_>>(),
            ["web-1", "web-3", "web-4"]
        );
    }
}
