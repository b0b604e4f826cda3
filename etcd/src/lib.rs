//! etcd: sessions, watches, leases, and leader election.
//!
//! This crate alone names etcd's client, in `session.rs` and below. If the feature `client` is off, `absent.rs`
//! replaces that module, and [`Cluster::open`] fails with [`EtcdError::NotBuiltIn`]. It never interprets
//! stored values, and owns no layout of keys except for that of an election.

#[cfg_attr(not(feature = "client"), path = "absent.rs")]
mod session;

mod cluster;
mod error;
mod key_event;
mod leader_election;
mod options;
mod pages;
mod publication_seal;
mod transaction;

pub use cluster::Cluster;
pub use error::{EtcdError, SessionError};
pub use key_event::{KeyEvent, WatchNews};
pub use leader_election::{
    LEASE_TTL, LeaderElection, MOST_PUBLISHED, Payload, Publication, Published, RENEW_INTERVAL,
    Role,
};
pub use options::EtcdOptions;
pub use pages::Page;
pub use publication_seal::PublicationSeal;
pub use session::{EventWatch, KeyValue, Session, Watch};
pub use transaction::{Condition, TransactionOutcome, Write};
