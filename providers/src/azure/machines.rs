//! Machines, network interfaces and scale sets, as read from answers. Pure.
//!
//! Each entry is read on its own. Of an unreadable one the id is kept, so that its last known
//! endpoint stays.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use super::id::ResourceId;
use super::wire;

/// The tags that are read per machine: Azure allows 50.
const MAX_TAGS: usize = 50;
/// The network interfaces that are read per machine: no machine size has more.
const MAX_INTERFACES: usize = 32;
/// The longest tag name or value in bytes: Azure's 256 characters take up to four bytes each.
const MAX_TAG: usize = 1024;
/// The longest id of a disk in bytes.
const MAX_DISK: usize = 1024;

/// A scale set.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScaleSet {
    pub(super) id: ResourceId,
    pub(super) is_flexible: bool,
    pub(super) tags: Tags,
    /// The intended number of machines.
    pub(super) capacity: u64,
}

/// Tags, by their names in lower case.
pub(super) type Tags = BTreeMap<Arc<str>, Arc<str>>;

/// A machine, in a scale set or alone.
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
    /// Its network interfaces that are resources of their own; those of a uniform scale set are
    /// not.
    pub(super) interfaces: Vec<ResourceId>,
    /// Its OS disk, in lower case: the id of the managed disk, else the name; `None` if Azure
    /// reports neither. A reimage replaces the disk and keeps the `vmId`.
    pub(super) os_disk: Option<Arc<str>>,
}

/// The state of a machine, as far as Azure reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    /// `succeeded`, `creating`, `deleting`…
    pub(super) provisioning: Arc<str>,
    /// `running`, `deallocated`…; `None` if it is not reported.
    pub(super) power: Option<Arc<str>>,
    /// The health of the application: `healthy`, `unhealthy`…; `None` without a health probe.
    pub(super) health: Option<Arc<str>>,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) id: ResourceId,
    pub(super) is_primary: bool,
    /// The addresses, the primary one first.
    pub(super) addresses: Vec<IpAddr>,
    /// Why an address is unreadable.
    pub(super) unreadable: Option<String>,
}

/// An unreadable entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unreadable {
    pub(super) id: Option<ResourceId>,
    pub(super) reason: String,
}

/// The entries of a list, readable and unreadable.
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
    /// Reads each entry on its own. If pages shifted between requests, one may occur twice: the
    /// last one is the newest.
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
            os_disk: os_disk(properties.storage_profile),
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

    /// Reads a row of Resource Graph.
    pub(super) fn from_row(wire: wire::PowerRow) -> Result<(ResourceId, Self), String> {
        let wire::PowerRow { id: text, power } = wire;
        let power = power.and_then(|code| word(&code, "powerstate/"));
        Ok((id(&text)?, Self { power, ..Self::default() }))
    }
}

/// Returns the part of a code after `kind`, in lower case.
fn word(code: &str, kind: &str) -> Option<Arc<str>> {
    let code = code.to_ascii_lowercase();
    code.strip_prefix(kind).filter(|word| !word.is_empty()).map(Into::into)
}

impl Interface {
    /// Reads an interface and the id of its machine.
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
        // A configuration with a prefix has no address of its own; neither has one in creation.
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

/// Returns the interfaces that a machine names.
fn interfaces(profile: Option<wire::NetworkProfile>) -> Vec<ResourceId> {
    let named = profile.and_then(|profile| profile.network_interfaces).into_iter().flatten();
    let ids = named.filter_map(|one| ResourceId::parse(one.id.as_deref()?));
    ids.filter(|id| id.provider() == "microsoft.network").take(MAX_INTERFACES).collect()
}

/// Returns what identifies the OS disk. A name alone serves for disks that are no resources.
fn os_disk(profile: Option<wire::StorageProfile>) -> Option<Arc<str>> {
    let disk = profile.and_then(|profile| profile.os_disk)?;
    let id = disk.managed_disk.and_then(|managed| managed.id).or(disk.name)?;
    let is_good = !id.is_empty() && id.len() <= MAX_DISK;
    is_good.then(|| id.to_lowercase().into())
}

/// Returns the tags without those for Azure's own use.
fn tags(text: Option<BTreeMap<String, String>>) -> Tags {
    let text = text.into_iter().flatten();
    let text = text.map(|(name, value)| (name.to_lowercase(), value));
    let is_good = |(name, value): &(String, String)| {
        !name.starts_with("hidden-") && name.len() <= MAX_TAG && value.len() <= MAX_TAG
    };
    let good = text.filter(is_good).map(|(name, value)| (name.into(), value.into()));
    good.take(MAX_TAGS).collect()
}

#[cfg(test)]
mod tests;
