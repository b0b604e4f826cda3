//! The values of all settings by key, for people and tools.
//!
//! None of them is a secret: the settings only name the files of secrets.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use crate::{
    AzureCloudSetting, AzureCredentialSetting, AzureSettings, ConsulSettings, EtcdSettings,
    PolicyLocation, Settings, StoreLocation,
};

/// The value of one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingValue {
    /// Its key, with those of its tables before it: `listen.xds`.
    pub key: &'static str,
    /// Its value as text; of a list, the values joined by `, `.
    pub value: String,
    /// Whether a change takes effect only after a restart of the control plane.
    pub needs_restart: bool,
}

impl Settings {
    /// The values of all settings that have one, in the order of this type.
    pub fn values(&self) -> Vec<SettingValue> {
        // Without `..`: a new setting must be added below.
        let Self {
            mesh,
            domain,
            trust_domain,
            mode,
            egress,
            state,
            store,
            policy,
            removal_hold,
            key_encryption_key,
            listen,
            group_socket,
            advertise,
            certificates,
            xds,
            consul,
            azure,
            endpoints,
            sidecar_class,
            log,
            traces_endpoint,
            settle,
        } = self;
        let mut values = Values::default();
        values.fixed("mesh", mesh);
        values.fixed("domain", domain);
        values.fixed("trust_domain", trust_domain);
        values.reloadable("mode", mode);
        values.reloadable("egress", egress);
        values.path("state", state.as_deref());
        match store {
            StoreLocation::Embedded => values.fixed("store.kind", "embedded"),
            StoreLocation::Etcd(etcd) => {
                values.fixed("store.kind", "etcd");
                values.etcd(&STORE_ETCD, etcd);
            }
        }
        match policy {
            None => {}
            Some(PolicyLocation::Folder(folder)) => values.path("policy.folder", Some(folder)),
            Some(PolicyLocation::Etcd(etcd)) => values.etcd(&POLICY_ETCD, etcd),
            Some(PolicyLocation::Releases) => values.fixed("policy.source", "releases"),
        }
        values.reloadable("policy.removal_hold", duration(*removal_hold));
        values.path("key_encryption_key", key_encryption_key.as_deref());
        values.fixed("listen.xds", listen.xds);
        values.fixed("listen.enrollment", listen.enrollment);
        values.fixed("listen.admin", listen.admin);
        values.optional("listen.api", listen.api);
        values.path("group_socket", group_socket.as_deref());
        let advertise = advertise.iter().map(|(host, port)| {
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
        });
        values.list("advertise", advertise);
        values.reloadable("certificates.service_lifetime", duration(certificates.service_lifetime));
        values.optional("xds.max_connection_age", xds.max_connection_age.map(duration));
        values.optional("xds.max_proxies", xds.max_proxies);
        values.consul(consul);
        values.azure(azure);
        values.fixed("endpoints.keep_share", endpoints.keep_share);
        values.fixed("endpoints.grace", duration(endpoints.grace));
        values.fixed("endpoints.sync_timeout", duration(endpoints.sync_timeout));
        values.fixed("endpoints.allow_local_addresses", self.allows_local_addresses());
        values.fixed("sidecar.class", sidecar_class);
        values.reloadable("log.level", &log.level);
        values.fixed("log.format", if log.is_json { "json" } else { "text" });
        values.optional("traces.endpoint", traces_endpoint.as_ref());
        values.reloadable("settle", duration(*settle));
        values.0
    }
}

/// The keys of one connection to etcd.
struct EtcdKeys {
    endpoints: &'static str,
    prefix: &'static str,
    ca: &'static str,
    certificate: &'static str,
    key: &'static str,
    user: &'static str,
    password_file: &'static str,
}

const STORE_ETCD: EtcdKeys = EtcdKeys {
    endpoints: "store.etcd.endpoints",
    prefix: "store.etcd.prefix",
    ca: "store.etcd.ca",
    certificate: "store.etcd.certificate",
    key: "store.etcd.key",
    user: "store.etcd.user",
    password_file: "store.etcd.password_file",
};

