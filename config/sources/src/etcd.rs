//! Policy in etcd: pushed as a whole, read as a whole, and followed.
//!
//! ```text
//! <prefix>/current                  the current push: a manifest
//! <prefix>/pushes/<push>            the manifests of the last 20 pushes
//! <prefix>/revisions/<push>/<n>     the documents of one push, in chunks; never changed
//! ```
//!
//! etcd allows 128 operations and 1.5 MiB in one transaction, and a policy may be larger. So a push writes
//! its chunks under a lease of its own. Then one transaction moves `current` to them, if it is unchanged
//! since the push began, and takes the lease off the chunks.
//!
//! A reader of `current` reads all chunks that it names at the same revision of etcd, so a concurrent push
//! has no effect on it. An incomplete push leaves nothing: its chunks end with its lease. The name of a push
//! is its lease, which etcd never assigns twice.
//!
//! This module never decides when documents become active.

mod error;
mod follow;
mod layout;
mod publish;
mod push;
mod read;

use ironmesh_catalog::PolicyRecord;
use ironmesh_config_language::Document;
use ironmesh_config_settings::EtcdSettings;
use ironmesh_etcd::{Cluster, EtcdOptions, Session};

use error::ReadError;
use layout::Layout;

pub use error::{DamagedPush, PolicyError};
pub use follow::EtcdFollower;
pub use publish::PublishOutcome;
pub use push::PushError;
pub use read::RetainedPolicies;

/// A policy that was pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// Its revision, with time, author and reason of the push.
    pub record: PolicyRecord,
    /// All of its documents, by path.
    pub documents: Vec<Document>,
}

/// The policy below one prefix of an etcd.
#[derive(Debug)]
pub struct EtcdPolicy {
    cluster: Cluster,
    layout: Layout,
}

impl EtcdPolicy {
    /// Opens the policy of `settings`, whose paths must be resolved. It reads the files that they name, and
    /// does not connect yet.
    pub fn open(settings: EtcdSettings) -> Result<Self, PolicyError> {
        let layout = Layout::new(&settings.prefix);
        Ok(Self { cluster: Cluster::open(etcd_options(POLICY_SECTION, settings))?, layout })
    }

    /// The location of the policy, for messages.
    pub fn name(&self) -> String {
        format!("{} in etcd at {}", self.cluster.prefix(), self.cluster.endpoints().join(", "))
    }

    /// Follows the current policy.
    pub fn follow(self) -> EtcdFollower {
        EtcdFollower::new(self)
    }

    /// Runs `work` at one endpoint after the other, until it succeeds, finds damage, or exceeds its time.
    async fn insist<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut Session, &Layout) -> Result<T, ReadError>,
    ) -> Result<T, PolicyError> {
        let layout = &self.layout;
        let done = self.cluster.insist(async |session| match work(session, layout).await {
            Ok(done) => Ok(Ok(done)),
            Err(ReadError::Damaged(damage)) => Ok(Err(damage)),
            Err(ReadError::Session(error)) => Err(error),
        });
        Ok(done.await??)
    }
}

/// The section of the settings that [`EtcdPolicy::open`] names in errors.
pub const POLICY_SECTION: &str = "[policy.etcd]";

/// The section of the settings with the connection to a store in etcd.
pub const STORE_SECTION: &str = "[store.etcd]";

/// The options of the etcd client for the settings of a section, which errors name.
pub fn etcd_options(section: &'static str, settings: EtcdSettings) -> EtcdOptions {
    let EtcdSettings { endpoints, prefix, ca, identity, user } = settings;
    EtcdOptions { section, endpoints, prefix, ca, identity, user }
}
