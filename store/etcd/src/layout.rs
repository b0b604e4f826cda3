//! The keys of a mesh in etcd: from places to keys, and back.
//!
//! ```text
//! <prefix>/state/canary                 the identity of the mesh, written once
//! <prefix>/state/head                   part of every commit
//! <prefix>/state/records/<table>/<key>  a record
//! <prefix>/leases/peers/<id>/<chunk>    what a control plane publishes of itself, under its lease
//! ```

use uuid::Uuid;

/// The keys below the prefix of one mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    state: String,
    head: String,
    canary: String,
    records: String,
    peers: String,
}

/// What is at a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place<'k> {
    Canary,
    Head,
    Record {
        table: &'k str,
        key: &'k str,
    },
    /// Nothing that this version knows.
    Unknown,
}

impl Layout {
    /// The layout below a prefix such as `/ironmesh/default`, without a slash at its end.
    pub fn new(prefix: &str) -> Self {
        let state = format!("{prefix}/state/");
        Self {
            head: format!("{state}head"),
            canary: format!("{state}canary"),
            records: format!("{state}records/"),
            peers: format!("{prefix}/leases/peers/"),
            state,
        }
    }

    /// The prefix of all keys of the state.
    pub fn state(&self) -> &str {
        &self.state
    }

    /// The key of the head.
    pub fn head(&self) -> &str {
        &self.head
    }

    /// The key of the canary.
    pub fn canary(&self) -> &str {
        &self.canary
    }

    /// The key of a record.
    pub fn record(&self, table: &str, key: &str) -> String {
        format!("{}{table}/{key}", self.records)
    }

    /// The prefix of what control planes publish of themselves.
    pub(crate) fn peers(&self) -> &str {
        &self.peers
    }

    /// The key of a chunk of a control plane.
    pub(crate) fn peer_key(&self, id: Uuid, chunk: &str) -> String {
        format!("{}{id}/{chunk}", self.peers)
    }

    /// The control plane and the name of the chunk at this key.
    pub(crate) fn peer_chunk<'k>(&self, key: &'k str) -> Option<(Uuid, &'k str)> {
        let (id, chunk) = key.strip_prefix(&self.peers)?.split_once('/')?;
        Some((id.parse().ok()?, chunk))
    }

    /// What is at this key of etcd.
    pub(crate) fn place<'k>(&self, key: &'k str) -> Place<'k> {
        if key == self.head {
            return Place::Head;
        }
        if key == self.canary {
            return Place::Canary;
        }
        let record = key.strip_prefix(&self.records).and_then(|rest| rest.split_once('/'));
        record.map_or(Place::Unknown, |(table, key)| Place::Record { table, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_back_to_their_places() {
        let layout = Layout::new("/ironmesh/default");
        assert_eq!(layout.place(layout.head()), Place::Head);
        assert_eq!(layout.place(layout.canary()), Place::Canary);
        for (table, key) in [("join_records", "1"), ("service_certificates", "shop/a"), ("t", "")] {
            let stored = layout.record(table, key);
            assert!(stored.starts_with(layout.state()));
            assert_eq!(layout.place(&stored), Place::Record { table, key });
        }
        let id = Uuid::from_u128(7);
        assert_eq!(layout.peer_chunk(&layout.peer_key(id, "a/b")), Some((id, "a/b")));
        assert_eq!(layout.peer_chunk(layout.head()), None);
        let others = ["", "/ironmesh/default/state/records/x", "/ironmesh/other/state/head"];
        assert!(others.iter().all(|key| layout.place(key) == Place::Unknown));
    }
}
