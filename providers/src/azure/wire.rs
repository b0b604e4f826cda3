//! The fields of Azure's JSON that the provider reads. Every optional field may also be `null`.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScaleSet {
    pub(super) id: String,
    #[serde(default)]
    pub(super) tags: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) sku: Option<Sku>,
    #[serde(default)]
    pub(super) properties: Option<ScaleSetProperties>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Sku {
    #[serde(default)]
    pub(super) capacity: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScaleSetProperties {
    #[serde(default)]
    pub(super) orchestration_mode: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Machine {
    pub(super) id: String,
    #[serde(default)]
    pub(super) location: Option<String>,
    #[serde(default)]
    pub(super) zones: Option<Vec<String>>,
    #[serde(default)]
    pub(super) tags: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) properties: Option<MachineProperties>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MachineProperties {
    #[serde(default)]
    pub(super) vm_id: Option<String>,
    #[serde(default)]
    pub(super) provisioning_state: Option<String>,
    #[serde(default)]
    pub(super) instance_view: Option<InstanceView>,
    #[serde(default)]
    pub(super) platform_fault_domain: Option<i64>,
    #[serde(default)]
    pub(super) virtual_machine_scale_set: Option<Reference>,
    #[serde(default)]
    pub(super) network_profile: Option<NetworkProfile>,
    #[serde(default)]
    pub(super) storage_profile: Option<StorageProfile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StorageProfile {
    #[serde(default)]
    pub(super) os_disk: Option<OsDisk>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OsDisk {
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) managed_disk: Option<Reference>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NetworkProfile {
    #[serde(default)]
    pub(super) network_interfaces: Option<Vec<Reference>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InstanceView {
    #[serde(default)]
    pub(super) statuses: Option<Vec<Status>>,
    #[serde(default)]
    pub(super) vm_health: Option<VmHealth>,
    #[serde(default)]
    pub(super) platform_fault_domain: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct VmHealth {
    #[serde(default)]
    pub(super) status: Option<Status>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Status {
    #[serde(default)]
    pub(super) code: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Reference {
    #[serde(default)]
    pub(super) id: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Interface {
    pub(super) id: String,
    #[serde(default)]
    pub(super) properties: Option<InterfaceProperties>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InterfaceProperties {
    #[serde(default)]
    pub(super) primary: Option<bool>,
    #[serde(default)]
    pub(super) virtual_machine: Option<Reference>,
    #[serde(default)]
    pub(super) ip_configurations: Option<Vec<IpConfiguration>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct IpConfiguration {
    #[serde(default)]
    pub(super) properties: Option<IpConfigurationProperties>,
}

#[derive(Debug, Deserialize)]
pub(super) struct IpConfigurationProperties {
    #[serde(rename = "privateIPAddress", default)]
    pub(super) address: Option<String>,
    #[serde(default)]
    pub(super) primary: Option<bool>,
}

/// A row of Resource Graph with the power state of a machine.
#[derive(Debug, Deserialize)]
pub(super) struct PowerRow {
    pub(super) id: String,
    #[serde(default)]
    pub(super) power: Option<String>,
}
