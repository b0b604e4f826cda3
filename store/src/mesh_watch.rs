//! The watch of the shared state of a mesh: what other control planes have stored.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::task::{Context, Poll};

use ironmesh_catalog::ServiceAccount;

use crate::accepted_removals::ACCEPTED_REMOVALS;
use crate::certificates::{AUTHORITY, SERVICE_CERTIFICATES};
use crate::mesh_state::{MeshState, REVOCATION_LISTS};
use crate::record_store::{RecordError, TableName};
use crate::record_watch::{RecordWatch, TableChanges};
use crate::tcp_accesses::TCP_ACCESSES;

/// The parts of the shared state that have changed, also by this control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each part changes by itself")]
pub struct MeshChanges {
    /// Whether the authority has.
    pub authority: bool,
    /// The accounts whose certificates have.
    pub accounts: BTreeSet<ServiceAccount>,
    /// Whether the certificate revocation lists have.
    pub revocation_lists: bool,
    /// Whether the accesses to TCP service ports have.
    pub tcp_accesses: bool,
    /// Whether the accepted removals of endpoints have.
    pub accepted_removals: bool,
}

impl MeshChanges {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the changes of `more`.
    pub fn merge(&mut self, more: Self) {
        self.authority |= more.authority;
        self.accounts.extend(more.accounts);
        self.revocation_lists |= more.revocation_lists;
        self.tcp_accesses |= more.tcp_accesses;
        self.accepted_removals |= more.accepted_removals;
    }

    fn note(&mut self, table: TableName, changes: &TableChanges) {
        match table {
            AUTHORITY => self.authority = true,
            SERVICE_CERTIFICATES => {
                self.accounts.extend(changes.records.keys().filter_map(|key| key.parse().ok()));
            }
            REVOCATION_LISTS => self.revocation_lists = true,
            ACCEPTED_REMOVALS => self.accepted_removals = true,
            _ => self.tcp_accesses = true,
        }
    }
}

/// The watch of the shared state, except for records that have tables of their own and the journal.
#[derive(Debug)]
pub struct MeshWatch(Vec<(TableName, RecordWatch)>);

impl MeshState {
    /// Watches the shared state: first everything, then what changes.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn watch(&self) -> Result<MeshWatch, RecordError> {
        let tables =
            [AUTHORITY, SERVICE_CERTIFICATES, REVOCATION_LISTS, TCP_ACCESSES, ACCEPTED_REMOVALS];
        let watch = |table| Ok((table, self.records.watch(table)?));
        tables.into_iter().map(watch).collect::<Result<_, _>>().map(MeshWatch)
    }
}

impl MeshWatch {
    /// Waits for changes since the last call.
    ///
    /// # Errors
    ///
    /// Fails when the watch has ended.
    pub async fn changed(&mut self) -> Result<MeshChanges, RecordError> {
        poll_fn(|context: &mut Context<'_>| self.poll(context)).await
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Result<MeshChanges, RecordError>> {
        let mut all = MeshChanges::default();
        for (table, watch) in &self.0 {
            match watch.poll(context) {
                Poll::Ready(Ok(changes)) => all.note(*table, &changes),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {}
            }
        }
        if all.is_empty() { Poll::Pending } else { Poll::Ready(Ok(all)) }
    }
}
