//! The options of the Azure provider.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The subscription, the credential and the limits of the provider.
#[derive(Debug, Clone)]
pub struct AzureOptions {
    /// The subscription of queries that name none. A GUID.
    pub subscription: Option<Arc<str>>,
    /// The resource group of queries that name none; by default the whole subscription.
    pub resource_group: Option<Arc<str>>,
    /// The Azure cloud.
    pub cloud: AzureCloud,
    /// The credential for all requests.
    pub credential: AzureCredential,
    /// The CA certificates (PEM) of a custom cloud; those of the system by default.
    pub ca: Option<PathBuf>,
    /// The interval in which each list is requested. With many lists it is longer: see
    /// [`Self::reads_per_hour`].
    pub interval: Duration,
    /// The largest number of calls within an hour, except for first requests of lists. Azure used
    /// to allow a client 12,000 reads an hour in a subscription, and allows more today; other
    /// clients may share the quota.
    pub reads_per_hour: u32,
    /// Whether Azure Resource Graph lists the machines of scale sets. It has quotas of its own, is
    /// some seconds stale, and has no application health. If it fails, the resource providers
    /// answer.
    pub resource_graph: bool,
    /// The first wait after a failure; other waits are multiples of it. Values below a second are
    /// for tests.
    pub retry: Duration,
    /// The URL of the machine's metadata service; `http://169.254.169.254` by default. Plain HTTP
    /// is allowed only for this machine or its link.
    pub metadata: Option<String>,
}

/// The Azure cloud to use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AzureCloud {
    /// The public cloud.
    #[default]
    Public,
    /// The cloud of the government of the United States.
    UsGovernment,
    /// The cloud in China.
    China,
    /// Another cloud with the same API, whose tokens are for its Resource Manager. (Azure Stack Hub
    /// is not supported: it has older API versions, and its tokens have another audience.)
    Custom {
        /// The URL of its Resource Manager, without a path. Plain HTTP is allowed only on this
        /// machine.
        resource_manager: String,
        /// The URL of its token service, likewise.
        login: String,
    },
}

/// The identity of the provider at Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AzureCredential {
    /// The managed identity of the machine on which the control plane runs.
    ManagedIdentity {
        /// The assigned identity to use; by default the system-assigned or only one.
        client_id: Option<String>,
    },
    /// An application that trusts the issuer of the token in a file.
    WorkloadIdentity {
        /// The tenant of the application.
        tenant: String,
        /// The client id of the application.
        client_id: String,
        /// The file with the token. It is read for each use.
        token_file: PathBuf,
    },
    /// An application with a client secret.
    ClientSecret {
        /// The tenant of the application.
        tenant: String,
        /// The client id of the application.
        client_id: String,
        /// The file with the secret, which others must not be able to read. It is read for each
        /// use.
        secret_file: PathBuf,
    },
}

impl Default for AzureOptions {
    fn default() -> Self {
        Self {
            subscription: None,
            resource_group: None,
            cloud: AzureCloud::default(),
            credential: AzureCredential::ManagedIdentity { client_id: None },
            ca: None,
            interval: Duration::from_secs(30),
            reads_per_hour: 1000,
            resource_graph: false,
            retry: Duration::from_secs(1),
            metadata: None,
        }
    }
}
