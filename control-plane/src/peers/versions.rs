//! The other control planes of the mesh, and whether their versions may run beside this one.

use ironmesh_catalog::codes::VERSIONS_APART;
use ironmesh_catalog::{Finding, ObjectRef};
use serde::{Deserialize, Serialize};

use super::Peers;
use super::notes::SELF;

/// The most control planes that the finding names.
const NAMED: usize = 10;

/// A control plane, as it notes itself. A note of a different version may have any other fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct PeerVersion {
    /// Its host name.
    pub(crate) host: String,
    /// Its version.
    pub(crate) version: String,
}

impl Peers {
    /// All other control planes, by host name.
    pub(crate) fn versions(&self) -> Vec<PeerVersion> {
        let Some(exchange) = self.exchange.get() else { return Vec::new() };
        let received = exchange.peers();
        let notes = received.borrow();
        let notes = notes.values().filter_map(|chunks| chunks.get(SELF));
        let mut versions: Vec<_> =
            notes.filter_map(|note| serde_json::from_slice(note).ok()).collect();
        versions.sort();
        versions
    }
}

/// The finding about control planes whose version is more than one minor version from `own`.
pub(crate) fn finding(own: &str, peers: &[PeerVersion]) -> Option<Finding> {
    let apart: Vec<_> = peers.iter().filter(|peer| !are_neighbours(own, &peer.version)).collect();
    let named = apart.iter().take(NAMED);
    let named: Vec<_> =
        named.map(|peer| format!("{} has version {}", peer.host, peer.version)).collect();
    let more = apart.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let message = format!(
        "control planes of this mesh are more than one minor version from this one, {own}: {}{more}",
        named.join(", ")
    );
    let help = "only neighbouring minor versions may run beside each other: upgrade all control planes to one version, \
                by way of each minor version between";
    let objects = apart.iter().map(|peer| ObjectRef::ControlPlane(peer.host.clone()));
    let finding = || Finding::warning(VERSIONS_APART, None, message).objects(objects).help(help);
    (!apart.is_empty()).then(finding)
}

/// Whether two versions are at most one minor version apart. A version that cannot be read is not.
fn are_neighbours(one: &str, other: &str) -> bool {
    match (minor_version(one), minor_version(other)) {
        (Some((major, minor)), Some((other_major, other_minor))) => {
            major == other_major && minor.abs_diff(other_minor) <= 1
        }
        _ => false,
    }
}

/// The major and the minor version.
fn minor_version(version: &str) -> Option<(u64, u64)> {
    let mut numbers = version.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(host: &str, version: &str) -> PeerVersion {
        PeerVersion { host: host.to_owned(), version: version.to_owned() }
    }

    #[test]
    fn control_planes_beyond_neighbouring_minor_versions_are_reported() {
        assert_eq!(finding("0.3.1", &[]), None);
        let near = ["0.3.1", "0.2.0", "0.4.9", "0.3.0-rc.1"].map(|version| peer("near", version));
        assert_eq!(finding("0.3.1", &near), None);
        for far in ["0.1.9", "0.5.0", "1.3.1", "", "3", "0.x.1"] {
            let found = finding("0.3.1", &[peer("near", "0.3.0"), peer("far", far)]).unwrap();
            assert!(found.message.contains(&format!("far has version {far}")), "{found}");
            assert!(!found.message.contains("near") && !found.is_error(), "{found}");
        }
        let many: Vec<_> = (0..NAMED + 2).map(|n| peer(&format!("cp-{n}"), "0.1.0")).collect();
        let found = finding("0.3.1", &many).unwrap();
        assert!(found.message.ends_with(", and 2 more"), "{found}");
    }

    #[test]
    fn own_version_is_its_own_neighbour() {
        assert!(are_neighbours(env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn version_is_read_from_a_note_with_unknown_fields() {
        let note = br#"{ "host": "cp-2", "version": "7.0.0", "policy": 1, "colour": "green" }"#;
        let read: PeerVersion = serde_json::from_slice(note).unwrap();
        assert_eq!(read, peer("cp-2", "7.0.0"));
    }
}
