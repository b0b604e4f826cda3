//! The marks of fleets on this machine, and their removal: also of fleets whose owner was killed.
//!
//! A fleet has a folder with a lock, which ends with its owner, and one cgroup with all its processes.

use std::fs::{File, TryLockError};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use fs_err as fs;
use ironmesh_tests::programs;

/// The start of the names of a fleet's cgroup, network namespaces and guests. The id of the fleet follows.
pub(crate) const PREFIX: &str = "ironmesh-fleet-";

/// The folders of all fleets of this machine.
fn folders() -> PathBuf {
    std::env::temp_dir().join("ironmesh-fleets")
}

/// The mount point of cgroup2.
pub(crate) fn cgroups() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let cgroup2 = fields.into_iter().find(|fields| fields[2] == "cgroup2");
    PathBuf::from(cgroup2.unwrap_or_else(|| panic!("cgroup2 is not mounted"))[1])
}

/// Removes fleets without an owner, and creates the folder of a new one with its lock.
pub(crate) fn claim(id: &str) -> (PathBuf, File) {
    fs::create_dir_all(folders()).unwrap();
    // One at a time: a new folder has no lock yet.
    let turnstile = File::create(folders().join("lock")).unwrap();
    turnstile.lock().unwrap();
    for entry in fs::read_dir(folders()).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let owned = File::open(folder.join("lock")).map(|lock| lock.try_lock());
        if !matches!(owned, Ok(Err(TryLockError::WouldBlock))) {
            remove(&folder.file_name().unwrap().to_string_lossy(), &folder);
        }
    }
    let folder = folders().join(id);
    fs::create_dir(&folder).unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    (folder, lock)
}

/// Ends the processes of a fleet, and removes its network and its folder.
pub(crate) fn remove(id: &str, folder: &Path) {
    let name = format!("{PREFIX}{id}");
    let cgroup = cgroups().join(&name);
    // The guests first: then systemd-nspawn removes what it has created in /run, and ends.
    for guest in entries(&cgroup) {
        let _ = fs::write(guest.join("payload/cgroup.kill"), "1");
    }
    wait_until_empty(&cgroup);
    let _ = fs::write(cgroup.join("cgroup.kill"), "1");
    wait_until_empty(&cgroup);
    remove_cgroups(&cgroup);
    for namespace in entries(Path::new("/run/netns")) {
        let namespace = namespace.file_name().unwrap().to_string_lossy().into_owned();
        if namespace.starts_with(&format!("{name}-")) {
            let _ = Command::new("ip").args(["netns", "del", &namespace]).status();
        }
    }
    if let Err(error) = fs::remove_dir_all(folder) {
        eprintln!("the folder of a fleet stays: {error}");
    }
}

/// Waits until a cgroup has no process, at most three seconds.
fn wait_until_empty(cgroup: &Path) {
    for _ in 0..300 {
        let events = fs::read_to_string(cgroup.join("cgroup.events")).unwrap_or_default();
        if !events.contains("populated 1") {
            return;
        }
        sleep(Duration::from_millis(10));
    }
}

fn remove_cgroups(cgroup: &Path) {
    for child in entries(cgroup).into_iter().filter(|child| child.is_dir()) {
        remove_cgroups(&child);
    }
    let _ = fs::remove_dir(cgroup);
}

/// What a folder has; nothing if it does not exist.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// A killed test leaves processes, network and files.
#[test]
fn fleet_without_an_owner_is_removed_by_the_next_claim() {
    if programs::require_debian().is_none() {
        return;
    }
    let id = format!("killed-{}", std::process::id());
    let (folder, cgroup) = (folders().join(&id), cgroups().join(format!("{PREFIX}{id}")));
    let namespace = format!("{PREFIX}{id}-lan");
    fs::create_dir_all(folder.join("vm1/upper")).unwrap();
    fs::File::create(folder.join("lock")).unwrap();
    fs::create_dir_all(cgroup.join("vm1/payload")).unwrap();
    let mut process = Command::new("sleep").arg("600").spawn().unwrap();
    fs::write(cgroup.join("vm1/payload/cgroup.procs"), process.id().to_string()).unwrap();
    assert!(Command::new("ip").args(["netns", "add", &namespace]).status().unwrap().success());

    let (claimed, _lock) = claim(&format!("claim-{}", std::process::id()));
    assert_eq!(process.wait().unwrap().signal(), Some(9));
    let network = Path::new("/run/netns").join(&namespace);
    for path in [&folder, &cgroup, &network] {
        assert!(!path.exists(), "{}", path.display());
    }
    fs::remove_dir_all(claimed).unwrap();
}
