//! Machines, their network interfaces and scale sets, as they are read from answers. Pure.
//!
//! It is lenient with each entry for itself: of one that cannot be read the id is kept, so that what was known
//! of it stays.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use super::id::ResourceId;
use super::wire;

/// Tags of a machine that are read: Azure lets one have 50.
const MAX_TAGS: usize = 50;
/// Network interfaces of a machine that are read: no size of machine has as many.
const MAX_INTERFACES: usize = 32;
/// The length of what they say, in bytes: of Azure's 256 characters each may take four.
const MAX_TAG: usize = 1024;

/// A scale set.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScaleSet {
    pub(super) id: ResourceId,
    pub(super) is_flexible: bool,
    pub(super) tags: Tags,
    /// How many machines it should have.
    pub(super) capacity: u64,
}

/// Tags, by their names in lower case.
pub(super) type Tags = BTreeMap<Arc<str>, Arc<str>>;

/// A machine: of a scale set, or one by itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Machine {
    pub(super) id: ResourceId,
    pub(super) vm_id: Option<Uuid>,
    pub(super) region: Arc<str>,
    pub(super) zone: Option<Arc<str>>,
    pub(super) fault_domain: Option<i64>,
    pub(super) tags: Tags,
    pub(super) state: State,
    pub(super) is_in_scale_set: bool,
    /// Its network interfaces, as far as they are resources of their own: those of a uniform scale set are not.
    pub(super) interfaces: Vec<ResourceId>,
}

/// How a machine fares, as far as an answer says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    /// `succeeded`, `creating`, `deleting`…
    pub(super) provisioning: Arc<str>,
    /// `running`, `deallocated`…; none where it is not said.
    pub(super) power: Option<Arc<str>>,
    /// `healthy`, `unhealthy`…, of the application; none where nobody looks.
    pub(super) health: Option<Arc<str>>,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) id: ResourceId,
    pub(super) is_primary: bool,
    /// The addresses that it has, the primary first.
    pub(super) addresses: Vec<IpAddr>,
    /// What of them cannot be read.
    pub(super) unreadable: Option<String>,
}

/// An entry of a list that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unreadable {
    pub(super) id: Option<ResourceId>,
    pub(super) reason: String,
}

/// Entries of a list, those that can be read and those that cannot.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entries<T> {
    pub(super) good: BTreeMap<ResourceId, T>,
    pub(super) unreadable: Vec<Unreadable>,
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self { good: BTreeMap::new(), unreadable: Vec::new() }
    }
}

impl<T> Entries<T> {
    /// Reads entries one by one. Where pages have shifted while they were asked for, one may be there twice:
    /// then the last is the newest.
    pub(super) fn read<W: DeserializeOwned>(
        entries: Vec<Value>,
        read: impl Fn(W) -> Result<(ResourceId, T), String>,
    ) -> Self {
        let mut all = Self::default();
        for (n, value) in entries.into_iter().enumerate() {
            let id = value.get("id").and_then(Value::as_str).and_then(ResourceId::parse);
            let entry = serde_json::from_value::<W>(value).map_err(|error| error.to_string());
            match entry.and_then(&read) {
                Ok((id, entry)) => drop(all.good.insert(id, entry)),
                Err(reason) => {
                    let reason = match id {
                        Some(_) => format!("Azure's entry cannot be read: {reason}"),
                        None => format!("Azure's entry {n} cannot be read: {reason}"),
                    };
                    all.unreadable.push(Unreadable { id, reason });
                }
            }
        }
        all
    }
}

fn id(text: &str) -> Result<ResourceId, String> {
    ResourceId::parse(text)
        .ok_or_else(|| format!("`{text}` is not the id of a resource in a resource group"))
}

impl ScaleSet {
    pub(super) fn read(wire: wire::ScaleSet) -> Result<(ResourceId, Self), String> {
        let id = id(&wire.id)?;
        let mode = wire.properties.and_then(|properties| properties.orchestration_mode);
        let set = Self {
            is_flexible: mode.is_some_and(|mode| mode.eq_ignore_ascii_case("Flexible")),
            tags: tags(wire.tags),
            capacity: wire.sku.and_then(|sku| sku.capacity).unwrap_or(0),
            id: id.clone(),
        };
        Ok((id, set))
    }
}

