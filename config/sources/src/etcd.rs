//! Policy in etcd: pushed as a whole, read as a whole, and followed.
//!
//! ```text
//! <prefix>/current                  the push in force: a manifest
//! <prefix>/pushes/<push>            the manifests of the last 20 pushes
//! <prefix>/revisions/<push>/<n>     the documents of one push, in chunks; never changed
//! <prefix>/turns/<what>             whose turn it is, of several control planes, under a lease
//! <prefix>/turns/<what>/told        what that one has found, under the same lease
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

#[cfg_attr(not(feature = "etcd"), path = "etcd/absent.rs")]
mod session;

mod error;
mod follow;
mod layout;
mod leader_election;
mod push;
mod read;

use std::time::Duration;

use ironmesh_catalog::PolicyRecord;
use tokio::time::{Instant, sleep};

use error::SessionError;
use ironmesh_config_language::Document;
use ironmesh_config_settings::EtcdSettings;
use layout::Layout;
use session::{Credentials, Session};

pub use error::EtcdError;
pub use follow::EtcdFollower;
pub use leader_election::{LeaderElection, Role};
pub use push::PushError;
pub use read::Kept;

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
    settings: EtcdSettings,
    layout: Layout,
    /// Which endpoint is used.
    endpoint: usize,
}

/// For how long a cluster is waited for that answers, and cannot yet: it has another leader after some two
/// seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait after all endpoints have been tried.
const PAUSE: Duration = Duration::from_millis(300);

impl EtcdPolicy {
    /// The policy that `settings` mean, whose paths are those of files by now. Reads these, and does not go
    /// to etcd yet.
    pub fn open(settings: EtcdSettings) -> Result<Self, EtcdError> {
        // They are read again for each connection, since they may be replaced. What is wrong with them is
        // told before anything else is done.
        Credentials::read(&settings)?;
        let layout = Layout::new(&settings.prefix);
        Ok(Self { settings, layout, endpoint: 0 })
    }

    /// Where the policy is, for people.
    pub fn name(&self) -> String {
        format!("{} in etcd at {}", self.settings.prefix, self.settings.endpoints.join(", "))
    }

    /// Tells the current policy, again and again.
    pub fn follow(self) -> EtcdFollower {
        EtcdFollower::new(self)
    }

    fn endpoint(&self) -> &str {
        let endpoints = &self.settings.endpoints;
        endpoints.get(self.endpoint % endpoints.len().max(1)).map_or("", String::as_str)
    }

    /// A session at the endpoint that is used.
    async fn session(&self) -> Result<Session, EtcdError> {
        let credentials = Credentials::read(&self.settings)?;
        let opened = Session::open(self.endpoint(), credentials).await;
        opened.map_err(|error| EtcdError::new(self.endpoint(), &self.settings, error))
    }

    /// Does `work` at one endpoint after the other, until it succeeds or has taken too long.
    async fn insist<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut Session, &Layout) -> Result<T, SessionError>,
    ) -> Result<T, EtcdError> {
        let begin = Instant::now();
        let mut tried = Vec::new();
        let mut has_answered = false;
        loop {
            let error = match self.session().await {
                Ok(mut session) => {
                    has_answered = true;
                    match work(&mut session, &self.layout).await {
                        Ok(done) => return Ok(done),
                        Err(error) => EtcdError::new(self.endpoint(), &self.settings, error),
                    }
                }
                Err(error) => error,
            };
            if !error.is_of_the_endpoint() {
                return Err(error);
            }
            tried.push(error);
            self.endpoint += 1;
            if tried.len() >= self.settings.endpoints.len() {
                // Waiting helps where there is no leader, and not where nobody is.
                if !has_answered || begin.elapsed() > PATIENCE {
                    return Err(EtcdError::all(tried));
                }
                tried.clear();
                sleep(PAUSE).await;
            }
        }
    }
}
