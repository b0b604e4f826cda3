//! The shared memory of the epochs of a hot restart.
//!
//! Envoy sets a flag in it while an epoch initializes. If that epoch dies, no process clears the flag, and each later hot
//! restart fails with "previous envoy process is still initializing". The supervisor knows that the epoch is dead, and
//! clears the flag.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// The version of the layout below: protocol 11, 104 bytes (`envoy --hot-restart-version`). Envoy has kept it for
/// years.
const LAYOUT: &str = "11.104";

/// The size of the memory, and the position of its flags: size, version, and two mutexes of 40 bytes precede them.
const SIZE: u64 = 104;
const FLAGS: u64 = 96;

/// The shared memory of a base id.
pub(crate) fn path(base_id: u32) -> PathBuf {
    // Envoy appends a digit for the epoch to the base id; the memory has the one of epoch 0.
    PathBuf::from(format!("/dev/shm/envoy_shared_memory_{base_id}0"))
}

/// Clears the flag of an epoch that died while it initialized.
pub(crate) fn clear_initializing(base_id: u32, hot_restart_version: &str) -> io::Result<()> {
    let file = File::options().write(true).open(path(base_id))?;
    if hot_restart_version != LAYOUT || file.metadata()?.len() != SIZE {
        let problem = format!("hot restart version `{hot_restart_version}` has an unknown layout");
        return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
    }
    file.write_all_at(&[0; 8], FLAGS)
}
