//! A fleet: guests `vm1` to `vmN`, each a whole Debian with systemd, on one network of their own.
//!
//! A guest has the kernel and the clock of this machine; it has processes, files, network and cgroups of its own.
//! Nothing of this machine changes, and two fleets do not meet: names contain the id of the fleet.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fs_err as fs;
use ironmesh_tests::programs::{
    require_debian, require_envoy, require_ironmesh, require_package, require_trixie,
};

use crate::guest::Guest;
use crate::leftovers;
use crate::network::Network;

/// A running fleet. Dropping this value ends its guests and removes all of it; after a failed test, the ends of
/// their journals are printed.
#[derive(Debug)]
pub(crate) struct Fleet {
    guests: Vec<Guest>,
    /// The locks that mark the fleet and the root folders of its guests as in use.
    _locks: Vec<File>,
    site: Arc<Site>,
}

/// A release of Debian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// Debian 12.
    Bookworm,
    /// Debian 13.
    Trixie,
}

/// What the guests of a fleet share.
#[derive(Debug)]
pub(crate) struct Site {
    /// The id of the fleet.
    pub(crate) id: String,
    /// The folder with what the guests write.
    pub(crate) folder: PathBuf,
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

/// The path of the package of the control plane on the guests of [`Fleet::boot_with_packages`].
pub(crate) const CONTROL_PLANE_PACKAGE: &str = "/root/control-plane.deb";

/// Fleets that this process has booted.
static FLEETS: AtomicU32 = AtomicU32::new(0);

impl Fleet {
    /// Boots `count` guests with `ironmesh` and `envoy` in `/usr/local/bin`, and waits until all their units have
    /// started. `None` skips the test because root or a program is missing.
    pub(crate) async fn boot(count: u8) -> Option<Self> {
        Self::boot_with(count, vec![(require_ironmesh()?, "/usr/local/bin/ironmesh")]).await
    }

    /// As [`Self::boot`], with the package [`PACKAGE`] instead of `ironmesh`. No guest has installed it.
    pub(crate) async fn boot_with_package(count: u8) -> Option<Self> {
        Self::boot_with(count, vec![(require_package()?, PACKAGE)]).await
    }

    /// As [`Self::boot`], with `machine` as [`PACKAGE`] and with [`CONTROL_PLANE_PACKAGE`] instead of `ironmesh`.
    pub(crate) async fn boot_with_packages(
        count: u8,
        control_plane: PathBuf,
        machine: PathBuf,
    ) -> Option<Self> {
        let packages = vec![(machine, PACKAGE), (control_plane, CONTROL_PLANE_PACKAGE)];
        Self::boot_with(count, packages).await
    }

    /// Boots guests that have no program of the mesh, each with its release of Debian and with these programs.
    pub(crate) async fn boot_bare(
        releases: &[Release],
        programs: Vec<(PathBuf, &'static str)>,
    ) -> Option<Self> {
        let root = |release: &Release| match release {
            Release::Bookworm => require_debian(),
            Release::Trixie => require_trixie(),
        };
        let debians: Option<Vec<_>> = releases.iter().map(root).collect();
        Some(Self::boot_roots(&debians?, programs).await)
    }

    async fn boot_with(count: u8, mut programs: Vec<(PathBuf, &'static str)>) -> Option<Self> {
        programs.push((require_envoy()?, "/usr/local/bin/envoy"));
        let debian = require_debian()?;
        Some(Self::boot_roots(&vec![debian; usize::from(count)], programs).await)
    }

    /// Boots a guest on each of these root folders.
    async fn boot_roots(debians: &[PathBuf], mut programs: Vec<(PathBuf, &'static str)>) -> Self {
        for (program, _) in &mut programs {
            *program = fs::canonicalize(&*program).unwrap();
        }
        let debians: Vec<_> = debians.iter().map(|root| fs::canonicalize(root).unwrap()).collect();
        let cgroups = leftovers::cgroups();
        let id = format!("{}-{}", std::process::id(), FLEETS.fetch_add(1, Ordering::Relaxed));
        let (folder, lock) = leftovers::claim(&id);
        let network = Network::create(&id).await;
        let locks = debians.iter().map(|root| lock_shared(root)).chain([lock]).collect();
        let site = Site { id, folder, cgroups, network, programs };
        let mut fleet = Self { guests: Vec::new(), _locks: locks, site: Arc::new(site) };
        let count = u8::try_from(debians.len()).unwrap();
        for (number, debian) in (1..=count).zip(debians) {
            let guest = Guest::new(number, debian, Arc::clone(&fleet.site), count);
            guest.power_on().await;
            fleet.guests.push(guest);
        }
        for guest in &fleet.guests {
            guest.wait_until_booted().await;
        }
        fleet
    }

    /// All guests.
    pub(crate) fn guests(&self) -> &[Guest] {
        &self.guests
    }

    /// The network namespace with the bridge, from which all guests are reached.
    pub(crate) fn lan(&self) -> String {
        self.site.network.lan()
    }

    /// A cgroup for processes of this machine that end with the fleet.
    pub(crate) fn controller_cgroup(&self) -> PathBuf {
        let cgroup = self.site.cgroups.join(self.site.cgroup()).join("controller");
        fs::create_dir_all(&cgroup).unwrap();
        cgroup
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
