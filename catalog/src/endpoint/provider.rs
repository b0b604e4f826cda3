//! The table of endpoints providers: their names, and who controls what they report.
//!
//! Every list of providers elsewhere follows from this table.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A source of endpoints. Ordered by precedence: for one address and port, the earlier provider wins.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// A list in policy.
    Static,
    /// Consul.
    Consul,
    /// Azure: scale sets and virtual machines.
    Azure,
    /// An enrolled proxy, which is an endpoint by itself.
    Registered,
}

/// Who controls what a provider reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProviderKind {
    /// The authors of policy, who list its endpoints there.
    Policy,
    /// Anyone with write access to a different system, who chooses addresses, ports and labels
    /// (docs/decisions/0051). It may be unreachable.
    External,
    /// The control plane: its join records are the endpoints.
    JoinRecords,
}

impl Provider {
    /// All providers, in order of precedence.
    pub const ALL: [Self; 4] = [Self::Static, Self::Consul, Self::Azure, Self::Registered];

    /// The row of a provider: its name in policy, JSON and messages, its title for people, and its kind.
    const fn row(self) -> (&'static str, &'static str, ProviderKind) {
        match self {
            Self::Static => ("static", "Static list", ProviderKind::Policy),
            Self::Consul => ("consul", "Consul", ProviderKind::External),
            Self::Azure => ("azure", "Azure", ProviderKind::External),
            Self::Registered => ("registered", "Enrolled proxies", ProviderKind::JoinRecords),
        }
    }

    /// Its name in policy, JSON and messages.
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// Its title for people.
    pub const fn title(self) -> &'static str {
        self.row().1
    }

    /// Who controls what it reports.
    pub(crate) const fn kind(self) -> ProviderKind {
        self.row().2
    }

    /// Whether it is an external provider, which queries a different system.
    pub fn is_external(self) -> bool {
        self.kind() == ProviderKind::External
    }

    /// The external providers, in order of precedence.
    pub fn external() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|provider| provider.is_external())
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer;
    use serde::de::value::Error;

    use super::*;

    #[test]
    fn provider_table_is_sorted_by_precedence_and_named_as_in_json() {
        assert!(Provider::ALL.is_sorted());
        for provider in Provider::ALL {
            let read = Provider::deserialize(IntoDeserializer::<Error>::into_deserializer(
                provider.name(),
            ));
            assert_eq!(read, Ok(provider));
        }
    }
}
