//! New files that replace those of a proxy's folder while its sidecar runs.

use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;

/// Writes a new file to the disk, in place of one that an interrupted run left. It gets owner and mode of the file
/// `replaced`, which it will replace: root may run this for the user of the sidecar.
pub fn write_replacement(path: &Path, content: &str, replaced: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = File::options();
    // New, and so never the target of a link that another user of the folder made.
    let mut file = options.write(true).create_new(true).mode(0o644).open(path)?;
    if let Ok(replaced) = std::fs::symlink_metadata(replaced) {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (replaced.uid(), replaced.gid()) {
            fchown(&file, Some(replaced.uid()), Some(replaced.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(replaced.mode() & 0o777))?;
    }
    file.write_all(content.as_bytes())?;
    file.sync_all()
}
