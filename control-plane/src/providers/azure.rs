//! The options of the Azure provider.

use ironmesh_config_settings::AzureSettings;
use ironmesh_providers::azure::{AzureCloud, AzureCredential, AzureOptions};

/// The options of the Azure provider, from its settings.
pub fn azure_options(settings: &AzureSettings) -> AzureOptions {
    use ironmesh_config_settings::{
        AzureCloudSetting as Cloud, AzureCredentialSetting as Credential,
    };
    let text = |text: &std::sync::Arc<str>| text.to_string();
    let (cloud, metadata, ca) = match &settings.cloud {
        Cloud::Public => (AzureCloud::Public, None, None),
        Cloud::UsGovernment => (AzureCloud::UsGovernment, None, None),
        Cloud::China => (AzureCloud::China, None, None),
        Cloud::Custom { resource_manager, login, metadata, ca } => {
            let (resource_manager, login) = (resource_manager.clone(), login.clone());
            (AzureCloud::Custom { resource_manager, login }, metadata.clone(), ca.clone())
        }
    };
    AzureOptions {
        subscription: settings.subscription.clone(),
        resource_group: settings.resource_group.clone(),
        cloud,
        credential: match &settings.credential {
            Credential::ManagedIdentity { client_id } => {
                AzureCredential::ManagedIdentity { client_id: client_id.as_ref().map(text) }
            }
            Credential::WorkloadIdentity { tenant, client_id, token_file } => {
                AzureCredential::WorkloadIdentity {
                    tenant: text(tenant),
                    client_id: text(client_id),
                    token_file: token_file.clone(),
                }
            }
            Credential::ClientSecret { tenant, client_id, secret_file } => {
                AzureCredential::ClientSecret {
                    tenant: text(tenant),
                    client_id: text(client_id),
                    secret_file: secret_file.clone(),
                }
            }
        },
        ca,
        interval: settings.interval,
        reads_per_hour: settings.reads_per_hour,
        resource_graph: settings.resource_graph,
        metadata,
        ..AzureOptions::default()
    }
}
