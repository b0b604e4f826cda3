//! The resources of the fake Azure, rendered as the official examples with the test's values.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::{Value, json};
use uuid::Uuid;

/// The default subscription.
pub const SUBSCRIPTION: &str = "cfbbd179-59d2-4052-aa06-9270a38aa9d6";
/// The default resource group.
pub const GROUP: &str = "rgShop";

/// The machines and scale sets of one resource group.
#[derive(Debug, Clone)]
pub struct ResourceGroup {
    pub(super) subscription: String,
    pub(super) group: String,
    /// The scale sets by name.
    pub scale_sets: BTreeMap<String, ScaleSet>,
    /// All machines, in the order in which Azure lists them.
    pub machines: Vec<Machine>,
}

/// A virtual machine scale set.
#[derive(Debug, Clone, Default)]
pub struct ScaleSet {
    /// Whether the scale set is flexible, not uniform.
    pub is_flexible: bool,
    /// The tags of the scale set.
    pub tags: BTreeMap<String, String>,
}

/// A virtual machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The scale set of the machine.
    pub set: Option<String>,
    /// The name of the machine; in a uniform scale set, its number.
    pub name: String,
    /// The stable id of the machine.
    pub vm_id: Uuid,
    /// The power state, such as `running` or `deallocated`; `None` if Azure omits it.
    pub power: Option<&'static str>,
    /// The provisioning state, such as `Succeeded` or `Deleting`.
    pub provisioning: &'static str,
    /// The application health, such as `healthy`; `None` without a health probe.
    pub health: Option<&'static str>,
    /// The availability zone.
    pub zone: Option<&'static str>,
    /// The fault domain.
    pub fault_domain: i64,
    /// The tags of the machine.
    pub tags: BTreeMap<String, String>,
    /// The network interfaces.
    pub interfaces: Vec<Interface>,
    /// The number of the OS disk: a reimage replaces the disk. `None` if Azure omits it.
    pub os_disk: Option<u32>,
}

/// A network interface of a machine.
#[derive(Debug, Clone, Default)]
pub struct Interface {
    /// The resource group of the interface; `None` means that of its machine.
    pub group: Option<String>,
    /// Whether this is the primary interface; `None` if Azure omits it.
    pub primary: Option<bool>,
    /// The addresses, primary first; `None` where no address is assigned yet.
    pub addresses: Vec<Option<String>>,
}

impl Machine {
    /// A running machine with this address, outside any scale set.
    pub fn at(name: &str, address: &str) -> Self {
        Self {
            set: None,
            name: name.to_owned(),
            vm_id: Uuid::new_v4(),
            power: Some("running"),
            provisioning: "Succeeded",
            health: None,
            zone: None,
            fault_domain: 0,
            tags: BTreeMap::new(),
            interfaces: vec![Interface {
                primary: Some(true),
                addresses: vec![Some(address.to_owned())],
                group: None,
            }],
            os_disk: Some(1),
        }
    }

    /// Reimages the machine: it keeps its id and gets another OS disk.
    pub fn reimage(&mut self) {
        self.os_disk = self.os_disk.map(|disk| disk + 1);
    }

    /// A running machine with this address, in a scale set.
    pub fn of(set: &str, name: &str, address: &str) -> Self {
        Self { set: Some(set.to_owned()), ..Self::at(name, address) }
    }
}

impl ResourceGroup {
    /// An empty resource group.
    pub(super) fn of(subscription: &str, group: &str) -> Self {
        let (scale_sets, machines) = (BTreeMap::new(), Vec::new());
        Self {
            subscription: subscription.to_owned(),
            group: group.to_owned(),
            scale_sets,
            machines,
        }
    }

    /// The machine of this name.
    ///
    /// # Panics
    ///
    /// If the name is unknown.
    pub fn machine(&mut self, name: &str) -> &mut Machine {
        self.machines.iter_mut().find(|machine| machine.name == name).unwrap()
    }

