//! The versions of the programs of a proxy, as they were known last.

use serde::{Deserialize, Serialize};

use crate::unknown_fields::UnknownFields;

/// The versions of the programs of a proxy, as they were known last. They outlive its connection, so that a report about
/// the fleet includes machines that are off.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyVersions {
    /// That of its Envoy; none before its first connection, or if it runs a different program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envoy: Option<String>,
    /// That of the agent of its machine; none without an agent, or of one that does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The fields of a newer version, which are stored again with the record.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

impl ProxyVersions {
    /// The most bytes of a version.
    pub const MAX_BYTES: usize = 40;

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a text of a machine may be recorded as a version, such as `0.2.0` or `1.40.0-dev`.
    pub fn is_valid(version: &str) -> bool {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".+-_".contains(&byte);
        (1..=Self::MAX_BYTES).contains(&version.len())
            && version.starts_with(|first: char| first.is_ascii_digit())
            && version.bytes().all(is_allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_a_short_word_that_begins_with_a_digit() {
        for good in ["0.2.0", "1.40.0-dev", "1.2.3+build_5"] {
            assert!(ProxyVersions::is_valid(good), "{good}");
        }
        let long = "1".repeat(ProxyVersions::MAX_BYTES + 1);
        for bad in ["", "v1", "1 2", "1\n", "1.0\u{202e}", "other", &long] {
            assert!(!ProxyVersions::is_valid(bad), "{bad}");
        }
    }
}
