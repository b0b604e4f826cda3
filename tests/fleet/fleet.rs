//! A fleet: guests `vm1` to `vmN`, each a whole Debian with systemd, on one network of their own.
//!
//! A guest has the kernel and the clock of this machine; it has processes, files, network and cgroups of its own.
//! Nothing of this machine changes, and two fleets do not meet: names contain the id of the fleet.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fs_err as fs;
use ironmesh_tests::programs::{require_debian, require_envoy, require_ironmesh, require_package};

use crate::guest::Guest;
use crate::leftovers;
use crate::network::Network;

/// A running fleet. Dropping this value ends its guests and removes all of it; after a failed test, the ends of
/// their journals are printed.
#[derive(Debug)]
pub(crate) struct Fleet {
    guests: Vec<Guest>,
    /// The locks that mark the fleet and the root folder of its guests as in use.
    _locks: [File; 2],
    site: Arc<Site>,
}

/// What the guests of a fleet share.
#[derive(Debug)]
pub(crate) struct Site {
    /// The id of the fleet.
    pub(crate) id: String,
    /// The folder with what the guests write.
    pub(crate) folder: PathBuf,
    /// The root folder that all guests start from, and never change.
    pub(crate) debian: PathBuf,
    /// The mount point of cgroup2 on this machine.
    pub(crate) cgroups: PathBuf,
    pub(crate) network: Network,
    /// What each guest has of this machine: a program here, and its path there.
    pub(crate) programs: Vec<(PathBuf, &'static str)>,
}

impl Site {
    /// The cgroup of the fleet, as a path below the mount point.
    pub(crate) fn cgroup(&self) -> String {
        format!("{}{}", leftovers::PREFIX, self.id)
    }
}

/// The path of the package on the guests of [`Fleet::boot_with_package`].
pub(crate) const PACKAGE: &str =
    concat!("/root/ironmesh_", env!("CARGO_PKG_VERSION"), "-1_amd64.deb");

/// Fleets that this process has booted.
static FLEETS: AtomicU32 = AtomicU32::new(0);

impl Fleet {
    /// Boots `count` guests with `ironmesh` and `envoy` in `/usr/local/bin`, and waits until all their units have
    /// started. `None` skips the test because root or a program is missing.
    pub(crate) async fn boot(count: u8) -> Option<Self> {
        Self::boot_with(count, require_ironmesh()?, "/usr/local/bin/ironmesh").await
    }

    /// As [`Self::boot`], with the package [`PACKAGE`] instead of `ironmesh`. No guest has installed it.
    pub(crate) async fn boot_with_package(count: u8) -> Option<Self> {
        Self::boot_with(count, require_package()?, PACKAGE).await
    }

    async fn boot_with(count: u8, program: PathBuf, path: &'static str) -> Option<Self> {
        let envoy = require_envoy()?;
        let debian = fs::canonicalize(require_debian()?).unwrap();
        let programs = vec![
            (fs::canonicalize(program).unwrap(), path),
            (fs::canonicalize(envoy).unwrap(), "/usr/local/bin/envoy"),
        ];
        let cgroups = leftovers::cgroups();
        let id = format!("{}-{}", std::process::id(), FLEETS.fetch_add(1, Ordering::Relaxed));
        let (folder, lock) = leftovers::claim(&id);
        let network = Network::create(&id).await;
        let locks = [lock, lock_shared(&debian)];
        let site = Site { id, folder, debian, cgroups, network, programs };
        let mut fleet = Self { guests: Vec::new(), _locks: locks, site: Arc::new(site) };
        for number in 1..=count {
            let guest = Guest::new(number, Arc::clone(&fleet.site), count);
            guest.power_on().await;
            fleet.guests.push(guest);
        }
        for guest in &fleet.guests {
            guest.wait_until_booted().await;
        }
        Some(fleet)
    }

    /// The guest `vm{number}`, from 1.
    pub(crate) fn guest(&self, number: u8) -> &Guest {
        &self.guests[usize::from(number) - 1]
    }
}

/// `scripts/get-debian.sh` removes no root folder that has a lock.
fn lock_shared(folder: &Path) -> File {
    let lock = File::open(folder).unwrap();
    lock.lock_shared().unwrap();
    lock
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for guest in &self.guests {
                guest.print_journal();
            }
        }
        leftovers::remove(&self.site.id, &self.site.folder);
    }
}