const POLICY_ETCD: EtcdKeys = EtcdKeys {
    endpoints: "policy.etcd.endpoints",
    prefix: "policy.etcd.prefix",
    ca: "policy.etcd.ca",
    certificate: "policy.etcd.certificate",
    key: "policy.etcd.key",
    user: "policy.etcd.user",
    password_file: "policy.etcd.password_file",
};

#[derive(Default)]
struct Values(Vec<SettingValue>);

impl Values {
    fn add(&mut self, key: &'static str, value: String, needs_restart: bool) {
        self.0.push(SettingValue { key, value, needs_restart });
    }

    /// Adds a setting that takes effect after a restart.
    fn fixed(&mut self, key: &'static str, value: impl Display) {
        self.add(key, value.to_string(), true);
    }

    /// Adds a setting that takes effect without a restart, as [`crate::ReloadableSettings`] has it.
    fn reloadable(&mut self, key: &'static str, value: impl Display) {
        self.add(key, value.to_string(), false);
    }

    fn optional(&mut self, key: &'static str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.fixed(key, value);
        }
    }

    fn path(&mut self, key: &'static str, path: Option<&Path>) {
        self.optional(key, path.map(Path::display));
    }

    fn list(&mut self, key: &'static str, values: impl Iterator<Item = String>) {
        let values: Vec<_> = values.collect();
        if !values.is_empty() {
            self.fixed(key, values.join(", "));
        }
    }

    fn etcd(&mut self, keys: &EtcdKeys, etcd: &EtcdSettings) {
        let EtcdSettings { endpoints, prefix, ca, identity, user } = etcd;
        self.list(keys.endpoints, endpoints.iter().cloned());
        self.fixed(keys.prefix, prefix);
        self.path(keys.ca, ca.as_deref());
        if let Some((certificate, key)) = identity {
            self.path(keys.certificate, Some(certificate));
            self.path(keys.key, Some(key));
        }
        if let Some((user, password_file)) = user {
            self.fixed(keys.user, user);
            self.path(keys.password_file, Some(password_file));
        }
    }

    fn consul(&mut self, consul: &ConsulSettings) {
        let ConsulSettings {
            agents,
            token_file,
            ca,
            identity,
            datacenter,
            namespace,
            partition,
            join_by_tag,
            max_staleness,
            max_connections,
            wait,
            locality,
        } = consul;
        self.list("consul.agents", agents.iter().cloned());
        self.path("consul.token_file", token_file.as_deref());
        self.path("consul.ca", ca.as_deref());
        if let Some((certificate, key)) = identity {
            self.path("consul.certificate", Some(certificate));
            self.path("consul.key", Some(key));
        }
        self.optional("consul.datacenter", datacenter.as_ref());
        self.optional("consul.namespace", namespace.as_ref());
        self.optional("consul.partition", partition.as_ref());
        self.fixed("consul.join_by_tag", join_by_tag);
        self.fixed("consul.max_staleness", duration(*max_staleness));
        self.fixed("consul.max_connections", max_connections);
        self.fixed("consul.wait", duration(*wait));
        self.fixed("consul.locality.region", &locality.region);
        self.fixed("consul.locality.zone", &locality.zone);
        self.fixed("consul.locality.sub_zone", &locality.sub_zone);
    }

    fn azure(&mut self, azure: &AzureSettings) {
        let AzureSettings {
            subscription,
            resource_group,
            cloud,
            credential,
            interval,
            reads_per_hour,
            resource_graph,
            attestation,
        } = azure;
        self.optional("azure.subscription", subscription.as_ref());
        self.optional("azure.resource_group", resource_group.as_ref());
        match cloud {
            AzureCloudSetting::Public => self.fixed("azure.cloud", "public"),
            AzureCloudSetting::UsGovernment => self.fixed("azure.cloud", "us_government"),
            AzureCloudSetting::China => self.fixed("azure.cloud", "china"),
            AzureCloudSetting::Custom { resource_manager, login, metadata, ca } => {
                self.fixed("azure.cloud.resource_manager", resource_manager);
                self.fixed("azure.cloud.login", login);
                self.optional("azure.cloud.metadata", metadata.as_ref());
                self.path("azure.cloud.ca", ca.as_deref());
            }
        }
        match credential {
            AzureCredentialSetting::ManagedIdentity { client_id } => {
                self.optional("azure.managed_identity.client_id", client_id.as_ref());
            }
            AzureCredentialSetting::WorkloadIdentity { tenant, client_id, token_file } => {
                self.fixed("azure.workload_identity.tenant", tenant);
                self.fixed("azure.workload_identity.client_id", client_id);
                self.path("azure.workload_identity.token_file", Some(token_file));
            }
            AzureCredentialSetting::ClientSecret { tenant, client_id, secret_file } => {
                self.fixed("azure.client_secret.tenant", tenant);
                self.fixed("azure.client_secret.client_id", client_id);
                self.path("azure.client_secret.secret_file", Some(secret_file));
            }
        }
        self.fixed("azure.interval", duration(*interval));
        self.fixed("azure.reads_per_hour", reads_per_hour);
        self.fixed("azure.resource_graph", resource_graph);
        self.path("azure.attestation.roots", attestation.roots.as_deref());
        self.path("azure.attestation.intermediates", attestation.intermediates.as_deref());
        self.optional("azure.attestation.signer_domain", azure.signer_domain());
    }
}