    fn set_of<'a>(&'a self, machine: &'a Machine) -> Option<(&'a str, &'a ScaleSet)> {
        let name = machine.set.as_deref()?;
        Some((name, self.scale_sets.get(name)?))
    }

    /// Whether the machine is in a uniform scale set.
    fn is_uniform(&self, machine: &Machine) -> bool {
        self.set_of(machine).is_some_and(|(_, set)| !set.is_flexible)
    }

    pub(super) fn scale_sets(&self) -> Vec<Value> {
        let sets = self.scale_sets.iter().map(|(name, set)| {
            let count = self.machines.iter().filter(|one| one.set.as_ref() == Some(name)).count();
            let mode = if set.is_flexible { "Flexible" } else { "Uniform" };
            json!({
                "id": self.id(&format!("Microsoft.Compute/virtualMachineScaleSets/{name}")),
                "name": name, "location": "westeurope", "tags": set.tags,
                "sku": { "name": "Standard_D2s_v5", "tier": "Standard", "capacity": count },
                "properties": { "orchestrationMode": mode, "singlePlacementGroup": false }
            })
        });
        sets.collect()
    }

    pub(super) fn uniform(&self, set: &str) -> Vec<Value> {
        let of_set = self.machines.iter().filter(|one| one.set.as_deref() == Some(set));
        of_set
            .map(|machine| {
                let mut value = example("compute-VirtualMachineScaleSetVM_List_MaximumSet.trimmed");
                let id = self.id_of(machine);
                let properties = value.get_mut("properties").unwrap();
                self.fill(properties, machine);
                set_key(&mut value, "instanceId", json!(machine.name));
                set_key(&mut value, "name", json!(format!("{set}_{}", machine.name)));
                describe(&mut value, machine, &id);
                value
            })
            .collect()
    }

    /// The machines outside uniform scale sets, or those of one flexible scale set.
    pub(super) fn machines(&self, set: Option<&str>, with_view: bool) -> Vec<Value> {
        let single = self.machines.iter().filter(|one| !self.is_uniform(one));
        let single = single.filter(|one| set.is_none() || one.set.as_deref() == set);
        single
            .map(|machine| {
                let mut value = example("compute-VirtualMachine_ListAll_MinimumSet");
                set_key(&mut value, "name", json!(machine.name));
                let mut properties = json!({
                    "vmId": machine.vm_id, "provisioningState": machine.provisioning,
                    "hardwareProfile": { "vmSize": "Standard_D2s_v5" },
                    "networkProfile": { "networkInterfaces": self.references(machine) }
                });
                if let Some((name, _)) = self.set_of(machine) {
                    let set = self.id(&format!("Microsoft.Compute/virtualMachineScaleSets/{name}"));
                    set_key(&mut properties, "virtualMachineScaleSet", json!({ "id": set }));
                }
                if with_view {
                    set_key(&mut properties, "instanceView", view(machine));
                }
                self.add_disk(&mut properties, machine);
                set_key(&mut value, "properties", properties);
                describe(&mut value, machine, &self.id_of(machine));
                value
            })
            .collect()
    }

    pub(super) fn states(&self) -> Vec<Value> {
        let single = self.machines.iter().filter(|one| !self.is_uniform(one));
        let state = |machine: &Machine| {
            json!({
                "id": self.id_of(machine), "name": machine.name, "location": "westeurope",
                "properties": { "instanceView": view(machine) }
            })
        };
        single.map(state).collect()
    }

    pub(super) fn rows(&self) -> Vec<Value> {
        let single = self.machines.iter().filter(|one| !self.is_uniform(one));
        let power = |machine: &Machine| machine.power.map(|power| format!("PowerState/{power}"));
        single.map(|one| json!({ "id": self.id_of(one), "power": power(one) })).collect()
    }

    /// The network interfaces of one uniform scale set.
    pub(super) fn interfaces_of_set(&self, set: &str) -> Vec<Value> {
        let of_set = self.machines.iter().filter(|one| one.set.as_deref() == Some(set));
        of_set.flat_map(|machine| self.interfaces_of(machine, None)).collect()
    }

    /// The network interfaces of all machines outside uniform scale sets, or only those in one
    /// resource group.
    pub(super) fn interfaces(&self, group: Option<&str>) -> Vec<Value> {
        let single = self.machines.iter().filter(|one| !self.is_uniform(one));
        single.flat_map(|machine| self.interfaces_of(machine, group)).collect()
    }

    /// The references from a machine to its network interfaces.
    fn references(&self, machine: &Machine) -> Value {
        let all = machine.interfaces.iter().enumerate();
        let reference = |(n, interface): (usize, &Interface)| {
            let id = self.id_of_interface(machine, n, interface);
            json!({ "id": id, "properties": { "primary": interface.primary.unwrap_or(true) } })
        };
        all.map(reference).collect()
    }

    fn id_of_interface(&self, machine: &Machine, n: usize, interface: &Interface) -> String {
        if self.is_uniform(machine) {
            return format!("{}/networkInterfaces/nic{n}", self.id_of(machine));
        }
        let Self { subscription, group, .. } = self;
        let group = interface.group.as_ref().unwrap_or(group);
        let name = &machine.name;
        format!(
            "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network/networkInterfaces/{name}-nic{n}"
        )
    }

    fn interfaces_of(&self, machine: &Machine, group: Option<&str>) -> Vec<Value> {
        let of_machine = self.id_of(machine);
        let write = |(n, interface): (usize, &Interface)| {
            let mut value = example("network-NetworkInterfaceListAll");
            let name = format!("nic{n}");
            let place = self.id_of_interface(machine, n, interface);
            let properties = value.get_mut("properties").unwrap();
            let configurations = properties.get_mut("ipConfigurations").unwrap();
            let configurations = configurations.as_array_mut().unwrap();
            // The second configuration of the example has a prefix and no address.
            let with_prefix = configurations.pop().unwrap();
            let with_address = configurations.pop().unwrap();
            for (m, address) in interface.addresses.iter().enumerate() {
                let mut one = with_address.clone();
                set_key(&mut one, "name", json!(format!("ipconfig{m}")));
                let properties = one.get_mut("properties").unwrap();
                let is_v6 = address.as_ref().is_some_and(|address| address.contains(':'));
                let version = if is_v6 { "IPv6" } else { "IPv4" };
                set_key(properties, "privateIPAddress", json!(address));
                set_key(properties, "privateIPAddressVersion", json!(version));
                set_key(properties, "primary", json!(m == 0));
                // Out of order, so that a reader that takes the first address takes the wrong one.
                configurations.insert(0, one);
            }
            configurations.insert(0, with_prefix);
            match interface.primary {
                Some(primary) => set_key(properties, "primary", json!(primary)),
                None => drop(properties.as_object_mut().unwrap().remove("primary")),
            }
            set_key(properties, "virtualMachine", json!({ "id": of_machine }));
            set_key(&mut value, "id", json!(place));
            set_key(&mut value, "name", json!(name));
            value
        };
        let is_there = |one: &Interface| {
            let of = one.group.as_ref().unwrap_or(&self.group);
            group.is_none_or(|group| group.eq_ignore_ascii_case(of))
        };
        let all = machine.interfaces.iter().enumerate();
        all.filter(|(_, one)| is_there(one)).map(write).collect()
    }

    fn id_of(&self, machine: &Machine) -> String {
        match self.set_of(machine) {
            Some((set, of)) if !of.is_flexible => self.id(&format!(
                "Microsoft.Compute/virtualMachineScaleSets/{set}/virtualMachines/{}",
                machine.name
            )),
            _ => self.id(&format!("Microsoft.Compute/virtualMachines/{}", machine.name)),
        }
    }

    fn id(&self, rest: &str) -> String {
        let Self { subscription, group, .. } = self;
        format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/{rest}")
    }

    /// Adds the storage profile, as in the official example of a machine.
    fn add_disk(&self, properties: &mut Value, machine: &Machine) {
        let Some(number) = machine.os_disk else { return };
        let name = format!("{}_OsDisk_{number}", machine.name);
        let disk = self.id(&format!("Microsoft.Compute/disks/{name}"));
        let disk = json!({ "id": disk, "storageAccountType": "Premium_LRS" });
        let os_disk = json!({ "name": name, "createOption": "FromImage", "managedDisk": disk });
        set_key(properties, "storageProfile", json!({ "osDisk": os_disk, "dataDisks": [] }));
    }

    fn fill(&self, properties: &mut Value, machine: &Machine) {
        self.add_disk(properties, machine);
        set_key(properties, "vmId", json!(machine.vm_id));
        set_key(properties, "provisioningState", json!(machine.provisioning));
        // The other codes of the example stay; the provider does not know them.
        let mut whole = properties.get("instanceView").unwrap().clone();
        for (key, value) in view(machine).as_object().unwrap() {
            set_key(&mut whole, key, value.clone());
        }
        if machine.health.is_none() {
            whole.as_object_mut().unwrap().remove("vmHealth");
        }
        set_key(properties, "instanceView", whole);
    }
}

