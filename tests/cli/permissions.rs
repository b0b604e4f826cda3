//! Missing permissions of the user of `ironmesh`: each error names the path, and nothing is left
//! half done.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::server::{Server, files};

/// Removed permissions, restored when this is dropped: an unreadable folder could not be removed.
struct Locked(PathBuf);

impl Locked {
    fn new(path: &Path, mode: u32) -> Self {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        Self(path.to_owned())
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = fs::set_permissions(&self.0, Permissions::from_mode(0o700));
    }
}

#[test]
fn state_folder_without_write_permission_is_named() {
    for exists in [false, true] {
        let Some(server) = Server::open("") else { return };
        server.workspace.write("policy/a.toml", "# No service yet.\n");
        let locked = if exists {
            fs::create_dir(server.state()).unwrap();
            Locked::new(&server.state(), 0o500)
        } else {
            Locked::new(server.workspace.path(), 0o500)
        };
        let run = server.workspace.run_unprivileged(&["serve", "--config", "ironmesh.toml"]);
        let Some(run) = run else { return };
        assert_eq!(run.code, 1, "{run:?}");
        for part in [server.state().to_str().unwrap(), "Permission denied"] {
            assert!(run.stderr.contains(part), "no {part:?} in {}", run.stderr);
        }
        assert_eq!(files(&server.state()), Vec::<String>::new());
        assert_eq!(server.state().exists(), exists);
        drop(locked);
    }
}

#[test]
fn unreadable_policy_folder_is_named_and_creates_no_state() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", "# No service yet.\n");
    let policy = server.workspace.path().join("policy");
    let _locked = Locked::new(&policy, 0o000);
    for arguments in [
        &["serve", "--config", "ironmesh.toml"][..],
        &["policy", "check", policy.to_str().unwrap()],
    ] {
        let Some(run) = server.workspace.run_unprivileged(arguments) else { return };
        assert_eq!(run.code, 1, "{run:?}");
        for part in
            [policy.to_str().unwrap(), "may not read the policy folder", "Permission denied"]
        {
            assert!(run.stderr.contains(part), "no {part:?} in {}", run.stderr);
        }
    }
    assert!(!server.state().exists());
}

#[test]
fn unreadable_policy_file_is_a_finding() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", "# No service yet.\n");
    server.workspace.write("policy/b.toml", "");
    let _locked = Locked::new(&server.workspace.path().join("policy/b.toml"), 0o000);
    let Some(run) = server.workspace.run_unprivileged(&["policy", "check", "policy"]) else {
        return;
    };
    assert_eq!(run.code, 3, "{run:?}");
    for part in ["error[IM0107]", "`b.toml` cannot be read: this user may not read it"] {
        assert!(run.stdout.contains(part), "no {part:?} in {}", run.stdout);
    }
}
