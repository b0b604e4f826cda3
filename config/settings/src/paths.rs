//! The paths in the settings, which are relative to the settings file.

use std::path::{Path, PathBuf};

use crate::{
    AzureCloudSetting, AzureCredentialSetting, AzureSettings, ConsulSettings, EtcdSettings,
    PolicyLocation, Settings, StoreLocation,
};

impl Settings {
    /// The same settings, with relative paths resolved below `folder`, that of the settings file.
    #[must_use]
    pub fn with_paths_below(self, folder: &Path) -> Self {
        let join = |path: PathBuf| folder.join(path);
        Self {
            state: self.state.map(join),
            key_encryption_key: self.key_encryption_key.map(join),
            group_socket: self.group_socket.map(join),
            store: match self.store {
                StoreLocation::Embedded => StoreLocation::Embedded,
                StoreLocation::Etcd(etcd) => StoreLocation::Etcd(etcd_below(folder, etcd)),
            },
            policy: self.policy.map(|policy| match policy {
                PolicyLocation::Folder(path) => PolicyLocation::Folder(join(path)),
                PolicyLocation::Etcd(etcd) => PolicyLocation::Etcd(etcd_below(folder, etcd)),
                PolicyLocation::Releases => PolicyLocation::Releases,
            }),
            consul: consul_below(folder, self.consul),
            azure: azure_below(folder, self.azure),
            ..self
        }
    }
}

fn etcd_below(folder: &Path, etcd: EtcdSettings) -> EtcdSettings {
    let join = |path: PathBuf| folder.join(path);
    EtcdSettings {
        ca: etcd.ca.map(join),
        identity: etcd.identity.map(|(certificate, key)| (join(certificate), join(key))),
        user: etcd.user.map(|(name, password)| (name, join(password))),
        ..etcd
    }
}

fn consul_below(folder: &Path, consul: ConsulSettings) -> ConsulSettings {
    let join = |path: PathBuf| folder.join(path);
    ConsulSettings {
        token_file: consul.token_file.map(join),
        ca: consul.ca.map(join),
        identity: consul.identity.map(|(certificate, key)| (join(certificate), join(key))),
        ..consul
    }
}

fn azure_below(folder: &Path, mut azure: AzureSettings) -> AzureSettings {
    let file = match &mut azure.credential {
        AzureCredentialSetting::ManagedIdentity { .. } => None,
        AzureCredentialSetting::WorkloadIdentity { token_file: file, .. }
        | AzureCredentialSetting::ClientSecret { secret_file: file, .. } => Some(file),
    };
    let ca = match &mut azure.cloud {
        AzureCloudSetting::Custom { ca, .. } => ca.as_mut(),
        AzureCloudSetting::Public | AzureCloudSetting::UsGovernment | AzureCloudSetting::China => {
            None
        }
    };
    let trust = &mut azure.attestation;
    let trust = trust.roots.iter_mut().chain(&mut trust.intermediates);
    for path in file.into_iter().chain(ca).chain(trust) {
        *path = folder.join(&*path);
    }
    azure
}
