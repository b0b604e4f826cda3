//! The notes of control planes about proxies: what each of them publishes.
//!
//! A note is soft state: it ends with its control plane. The notes of one control plane are in 1,024 buckets, so a
//! change rewrites a small part of them. This module does no IO.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ironmesh_catalog::{PortHealth, ProxyId, ServiceAccount, ServicePort};
use ironmesh_store_etcd::MAX_CHUNK;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::nack_notes::{NackedVersionNote, ProxyNacks};
use super::readable::{readable, readable_items};

/// The bits of the id of a proxy that choose its bucket: 1,024 buckets. Each connection that begins or ends rewrites one
/// bucket, so what they write to etcd in an hour grows with the square of the proxies, divided by the number of buckets.
const BUCKET_BITS: u32 = 10;

/// What the name of each chunk with notes begins with.
pub(super) const PREFIX: &str = "proxies/";

/// The chunk about the control plane itself.
pub(super) const SELF: &str = "control-plane";

/// The most streams of a proxy in its note.
pub(crate) const MAX_STREAMS: usize = 4;

/// The most bytes of a chunk: those of a bucket that takes more are in several chunks.
const MAX_BYTES: usize = MAX_CHUNK / 2;

/// What a control plane knows of a proxy that others do not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProxyNote {
    /// Since when the proxy is connected to the control plane; none if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connected_since: Option<Timestamp>,
    /// Whether the control plane has refused it a moment ago, because it serves as many proxies as it may.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) refused: bool,
    /// The health of its applications, as it was reported to the control plane.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) health: Vec<(ServicePort, Arc<PortHealth>)>,
    /// When a report changed that health.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) health_at: Option<Timestamp>,
    /// The newest report of its agent about the ports that accept callers, if the proxy is connected to another control
    /// plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) serving: Option<ServingNote>,
    /// Since when it leaves the mesh, by a request to the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) leaving_since: Option<Timestamp>,
    /// The leave that the control plane has ended last, by its begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) returned: Option<Timestamp>,
    /// The leave that all callers at the control plane have ACKed, by its begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) acked_leave: Option<Timestamp>,
    /// The cordon that all callers at the control plane have ACKed, by its begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) acked_cordon: Option<Timestamp>,
    /// The addresses of its aggregated streams at the control plane, the first [`MAX_STREAMS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) streams: Vec<SocketAddr>,
    /// The resources that are not active in it, while it is connected to the control plane and has its resources. None
    /// also if an earlier version notes nothing of them.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "readable")]
    pub(crate) nacks: Option<ProxyNacks>,
}

/// The inbound ports of a proxy that accept callers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServingNote {
    /// When its agent reported.
    pub(crate) at: Timestamp,
    /// The server names, each with the account of the certificate that it presents.
    pub(crate) names: BTreeMap<String, ServiceAccount>,
}

/// What all peers note about a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PeerView {
    /// Whether the proxy is connected to a peer, or was refused by one a moment ago: then it is not unreachable.
    pub(crate) is_reachable: bool,
    pub(crate) health: Vec<(ServicePort, Arc<PortHealth>)>,
    /// When a report changed that health.
    pub(crate) health_at: Option<Timestamp>,
    /// The newest report about the ports that accept callers.
    pub(crate) serving: Option<ServingNote>,
    pub(crate) leaving_since: Option<Timestamp>,
    /// The leaves that peers have ended.
    pub(crate) returned: BTreeSet<Timestamp>,
}

/// What a control plane publishes of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ControlPlaneNote {
    /// Its host name.
    pub(crate) host: String,
    /// Its version.
    pub(crate) version: String,
    /// How far its proxies have ACKed policy; none before the first policy.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "readable")]
    pub(crate) policy: Option<PolicyNote>,
    /// The shared certificates of revoked proxies, by serial number, whose successors all its proxies have ACKed.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) replaced: BTreeSet<String>,
    /// The versions that its proxies NACK, and those that proxies of peers NACK and its own do not.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "readable_items")]
    pub(crate) nacked_versions: Vec<NackedVersionNote>,
}

/// How far the proxies of a control plane have ACKed policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PolicyNote {
    /// The revision that the control plane publishes.
    pub(crate) revision: String,
    /// How many of its proxies have not ACKed it.
    pub(crate) pending: usize,
    /// The service ports that policy has dropped, and that its proxies may still call.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) called: BTreeSet<String>,
}

/// The notes of this control plane.
#[derive(Debug, Default)]
pub(super) struct OwnNotes {
    notes: BTreeMap<ProxyId, ProxyNote>,
    changed: BTreeSet<u16>,
    /// The number of chunks of each bucket that has more than one.
    split: BTreeMap<u16, usize>,
}