fn describe(value: &mut Value, machine: &Machine, id: &str) {
    set_key(value, "id", json!(id));
    set_key(value, "location", json!("westeurope"));
    set_key(value, "tags", json!(machine.tags));
    match machine.zone {
        Some(zone) => set_key(value, "zones", json!([zone])),
        None => drop(value.as_object_mut().unwrap().remove("zones")),
    }
}

fn view(machine: &Machine) -> Value {
    let mut view = example("compute-VirtualMachine_Get_InstanceView.trimmed");
    set_key(&mut view, "platformFaultDomain", json!(machine.fault_domain));
    let provisioning = format!("ProvisioningState/{}", machine.provisioning.to_lowercase());
    let mut statuses = vec![json!({ "code": provisioning, "level": "Info" })];
    let power = machine.power.map(|power| format!("PowerState/{power}"));
    statuses.extend(power.map(|code| json!({ "code": code, "level": "Info" })));
    set_key(&mut view, "statuses", json!(statuses));
    if let Some(health) = machine.health {
        let code = format!("HealthState/{health}");
        set_key(&mut view, "vmHealth", json!({ "status": { "code": code, "level": "Info" } }));
    }
    view
}

fn set_key(value: &mut Value, key: &str, to: Value) {
    value.as_object_mut().unwrap().insert(key.to_owned(), to);
}

/// The body of an official example; of a list, its first entry.
fn example(name: &'static str) -> Value {
    static READ: Mutex<BTreeMap<&str, Value>> = Mutex::new(BTreeMap::new());
    let read = || {
        let path = format!("{}/fixtures/azure/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let text = fs_err::read_to_string(path).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        let body = value.pointer("/responses/200/body").unwrap();
        body.pointer("/value/0").unwrap_or(body).clone()
    };
    READ.lock().entry(name).or_insert_with(read).clone()
}
