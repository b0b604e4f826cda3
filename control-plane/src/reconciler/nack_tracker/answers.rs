//! Versions that no client is known to have ACKed, and the clients that have not answered them yet.
//!
//! Examining all clients for each version in each pass would cost O(clients): a result holds until a client changes.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_xds_server::{ClientKey, Hub};
use ironmesh_xds_wire::Version;

use super::ResourceKey;

/// The results of the last pass.
#[derive(Debug, Default)]
pub(super) struct PendingAnswers {
    /// No client has ACKed these.
    not_acked: BTreeSet<(ResourceKey, Version)>,
    /// Every client that was sent these NACKs them.
    answered_by_all: BTreeSet<(ResourceKey, Version)>,
    /// One client that was sent the version, and does not NACK it.
    undecided: BTreeMap<(ResourceKey, Version), ClientKey>,
}

/// The results of the last pass, the clients that changed since, and all clients.
type PassContext<'a> = (&'a PendingAnswers, &'a BTreeSet<ClientKey>, &'a Hub);

impl PendingAnswers {
    /// Whether any client has ACKed this version.
    pub(super) fn is_acked(
        &mut self,
        wanted: &(ResourceKey, Version),
        (before, touched, hub): PassContext<'_>,
    ) -> bool {
        let ((of, name), version) = wanted;
        let is_found = if before.not_acked.contains(wanted) {
            touched.iter().any(|client| hub.has_all(client, [(*of, &**name, *version)]))
        } else {
            hub.any_client_has(*of, name, *version)
        };
        if !is_found {
            self.not_acked.insert(wanted.clone());
        }
        is_found
    }

    /// Whether any client was sent this version and is not one of `nacking`.
    pub(super) fn is_undecided(
        &mut self,
        wanted: &(ResourceKey, Version),
        nacking: &BTreeSet<&ClientKey>,
        (before, touched, hub): PassContext<'_>,
    ) -> bool {
        let ((of, name), version) = wanted;
        let is_undecided = |client: &&ClientKey| {
            !nacking.contains(client) && hub.is_published(client, *of, name, *version)
        };
        let found = if before.answered_by_all.contains(wanted) {
            touched.iter().find(is_undecided).cloned()
        } else {
            let still = before.undecided.get(wanted).filter(is_undecided).cloned();
            let is_other = |client: &ClientKey| !nacking.contains(client);
            still.or_else(|| hub.find_published(*of, name, *version, is_other))
        };
        match &found {
            Some(client) => {
                self.undecided.insert(wanted.clone(), ClientKey::clone(client));
            }
            None => {
                self.answered_by_all.insert(wanted.clone());
            }
        }
        found.is_some()
    }
}
