//! Policy in etcd: pushed as a whole, read as a whole, and followed.
//!
//! ```text
//! <prefix>/current                  the push in force: a manifest
//! <prefix>/pushes/<push>            the manifests of the last 20 pushes
//! <prefix>/revisions/<push>/<n>     the documents of one push, in chunks; never changed
//! ```
//!
//! etcd takes 128 operations and 1.5 MiB in one transaction, and a policy may be larger. So a push writes
//! its chunks under a lease of its own, and then one transaction moves `current` to them, if that is as it
//! was when the push began, and takes the lease off the chunks. Who reads `current` reads all of what it
//! names, at the same revision of etcd; what is pushed meanwhile does not show. A push that does not come to
//! its end leaves nothing: its chunks go with its lease. A push is called by its lease, which etcd gives
//! away once.
//!
//! This module never says what documents mean, and never decides when they come into force.

mod error;
mod follow;
mod layout;
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
pub use push::PushError;
pub use read::RetainedPolicies;

/// A policy that was pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// Which it is, when it was pushed, by whom and why.
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
    /// The policy that `settings` mean, whose paths are those of files by now. Reads these, and does not go
    /// to etcd yet.
    pub fn open(settings: EtcdSettings) -> Result<Self, PolicyError> {
        let layout = Layout::new(&settings.prefix);
        Ok(Self { cluster: Cluster::open(etcd_options(settings))?, layout })
    }

    /// Where the policy is, for people.
    pub fn name(&self) -> String {
        format!("{} in etcd at {}", self.cluster.prefix(), self.cluster.endpoints().join(", "))
    }

    /// Tells the current policy, again and again.
    pub fn follow(self) -> EtcdFollower {
        EtcdFollower::new(self)
    }

    /// Does `work` at one endpoint after the other, until it succeeds, finds damage, or has taken too long.
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

/// The options of etcd's client that `settings` mean.
pub fn etcd_options(settings: EtcdSettings) -> EtcdOptions {
    let EtcdSettings { endpoints, prefix, ca, identity, user } = settings;
    EtcdOptions { endpoints, prefix, ca, identity, user }
}
