//! Tests with Azure's official examples.

use super::*;

/// Returns the entries of a list in an official example.
fn example(name: &str) -> Vec<Value> {
    let path = format!("{}/../tests/fixtures/azure/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let value: Value = serde_json::from_str(&fs_err::read_to_string(path).unwrap()).unwrap();
    let entries = value.pointer("/responses/200/body/value").unwrap();
    entries.as_array().unwrap().clone()
}

#[test]
fn official_machine_example_is_parsed() {
    let entries = example("compute-VirtualMachineScaleSetVM_List_MaximumSet.trimmed");
    let machines = Entries::read(entries, Machine::read);
    assert_eq!(machines.unreadable, []);
    let machine = machines.good.values().next().unwrap();
    assert_eq!(machine.id.short(), "myresourcegroup/{vmss-name}/0");
    let vm_id = machine.vm_id.unwrap().to_string();
    assert_eq!(vm_id, "42af9fdf-b906-4ad7-9905-8316209ff619");
    assert_eq!((&*machine.region, machine.zone.as_deref()), ("westus", Some("a")));
    assert_eq!(machine.fault_domain, Some(14));
    // Unknown codes are ignored.
    let state = State { provisioning: "succeeded".into(), power: None, health: None };
    assert_eq!(machine.state, state);
    let minimal = example("compute-VirtualMachine_ListAll_MinimumSet");
    assert_eq!(Entries::read(minimal, Machine::read).good.len(), 1, "both have the same id");
}

#[test]
fn official_interface_example_with_null_address_is_parsed() {
    let entries = example("network-NetworkInterfaceListAll");
    let interfaces = Entries::read(entries, Interface::read);
    assert_eq!(interfaces.unreadable, []);
    let all: Vec<_> = interfaces.good.into_values().collect();
    let [(Some(machine), first), (None, second)] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!(machine.short(), "rg1/vm1");
    assert_eq!((first.is_primary, &first.unreadable), (true, &None));
    assert_eq!(first.addresses, ["172.20.2.4".parse::<IpAddr>().unwrap()]);
    assert!(!second.is_primary, "it is of no machine");
}

#[test]
fn unreadable_entry_keeps_its_id() {
    let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v";
    let entries = serde_json::json!([
        { "id": id, "zones": "1" },
        { "id": "somewhere" },
        7,
        { "id": id.to_uppercase(), "tags": { "Env": "prod", "hidden-link": "x" }, "zones": null },
    ]);
    let read = Entries::read(entries.as_array().unwrap().clone(), Machine::read);
    let ids: Vec<_> = read.unreadable.iter().map(|one| one.id.is_some()).collect();
    assert_eq!(ids, [true, false, false]);
    let machine = read.good.values().next().unwrap();
    assert_eq!(
        machine.tags.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
        ["env=prod"]
    );
}

#[test]
fn states_and_addresses_are_parsed_case_insensitively() {
    let properties = |value: Value| serde_json::from_value(value).unwrap();
    let state = State::read(&properties(serde_json::json!({
        "provisioningState": "Deleting",
        "instanceView": {
            "statuses": [{ "code": "ProvisioningState/updating" }, { "code": "powerState/Running" }, {}],
            "vmHealth": { "status": { "code": "HealthState/Unhealthy" } }
        }
    })));
    let wanted = ("deleting", Some("running"), Some("unhealthy"));
    assert_eq!((&*state.provisioning, state.power.as_deref(), state.health.as_deref()), wanted);
    let interface = |addresses: Value| {
        let id =
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/n";
        let value =
            serde_json::json!({ "id": id, "properties": { "ipConfigurations": addresses } });
        Interface::read(serde_json::from_value(value).unwrap()).unwrap().1.1
    };
    let config = |address: &str, primary: bool| serde_json::json!({ "properties": { "privateIPAddress": address, "primary": primary } });
    let read =
        interface(serde_json::json!([config("10.0.0.5", false), {}, config("10.0.0.4", true)]));
    assert_eq!(
        read.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.0.0.4", "10.0.0.5"]
    );
    for bad in ["host", "0.0.0.0", "ff02::1"] {
        let read = interface(serde_json::json!([config(bad, true)]));
        assert!(read.addresses.is_empty() && read.unreadable.is_some(), "{bad}");
    }
}