impl Machine {
    pub(super) fn read(wire: wire::Machine) -> Result<(ResourceId, Self), String> {
        let id = id(&wire.id)?;
        let properties = wire.properties.unwrap_or_default();
        let view = properties.instance_view.as_ref();
        let fault_domain = view.and_then(|view| view.platform_fault_domain);
        let scale_set = properties.virtual_machine_scale_set.as_ref();
        let machine = Self {
            vm_id: properties.vm_id.as_deref().and_then(|id| id.parse().ok()),
            region: wire.location.unwrap_or_default().to_lowercase().replace(' ', "").into(),
            zone: wire.zones.and_then(|zones| zones.into_iter().next()).map(Into::into),
            fault_domain: fault_domain.or(properties.platform_fault_domain),
            tags: tags(wire.tags),
            is_in_scale_set: scale_set.is_some_and(|set| set.id.is_some()),
            state: State::read(&properties),
            interfaces: interfaces(properties.network_profile),
            id: id.clone(),
        };
        Ok((id, machine))
    }
}

impl State {
    fn read(properties: &wire::MachineProperties) -> Self {
        let view = properties.instance_view.as_ref();
        let statuses = view.and_then(|view| view.statuses.as_deref()).unwrap_or_default();
        let codes = statuses.iter().filter_map(|status| status.code.as_deref());
        let power = codes.filter_map(|code| word(code, "powerstate/")).next_back();
        let health =
            view.and_then(|view| view.vm_health.as_ref()?.status.as_ref()?.code.as_deref());
        Self {
            provisioning: properties
                .provisioning_state
                .as_deref()
                .unwrap_or_default()
                .to_ascii_lowercase()
                .into(),
            power,
            health: health.and_then(|code| word(code, "healthstate/")),
        }
    }

    /// Of a row of Resource Graph.
    pub(super) fn of_row(wire: wire::PowerRow) -> Result<(ResourceId, Self), String> {
        let wire::PowerRow { id: told, power } = wire;
        let power = power.and_then(|code| word(&code, "powerstate/"));
        Ok((id(&told)?, Self { power, ..Self::default() }))
    }
}

/// What a code says after its beginning, in lower case.
fn word(code: &str, kind: &str) -> Option<Arc<str>> {
    let code = code.to_ascii_lowercase();
    code.strip_prefix(kind).filter(|word| !word.is_empty()).map(Into::into)
}

impl Interface {
    /// An interface, with the machine that it is of.
    pub(super) fn read(
        wire: wire::Interface,
    ) -> Result<(ResourceId, (Option<ResourceId>, Self)), String> {
        let id = id(&wire.id)?;
        let Some(properties) = wire.properties else {
            return Err("it has no properties".to_owned());
        };
        let machine = properties.virtual_machine.and_then(|machine| machine.id);
        let machine = machine.as_deref().and_then(ResourceId::parse);
        let configurations = properties.ip_configurations.unwrap_or_default();
        let mut configurations: Vec<_> =
            configurations.into_iter().filter_map(|one| one.properties).collect();
        configurations.sort_by_key(|one| one.primary != Some(true));
        let (mut addresses, mut unreadable) = (Vec::new(), None);
        // One with a prefix has no address of its own, and neither has one that is being made.
        for text in configurations.into_iter().filter_map(|one| one.address) {
            match text.parse::<IpAddr>().map(|address| address.to_canonical()) {
                Ok(address) if address.is_unspecified() || address.is_multicast() => {
                    unreadable =
                        Some(format!("its address `{address}` is not that of one machine"));
                }
                Ok(address) => addresses.push(address),
                Err(_) => unreadable = Some(format!("its address `{text}` is no IP address")),
            }
        }
        let is_primary = properties.primary == Some(true);
        let interface = Self { id: id.clone(), is_primary, addresses, unreadable };
        Ok((id, (machine, interface)))
    }
}

/// The interfaces that a machine names.
fn interfaces(profile: Option<wire::NetworkProfile>) -> Vec<ResourceId> {
    let named = profile.and_then(|profile| profile.network_interfaces).into_iter().flatten();
    let ids = named.filter_map(|one| ResourceId::parse(one.id.as_deref()?));
    ids.filter(|id| id.provider() == "microsoft.network").take(MAX_INTERFACES).collect()
}

/// Those for Azure's own use are left out.
fn tags(told: Option<BTreeMap<String, String>>) -> Tags {
    let told = told.into_iter().flatten();
    let told = told.map(|(name, value)| (name.to_lowercase(), value));
    let is_good = |(name, value): &(String, String)| {
        !name.starts_with("hidden-") && name.len() <= MAX_TAG && value.len() <= MAX_TAG
    };
    let good = told.filter(is_good).map(|(name, value)| (name.into(), value.into()));
    good.take(MAX_TAGS).collect()
}

#[cfg(test)]
mod tests;