/// A duration as settings write it, in its largest whole unit.
fn duration(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let whole =
        units.into_iter().find(|(size, _)| milliseconds > 0 && milliseconds.is_multiple_of(*size));
    match whole {
        Some((size, unit)) => format!("{}{unit}", milliseconds / size),
        None if milliseconds == 0 => "0s".to_owned(),
        None => format!("{milliseconds}ms"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::load_settings;

    fn value<'a>(values: &'a [SettingValue], key: &str) -> Option<&'a SettingValue> {
        values.iter().find(|one| one.key == key)
    }

    #[test]
    fn values_of_a_file_can_be_read_back() {
        let text = "mode = 'audit'\nsettle = '45s'\nadvertise = ['cp:15128', '[::1]:15128']\n\
             [listen]\nxds = '127.0.0.1:15128'\n[policy]\nfolder = '/p'\nremoval_hold = '1500ms'\n\
             [consul]\nagents = ['https://c:8501']\nca = '/ca'\ntoken_file = '/token'\n";
        let values = load_settings(text, "a").unwrap().values();
        let texts = [
            ("mode", "audit", false),
            ("settle", "45s", false),
            ("advertise", "cp:15128, [::1]:15128", true),
            ("listen.enrollment", "127.0.0.1:15129", true),
            ("policy.folder", "/p", true),
            ("policy.removal_hold", "1500ms", false),
            ("consul.token_file", "/token", true),
            ("certificates.service_lifetime", "1d", false),
            ("endpoints.allow_local_addresses", "true", true),
        ];
        for (key, text, needs_restart) in texts {
            let value = value(&values, key).unwrap_or_else(|| panic!("{key}: {values:#?}"));
            assert_eq!((&*value.value, value.needs_restart), (text, needs_restart), "{key}");
        }
        assert_eq!(value(&values, "listen.api"), None);
    }

    #[test]
    fn keys_are_unique_and_reloadable_ones_are_those_of_the_reload() {
        let before = Settings::default();
        let values = before.values();
        let keys: BTreeSet<_> = values.iter().map(|one| one.key).collect();
        assert_eq!(keys.len(), values.len());
        let text = "mode = 'audit'\negress = 'passthrough'\nsettle = '1s'\n[policy]\nfolder = '/p'\n\
             removal_hold = '1s'\n[certificates]\nservice_lifetime = '12h'\n[log]\nlevel = 'warn'\n";
        let changed = before.changed_keys(&load_settings(text, "a").unwrap());
        let reloadable = values.iter().filter(|one| !one.needs_restart).map(|one| one.key);
        assert_eq!(
            reloadable.collect::<BTreeSet<_>>(),
            changed.reloadable.into_iter().collect::<BTreeSet<_>>()
        );
    }

    #[test]
    fn duration_is_written_in_its_largest_whole_unit() {
        let text = |milliseconds| duration(Duration::from_millis(milliseconds));
        assert_eq!(
            [0, 20, 1_000, 90_000, 120_000, 86_400_000].map(text),
            ["0s", "20ms", "1s", "90s", "2m", "1d"]
        );
    }
}
