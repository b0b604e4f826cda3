//! What policy says of the endpoints that Azure knows.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What Azure is asked for: some of its machines.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AzureQuery {
    /// Which machines.
    pub machines: AzureMachines,
    /// The subscription that they are in; what the settings say where it is left out. A GUID, in lower case.
    pub subscription: Option<Arc<str>>,
    /// The resource group that they are in; likewise. In lower case.
    pub resource_group: Option<Arc<str>>,
    /// The tags that they have, with their values: of a scale set its own ones. (Azure compares the names of
    /// tags without case, and they are in lower case here; values as they are.)
    pub tags: BTreeMap<Arc<str>, Arc<str>>,
    /// The port where the application listens; the service port's target where it is left out.
    pub port: Option<u16>,
    /// Which of a machine's addresses is taken.
    pub address_family: AddressFamily,
}

/// Which machines of Azure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AzureMachines {
    /// Those of scale sets: of the one of this name (in lower case), or of all that have the tags. Never
    /// without both.
    ScaleSet(Option<Arc<str>>),
    /// Those that have the tags, and are in no scale set. Never without tags.
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
        let places =
            [("subscription", &self.subscription), ("resource group", &self.resource_group)];
        let told = places.iter().filter_map(|(what, value)| Some((what, value.as_ref()?)));
        let places = told.map(|(what, value)| format!(", {what} `{value}`"));
        let port = self.port.map(|port| format!(", port {port}"));
        let family = (self.address_family != AddressFamily::default())
            .then(|| format!(", by {}", self.address_family));
        tags.chain(places).chain(port).chain(family).try_for_each(|part| f.write_str(&part))
    }
}
