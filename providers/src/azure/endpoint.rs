//! Conversion of machines into endpoints. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ironmesh_catalog::{AddressFamily, AzureQuery, Endpoint, Health, Labels, Locality, Provider};

use super::id::ResourceId;
use super::machines::{Interface, Machine, State, Tags};

/// Tags with this prefix are for the mesh, and are no labels.
const RESERVED: &str = "ironmesh-";

/// The state of a machine, as an endpoint.
#[derive(Debug, PartialEq, Eq)]
enum MachineState {
    /// The machine is an endpoint with this health.
    Is(Health),
    /// The machine is off, and is no endpoint.
    IsOff,
    /// The state is unknown, for this reason.
    Unknown(String),
}

/// The result of reading a machine.
#[derive(Debug, PartialEq)]
pub(super) enum Reading {
    /// The machine is this endpoint.
    Endpoint(Endpoint),
    /// The machine is no endpoint.
    Nothing,
    /// The machine leaves, and its address is no longer known: its last known endpoint drains.
    Leaves,
    /// The machine is unreadable for this reason: its last known endpoint stays.
    Unusable(String),
}

/// The network interfaces of each machine.
pub(super) type Interfaces = BTreeMap<ResourceId, Vec<Interface>>;

/// Reads a machine for one query; the caller sets the instance name. `state` is its power state,
/// `interfaces` are its listed interfaces, `of_set` are the tags of its scale set.
pub(super) fn read(
    machine: &Machine,
    state: Option<&State>,
    interfaces: &[&Interface],
    query: &AzureQuery,
    of_set: &Tags,
) -> Reading {
    let health = match machine_state(state) {
        MachineState::Is(health) => health,
        MachineState::IsOff => return Reading::Nothing,
        MachineState::Unknown(reason) => return Reading::Unusable(reason),
    };
    let address = match address(interfaces, &machine.interfaces, query.address_family) {
        Ok(address) => address,
        // Azure is deleting the machine.
        Err(_) if health == Health::Draining => return Reading::Leaves,
        // Azure is creating the machine.
        Err(_) if state.is_some_and(|state| &*state.provisioning == "creating") => {
            return Reading::Nothing;
        }
        Err(reason) => return Reading::Unusable(reason),
    };
    Reading::Endpoint(Endpoint {
        port: query.port,
        machine: machine.vm_id,
        labels: labels(of_set, &machine.tags),
        health,
        probed: state.is_some_and(|state| state.health.is_some()),
        locality: locality(machine),
        ..Endpoint::new(Provider::Azure, address)
    })
}

/// The table of states in docs/decisions/0040.
fn machine_state(state: Option<&State>) -> MachineState {
    let Some(state) = state else {
        return MachineState::Unknown("Azure does not report whether it runs".to_owned());
    };
    if &*state.provisioning == "deleting" {
        return MachineState::Is(Health::Draining);
    }
    match state.power.as_deref() {
        Some("running") => {}
        Some("starting") => return MachineState::Is(Health::Unhealthy),
        Some("stopping" | "deallocating" | "hibernating") => {
            return MachineState::Is(Health::Draining);
        }
        Some("stopped" | "deallocated" | "hibernated") => return MachineState::IsOff,
        // A machine in creation has no power state yet.
        None if &*state.provisioning == "creating" => return MachineState::IsOff,
        None => return MachineState::Unknown("Azure does not report whether it runs".to_owned()),
        Some(other) => {
            return MachineState::Unknown(format!(
                "Azure reports the unknown power state `{other}`"
            ));
        }
    }
    if &*state.provisioning == "creating" {
        return MachineState::Is(Health::Unhealthy);
    }
    MachineState::Is(match state.health.as_deref() {
        Some("unhealthy" | "initializing" | "unknown") => Health::Unhealthy,
        // An unknown health status is no reason to stop traffic.
        _ => Health::Healthy,
    })
}

/// Returns the address of the primary interface, of the requested family. `named` are the
/// interfaces that the machine names.
fn address(
    interfaces: &[&Interface],
    named: &[ResourceId],
    family: AddressFamily,
) -> Result<IpAddr, String> {
    let mut primary = interfaces.iter().filter(|interface| interface.is_primary);
    let is_shown = |id: &&ResourceId| interfaces.iter().any(|one| one.id == **id);
    let hidden = named.iter().find(|id| !is_shown(id));
    let interface = match (interfaces, primary.next(), primary.next()) {
        // A hidden interface may be the primary one, so no other interface replaces it.
        (_, None, None) if let Some(hidden) = hidden => {
            return Err(format!(
                "its network interface `{}` in resource group `{}` is not shown",
                hidden.name(),
                hidden.group()
            ));
        }
        ([], ..) => return Err("it has no network interface".to_owned()),
        ([only], ..) | (_, Some(only), None) => only,
        (several, ..) => {
            return Err(format!(
                "Azure does not report which is the primary of its {} network interfaces",
                several.len()
            ));
        }
    };
    let is_of = |address: &&IpAddr| match family {
        AddressFamily::Ipv4 => address.is_ipv4(),
        AddressFamily::Ipv6 => address.is_ipv6(),
    };
    if let Some(address) = interface.addresses.iter().find(is_of) {
        return Ok(*address);
    }
    let name = interface.id.name();
    Err(match (&interface.unreadable, interface.addresses.first(), family) {
        (Some(reason), ..) => format!("of its network interface `{name}`, {reason}"),
        (None, None, _) => format!("its network interface `{name}` has no address"),
        (None, Some(_), AddressFamily::Ipv4) => format!(
            "its network interface `{name}` has no IPv4 address; set `address_family = \"ipv6\"`"
        ),
        (None, Some(_), AddressFamily::Ipv6) => {
            format!(
                "its network interface `{name}` has no IPv6 address; give it one, or take its IPv4"
            )
        }
    })
}

