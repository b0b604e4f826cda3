//! The query of policy for endpoints in Azure.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A query to Azure for some of its machines.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AzureQuery {
    /// The machines.
    pub machines: AzureMachines,
    /// Their subscription. Default: that of the settings. A GUID in lower case.
    pub subscription: Option<Arc<str>>,
    /// Their resource group. Default: that of the settings. In lower case.
    pub resource_group: Option<Arc<str>>,
    /// Their tags with values; for a scale set its own tags. (Azure compares tag names without case, so they
    /// are in lower case here; values as they are.)
    pub tags: BTreeMap<Arc<str>, Arc<str>>,
    /// The port of the application. Default: the target of the service port.
    pub port: Option<u16>,
    /// The address family of the endpoint.
    pub address_family: AddressFamily,
    /// Whether the machines may join the mesh as the service without a token, by Azure's attested document.
    /// Default: they may not.
    pub join: Option<JoinRank>,
}

/// The rank of a service among those as which one machine joins. A machine calls as the account of its first
/// service, so policy decides which one that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JoinRank {
    /// The service comes before secondary ones.
    Primary,
    /// The service comes after primary ones.
    Secondary,
}

impl JoinRank {
    /// Both, with the words that policy uses.
    pub const ALL: [(&'static str, Self); 2] =
        [("primary", Self::Primary), ("secondary", Self::Secondary)];
}

impl fmt::Display for JoinRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
        })
    }
}

/// The machines of a query to Azure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AzureMachines {
    /// Machines of scale sets: of the set with this name (in lower case), or of all sets with the tags. Never
    /// without both.
    ScaleSet(Option<Arc<str>>),
    /// Machines with the tags that are in no scale set. Never without tags.
    VirtualMachines,
}

/// A family of IP addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum AddressFamily {
    /// IPv4.
    #[default]
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl AddressFamily {
    /// Both, with the words that policy uses.
    pub const ALL: [(&'static str, Self); 2] = [("ipv4", Self::Ipv4), ("ipv6", Self::Ipv6)];
}

impl fmt::Display for AddressFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        })
    }
}

impl fmt::Display for AzureQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.machines {
            AzureMachines::ScaleSet(Some(name)) => {
                write!(f, "those of the scale set `{name}` in Azure")?;
            }
            AzureMachines::ScaleSet(None) => f.write_str("those of scale sets in Azure")?,
            AzureMachines::VirtualMachines => f.write_str("virtual machines in Azure")?,
        }
        let tags = self.tags.iter().map(|(name, value)| format!(", tag `{name}` = `{value}`"));
        let parts =
            [("subscription", &self.subscription), ("resource group", &self.resource_group)];
        let given = parts.iter().filter_map(|(what, value)| Some((what, value.as_ref()?)));
        let parts = given.map(|(what, value)| format!(", {what} `{value}`"));
        let port = self.port.map(|port| format!(", port {port}"));
        let family = (self.address_family != AddressFamily::default())
            .then(|| format!(", by {}", self.address_family));
        let join = self.join.map(|join| format!(", which join as a {join} service"));
        let rest = port.into_iter().chain(family).chain(join);
        tags.chain(parts).chain(rest).try_for_each(|part| f.write_str(&part))
    }
}
