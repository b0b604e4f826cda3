//! Versions of which nobody is known who has them. To look at all clients for each of them at every
//! pass would cost as much as there are clients: what was so is so until something happens to one of them.

use std::collections::BTreeSet;

use ironmesh_xds_server::{ClientKey, Hub};
use ironmesh_xds_wire::Version;

use super::Name;

/// What was looked for among all clients, and not found.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// Nobody has taken these.
    untaken: BTreeSet<(Name, Version)>,
    /// Nobody else than this client is to have these.
    asked_alone: BTreeSet<(Name, Version, ClientKey)>,
}

/// What was not found the last time, to whom something has happened since, and all clients.
type Known<'a> = (&'a Doubts, &'a BTreeSet<ClientKey>, &'a Hub);

impl Doubts {
    /// Whether any client has taken this version.
    pub(super) fn has_anyone(
        &mut self,
        wanted: &(Name, Version),
        (before, touched, hub): Known<'_>,
    ) -> bool {
        let ((of, name), version) = wanted;
        let is_found = if before.untaken.contains(wanted) {
            touched.iter().any(|client| hub.has_all(client, [(*of, &**name, *version)]))
        } else {
            hub.anyone_has(*of, name, *version)
        };
        if !is_found {
            self.untaken.insert(wanted.clone());
        }
        is_found
    }

    /// Whether any client but `only` is to have this version.
    pub(super) fn is_anyone_else_to_have(
        &mut self,
        wanted: &(Name, Version),
        only: &ClientKey,
        (before, touched, hub): Known<'_>,
    ) -> bool {
        let ((of, name), version) = wanted;
        let key = ((*of, name.clone()), *version, ClientKey::clone(only));
        let is_to_have = |client: &ClientKey| {
            let set = hub.published(client);
            let resource = set.as_ref().and_then(|set| set.of(*of).get(name));
            resource.is_some_and(|resource| resource.version() == *version)
        };
        let is_found = if before.asked_alone.contains(&key) {
            touched.iter().any(|client| client != only && is_to_have(client))
        } else {
            hub.anyone_else_is_to_have(*of, name, *version, only)
        };
        if !is_found {
            self.asked_alone.insert(key);
        }
        is_found
    }
}
