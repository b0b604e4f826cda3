//! Access control lists of files: whether a file whose mode shows a group is private all the same.
//!
//! systemd gives a service its credentials as files of root with the mode 0440 and an ACL for the service's user. The
//! group bits of such a mode are the mask of the ACL (`acl(5)`).

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::getxattr;
use rustix::io::Errno;
use rustix::process::geteuid;

/// The extended attribute of the kernel that holds the ACL: a version, then entries of 8 bytes, all little-endian
/// (`include/uapi/linux/posix_acl_xattr.h`).
const ATTRIBUTE: &str = "system.posix_acl_access";
const VERSION: u32 = 2;

/// The tags of entries (`include/uapi/linux/posix_acl.h`).
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const MASK: u16 = 0x10;

const READ: u16 = 4;

/// More than the entries of a credential; a longer list is not private.
const SIZE: usize = 4 + 8 * 16;

/// Whether an ACL gives `path` to its owner and to the user of this process alone, and the owner is that user or root.
pub(crate) fn is_private(path: &Path) -> io::Result<bool> {
    let own = geteuid().as_raw();
    let owner = fs_err::metadata(path)?.uid();
    let mut list = [0; SIZE];
    match getxattr(path, ATTRIBUTE, &mut list[..]) {
        Ok(length) => {
            Ok((owner == 0 || owner == own)
                && list.get(..length).is_some_and(|l| gives_only(l, own)))
        }
        // No ACL, or more entries than expected, or a file system without ACLs.
        Err(Errno::NODATA | Errno::RANGE | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether the list gives nothing to anybody but the owner, and at most read access to the user `own`.
fn gives_only(list: &[u8], own: u32) -> bool {
    let Some((version, entries)) = list.split_first_chunk() else { return false };
    let (entries, rest) = entries.as_chunks::<8>();
    u32::from_le_bytes(*version) == VERSION
        && rest.is_empty()
        && entries.iter().all(|&[tag_0, tag_1, rights_0, rights_1, user @ ..]| {
            let rights = u16::from_le_bytes([rights_0, rights_1]);
            match u16::from_le_bytes([tag_0, tag_1]) {
                // The mask grants nothing by itself.
                OWNER | MASK => true,
                USER if u32::from_le_bytes(user) == own => rights & !READ == 0,
                _ => rights == 0,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: u16 = 0x04;
    const NAMED_GROUP: u16 = 0x08;
    const OTHERS: u16 = 0x20;
    const OWN: u32 = 990;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(rights.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn list_of_a_credential_is_private_and_wider_ones_are_not() {
        let credential = [
            (OWNER, 4, u32::MAX),
            (USER, 4, OWN),
            (GROUP, 0, u32::MAX),
            (MASK, 4, u32::MAX),
            (OTHERS, 0, u32::MAX),
        ];
        assert!(gives_only(&list(&credential), OWN));
        assert!(!gives_only(&list(&credential), OWN + 1), "a different user");
        for (at, wider) in [
            (1, (USER, 6, OWN)),
            (2, (GROUP, 4, u32::MAX)),
            (2, (NAMED_GROUP, 4, 7)),
            (4, (OTHERS, 4, u32::MAX)),
        ] {
            let mut entries = credential;
            entries[at] = wider;
            assert!(!gives_only(&list(&entries), OWN), "{wider:?}");
        }
        assert!(!gives_only(&[], OWN));
        assert!(!gives_only(&list(&credential)[..10], OWN), "truncated");
    }
}
