//! The base id of a folder, which separates the Envoys of one machine that take part in hot restarts.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::geteuid;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::SupervisorError;
use crate::shared_memory;

/// The number of groups of base ids. Envoy multiplies a base id by ten, and the result must fit in 32 bits.
const GROUPS: u64 = 1 << 20;

/// The base ids of one folder: the first one that is free is used.
const GROUP_SIZE: u32 = 8;

/// The file that lists the sockets of this network namespace.
const SOCKETS: &str = "/proc/net/unix";

/// The base ids of a folder: the same in each run.
pub(crate) fn candidates(folder: &Path) -> impl Iterator<Item = u32> + use<> {
    let group = xxh3_64(folder.as_os_str().as_bytes()) % GROUPS;
    let first = u32::try_from(group).unwrap_or_default() * GROUP_SIZE;
    // 0 is the base id of each Envoy that sets none.
    first + 1..first + 1 + GROUP_SIZE
}

/// The first base id of the folder that neither a running Envoy uses, nor a file of another user blocks.
pub(crate) fn free(folder: &Path) -> Result<u32, SupervisorError> {
    let sockets = fs_err::read(SOCKETS).unwrap_or_default();
    let sockets = String::from_utf8_lossy(&sockets);
    let is_free = |base_id: &u32| !is_in_use(*base_id, &sockets) && !is_blocked(*base_id);
    candidates(folder).find(is_free).ok_or_else(|| {
        let first = candidates(folder).next().unwrap_or_default();
        SupervisorError::BaseIds { first, last: first + GROUP_SIZE - 1 }
    })
}

/// Whether an Envoy holds the domain socket of one of the three epochs that can exist at once.
fn is_in_use(base_id: u32, sockets: &str) -> bool {
    (0..3).any(|epoch| sockets.contains(&format!("@envoy_domain_socket_parent_{base_id}{epoch}@")))
}

/// Whether the shared memory with this base id belongs to another user, so that Envoy cannot replace it.
fn is_blocked(base_id: u32) -> bool {
    let path = shared_memory::path(base_id);
    let owner = std::fs::symlink_metadata(&path).ok().map(|file| file.uid());
    let user = geteuid();
    let is_blocked = owner.is_some_and(|owner| !user.is_root() && owner != user.as_raw());
    if is_blocked {
        tracing::warn!(
            file = %path.display(), owner,
            "a file that another user's Envoy left blocks a base id; using the next one"
        );
    }
    is_blocked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_ids_of_a_folder_are_stable_and_fit_in_envoys_range() {
        let ids: Vec<_> = candidates(Path::new("/var/lib/ironmesh/proxy")).collect();
        assert_eq!(ids, candidates(Path::new("/var/lib/ironmesh/proxy")).collect::<Vec<_>>());
        assert_ne!(ids, candidates(Path::new("/var/lib/ironmesh/other")).collect::<Vec<_>>());
        assert_eq!(ids.len(), 8);
        assert!(ids.iter().all(|id| *id > 0 && u64::from(*id) * 10 < u64::from(u32::MAX)));
    }

    #[test]
    fn domain_socket_shows_that_a_base_id_is_in_use() {
        let sockets =
            "0000: 00000002 00000000 00000000 0002 01 1 @envoy_domain_socket_parent_7771@@@\n";
        assert!(is_in_use(777, sockets));
        assert!(!is_in_use(77, sockets) && !is_in_use(7771, sockets));
    }
}
