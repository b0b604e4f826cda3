//! What the Azure provider is told when it starts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Whom the provider asks, as whom, and how often.
#[derive(Debug, Clone)]
pub struct AzureOptions {
    /// The subscription that is asked where policy names none. A GUID.
    pub subscription: Option<Arc<str>>,
    /// The resource group, likewise; the whole subscription where neither names one.
    pub resource_group: Option<Arc<str>>,
    /// Which of Azure's clouds.
    pub cloud: AzureCloud,
    /// As whom it is asked.
    pub credential: AzureCredential,
    /// The certificates (PEM) below which those of a cloud of one's own must be; what the system trusts where
    /// it is left out.
    pub ca: Option<PathBuf>,
    /// How often each list is asked for. Where there are many lists it is less often: see
    /// [`Self::reads_per_hour`].
    pub interval: Duration,
    /// So many calls are made within an hour, at most, whatever happens; unless what is asked for the first time
    /// is more. Azure let one who asks read 12,000 times an hour in a subscription, and lets one more today;
    /// others may ask as the same one.
    pub reads_per_hour: u32,
    /// Whether the machines of scale sets are asked of Azure Resource Graph, which has limits of its own, is
    /// some seconds behind, and knows nothing of the health of applications. Where it refuses, the resource
    /// providers are asked after all.
    pub resource_graph: bool,
    /// How long is waited after a fault before the same is asked again, the first time; other waits are
    /// multiples of it. Shorter than a second is for tests.
    pub retry: Duration,
    /// Where the metadata service of the machine is; `http://169.254.169.254` where it is left out. By plain
    /// HTTP it must be on this machine or its link.
    pub metadata: Option<String>,
}

/// One of Azure's clouds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AzureCloud {
    /// The one that all may use.
    #[default]
    Public,
    /// That of the government of the United States.
    UsGovernment,
    /// That of China.
    China,
    /// Another one, which answers the same calls and whose tokens are for its Resource Manager. (Azure Stack Hub
    /// is none: it knows older versions of the calls alone, and its tokens are for another name.)
    Custom {
        /// Where its Resource Manager is: a URL, and no path. By plain HTTP on this machine only.
        resource_manager: String,
        /// Where tokens are given out, likewise.
        login: String,
    },
}

/// As whom Azure is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AzureCredential {
    /// As the machine that the control plane runs on, by its managed identity.
    ManagedIdentity {
        /// Which of the identities that are assigned to it; the machine's own, or the only one, where it is
        /// left out.
        client_id: Option<String>,
    },
    /// As an application that trusts who made the token in a file.
    WorkloadIdentity {
        /// The tenant of the application.
        tenant: String,
        /// The application.
        client_id: String,
        /// The file with the token. It is read each time that it is needed.
        token_file: PathBuf,
    },
    /// As an application, by a secret of its own.
    ClientSecret {
        /// The tenant of the application.
        tenant: String,
        /// The application.
        client_id: String,
        /// The file with the secret, which nobody else may read. It is read each time that it is needed.
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