/// Returns the tags as labels. The tags of the machine have precedence over those of its scale set.
fn labels(of_set: &Tags, own: &Tags) -> Labels {
    let tags = of_set.iter().chain(own);
    let tags = tags.filter(|(name, _)| !name.starts_with(RESERVED));
    tags.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns the locality as Kubernetes names it on Azure: the zone has the region as a prefix,
/// because zones are numbers.
pub(super) fn locality(machine: &Machine) -> Locality {
    let zone = machine.zone.as_ref().map(|zone| format!("{}-{zone}", machine.region));
    Locality {
        region: machine.region.clone(),
        zone: zone.unwrap_or_default().into(),
        sub_zone: machine.fault_domain.map(|n| n.to_string()).unwrap_or_default().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(provisioning: &str, power: &str, health: &str) -> State {
        let some = |text: &str| (!text.is_empty()).then(|| text.into());
        State { provisioning: provisioning.into(), power: some(power), health: some(health) }
    }

    #[test]
    fn machine_state_maps_to_documented_health() {
        use Health::{Draining, Healthy, Unhealthy};
        for (provisioning, power, health, wanted) in [
            ("succeeded", "running", "", MachineState::Is(Healthy)),
            ("updating", "running", "healthy", MachineState::Is(Healthy)),
            ("failed", "running", "", MachineState::Is(Healthy)),
            ("succeeded", "running", "unhealthy", MachineState::Is(Unhealthy)),
            ("succeeded", "running", "initializing", MachineState::Is(Unhealthy)),
            ("succeeded", "running", "aaaa", MachineState::Is(Healthy)),
            ("creating", "running", "", MachineState::Is(Unhealthy)),
            ("creating", "", "", MachineState::IsOff),
            ("succeeded", "starting", "", MachineState::Is(Unhealthy)),
            ("deleting", "running", "healthy", MachineState::Is(Draining)),
            ("deleting", "", "", MachineState::Is(Draining)),
            ("succeeded", "deallocating", "healthy", MachineState::Is(Draining)),
            ("updating", "stopping", "", MachineState::Is(Draining)),
            ("succeeded", "stopped", "", MachineState::IsOff),
            ("succeeded", "deallocated", "", MachineState::IsOff),
        ] {
            assert_eq!(
                machine_state(Some(&state(provisioning, power, health))),
                wanted,
                "{provisioning} {power}"
            );
        }
        for unknown in
            [None, Some(&state("succeeded", "", "")), Some(&state("succeeded", "aaaa", ""))]
        {
            assert!(matches!(machine_state(unknown), MachineState::Unknown(_)), "{unknown:?}");
        }
    }

    fn interface(is_primary: bool, addresses: &[&str]) -> Interface {
        let id =
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/nic";
        Interface {
            id: ResourceId::parse(id).unwrap(),
            is_primary,
            addresses: addresses.iter().map(|one| one.parse().unwrap()).collect(),
            unreadable: None,
        }
    }

    #[test]
    fn machine_address_is_that_of_its_primary_interface() {
        use AddressFamily::{Ipv4, Ipv6};
        let both = interface(true, &["10.0.0.4", "fd00::4"]);
        let other = interface(false, &["10.1.0.4", "fd01::4"]);
        let two = [other.clone(), both.clone()];
        let address = |interfaces: &[Interface], family| {
            address(&interfaces.iter().collect::<Vec<_>>(), &[], family)
        };
        assert_eq!(address(&two, Ipv4).unwrap().to_string(), "10.0.0.4");
        assert_eq!(address(&two, Ipv6).unwrap().to_string(), "fd00::4");
        // Of a machine that was off, Azure does not mark the primary interface; a single interface
        // is the primary one.
        assert_eq!(address(std::slice::from_ref(&other), Ipv4).unwrap().to_string(), "10.1.0.4");
        for (interfaces, family, words) in [
            (&[][..], Ipv4, "no network interface"),
            (&[other.clone(), other][..], Ipv4, "which is the primary"),
            (&[both.clone(), both][..], Ipv4, "which is the primary"),
            (&[interface(true, &[])][..], Ipv4, "`nic` has no address"),
            (&[interface(true, &["fd00::4"])][..], Ipv4, "set `address_family = \"ipv6\"`"),
            (&[interface(true, &["10.0.0.4"])][..], Ipv6, "has no IPv6 address"),
        ] {
            let error = address(interfaces, family).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn missing_interface_may_be_the_primary() {
        let id = |group: &str| {
            let id = format!(
                "/subscriptions/s/resourceGroups/{group}/providers/Microsoft.Network/networkInterfaces/nic"
            );
            ResourceId::parse(&id).unwrap()
        };
        let (first, second) = (interface(true, &["10.0.0.4"]), interface(false, &["10.1.0.4"]));
        let named = [id("g"), id("h")];
        let address = |interfaces: &[&Interface], named: &[ResourceId]| {
            address(interfaces, named, AddressFamily::Ipv4)
        };
        assert_eq!(address(&[&first], &named).unwrap().to_string(), "10.0.0.4");
        assert_eq!(address(&[&second], &named[..1]).unwrap().to_string(), "10.1.0.4");
        for shown in [&[][..], &[&second][..]] {
            let error = address(shown, &named).unwrap_err();
            assert!(error.contains("is not shown"), "{error}");
        }
        let error = address(&[&second], &named).unwrap_err();
        assert!(error.contains("`nic` in resource group `h`"), "{error}");
    }
}