impl OwnNotes {
    /// Changes the note about a proxy.
    pub(super) fn update(&mut self, id: ProxyId, change: impl FnOnce(&mut ProxyNote)) {
        let before = self.notes.get(&id).cloned().unwrap_or_default();
        let mut note = before.clone();
        change(&mut note);
        if note == before {
            return;
        }
        if note == ProxyNote::default() {
            self.notes.remove(&id);
        } else {
            self.notes.insert(id, note);
        }
        self.changed.insert(bucket(id));
    }

    /// The note about a proxy, if there is any.
    pub(super) fn get(&self, id: ProxyId) -> Option<&ProxyNote> {
        self.notes.get(&id)
    }

    /// Removes the notes about proxies that are not in use any more.
    pub(super) fn retain(&mut self, is_in_use: impl Fn(ProxyId) -> bool) {
        let changed = &mut self.changed;
        self.notes.retain(|id, _| {
            let stays = is_in_use(*id);
            if !stays {
                changed.insert(bucket(*id));
            }
            stays
        });
    }

    /// All notes.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = (&ProxyId, &ProxyNote)> {
        self.notes.iter()
    }

    /// The chunks that have changed since the last call, each with its content; none if it is empty now.
    pub(super) fn take_changed(&mut self) -> Vec<(String, Option<Vec<u8>>)> {
        let mut chunks = Vec::new();
        for number in std::mem::take(&mut self.changed) {
            let parts = self.parts(number);
            let before = self.split.remove(&number).unwrap_or(1);
            let count = parts.len().max(1);
            if count > 1 {
                self.split.insert(number, count);
            }
            let mut parts = parts.into_iter();
            chunks.extend(
                (0..before.max(count)).map(|part| (chunk_name(number, part), parts.next())),
            );
        }
        chunks
    }

    /// The contents of the chunks of a bucket, each a map of its own.
    fn parts(&self, number: u16) -> Vec<Vec<u8>> {
        let (mut parts, mut part) = (Vec::new(), Vec::new());
        for (id, note) in self.notes.range(ids(number)) {
            // Ids and timestamps become JSON.
            let Ok(note) = serde_json::to_string(note) else { continue };
            let entry = format!("\"{id}\":{note}");
            if !part.is_empty() && part.len() + entry.len() > MAX_BYTES {
                part.push(b'}');
                parts.push(std::mem::take(&mut part));
            }
            part.push(if part.is_empty() { b'{' } else { b',' });
            part.extend(entry.into_bytes());
        }
        if !part.is_empty() {
            part.push(b'}');
            parts.push(part);
        }
        parts
    }
}

/// The name of a chunk of a bucket.
fn chunk_name(number: u16, part: usize) -> String {
    match part {
        0 => format!("{PREFIX}{number:04}"),
        part => format!("{PREFIX}{number:04}.{part}"),
    }
}

/// The bucket of a proxy, by the first bits of its id, which are random.
fn bucket(id: ProxyId) -> u16 {
    u16::try_from(id.0.as_u128() >> (u128::BITS - BUCKET_BITS)).unwrap_or_default()
}

/// The ids in a bucket.
fn ids(number: u16) -> RangeInclusive<ProxyId> {
    let first = u128::from(number) << (u128::BITS - BUCKET_BITS);
    let last = first | (u128::MAX >> BUCKET_BITS);
    ProxyId(Uuid::from_u128(first))..=ProxyId(Uuid::from_u128(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random enough, and the same in each run.
    fn id(number: u64) -> ProxyId {
        let high = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ProxyId(Uuid::from_u64_pair(high, number))
    }

    #[test]
    fn move_of_a_proxy_rewrites_about_a_thousandth_of_the_notes() {
        let mut notes = OwnNotes::default();
        let connect = |notes: &mut OwnNotes, number, second| {
            let at = Timestamp::from_second(second).unwrap();
            notes.update(id(number), |note| note.connected_since = Some(at));
        };
        let size = |chunks: Vec<(String, Option<Vec<u8>>)>| -> usize {
            chunks.into_iter().map(|(_, content)| content.unwrap().len()).sum()
        };
        for number in 0..10_000 {
            connect(&mut notes, number, 1);
        }
        let chunks = notes.take_changed();
        assert_eq!(chunks.len(), 1 << BUCKET_BITS);
        let proxies: usize = chunks
            .iter()
            .map(|(_, content)| {
                let content = content.as_ref().unwrap();
                serde_json::from_slice::<BTreeMap<ProxyId, ProxyNote>>(content).unwrap().len()
            })
            .sum();
        assert_eq!(proxies, 10_000, "each proxy is in one chunk");
        let all = size(chunks);
        connect(&mut notes, 7, 2);
        let changed = size(notes.take_changed());
        assert!(changed > 0 && changed * 500 < all, "{changed} of {all} bytes");
    }
}
