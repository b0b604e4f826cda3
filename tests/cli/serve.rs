//! `ironmesh serve` where it cannot: each refusal says what, where and what to do, and leaves nothing
//! half made.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ironmesh_tests::Loopback;

use crate::command::{Place, Run};

/// A place whose control plane has addresses of its own.
struct Server {
    place: Place,
    loopback: Loopback,
}

impl Server {
    fn open(more: &str) -> Option<Self> {
        let server = Self { place: Place::open()?, loopback: Loopback::claim() };
        let (xds, admin) = (server.loopback.socket(1, 15128), server.loopback.socket(1, 15014));
        let settings = format!(
            "{more}\nstate = \"state\"\npolicy = \"policy\"\n[listen]\nxds = \"{xds}\"\nadmin = \"{admin}\"\n"
        );
        server.place.write("ironmesh.toml", &settings);
        Some(server)
    }

    fn state(&self) -> std::path::PathBuf {
        self.place.path().join("state")
    }

    /// Runs `serve`, which is to fail by itself.
    fn refused(&self) -> Run {
        let run = self.place.run(&["serve", "--config", "ironmesh.toml"]);
        assert_eq!(run.code, 1, "{run:?}");
        run
    }

    /// Runs `serve` until it is ready, and ends it.
    fn serve_once(&self) {
        let mut command = self.place.command(&["serve", "--config", "ironmesh.toml"]);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let socket = self.state().join("admin.sock");
        wait_for("the admin socket", || socket.exists());
        let list = || self.place.run(&["proxy", "list", "--config", "ironmesh.toml"]).code == 0;
        wait_for("an answer", list);
        let ended = Command::new("kill").arg(child.id().to_string()).status().unwrap();
        assert!(ended.success() && child.wait().unwrap().success());
    }
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a deadline of real time")]
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(30), "no {what}");
        std::thread::yield_now();
    }
}

fn files(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs_err::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_missing_policy_folder_is_named_and_no_state_is_made() {
    let Some(server) = Server::open("") else { return };
    let run = server.refused();
    assert!(run.stderr.contains("there is no policy folder at"), "{}", run.stderr);
    assert_eq!(files(&server.state()), Vec::<String>::new());
}

#[test]
fn a_port_in_use_is_named_with_the_setting_and_no_state_is_made() {
    let Some(server) = Server::open("") else { return };
    server.place.write("policy/a.toml", "");
    let taken = server.loopback.socket(1, 15128);
    let _listener = TcpListener::bind(taken).unwrap();
    let run = server.refused();
    for part in [&format!("cannot listen on {taken} for xDS"), "`listen.xds`", "in use"] {
        assert!(run.stderr.contains(part), "no {part:?} in {}", run.stderr);
    }
    assert_eq!(files(&server.state()), Vec::<String>::new());
}

#[test]
fn a_state_folder_that_cannot_be_written_is_named() {
    let Some(server) = Server::open("") else { return };
    server.place.write("policy/a.toml", "");
    // Root may write to any folder, but nobody may make one below a file.
    server.place.write("state", "this is a file");
    let run = server.refused();
    assert!(run.stderr.contains("state"), "{}", run.stderr);
    assert_eq!(fs_err::read_to_string(server.state()).unwrap(), "this is a file");
}

#[test]
fn a_wrong_key_encryption_key_is_refused_and_the_right_one_still_opens() {
    let Some(server) = Server::open("") else { return };
    server.place.write("policy/a.toml", "");
    server.serve_once();
    let kek = server.state().join("kek");
    let right = fs_err::read_to_string(&kek).unwrap();
    let first = if right.starts_with('0') { '1' } else { '0' };
    fs_err::write(&kek, format!("{first}{}", &right[1..])).unwrap();
    let run = server.refused();
    assert!(run.stderr.contains("kek"), "{}", run.stderr);
    fs_err::remove_file(&kek).unwrap();
    let run = server.refused();
    assert!(run.stderr.contains("kek"), "{}", run.stderr);
    assert!(!kek.exists(), "a new key was made, which opens nothing");

    server.place.write("state/kek", &right);
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs_err::set_permissions(&kek, permissions).unwrap();
    server.serve_once();
}

#[test]
fn unknown_and_contradictory_settings_are_drawn() {
    let Some(server) = Server::open("trust_domian = \"x\"") else { return };
    let run = server.place.run(&["serve", "--config", "ironmesh.toml"]);
    assert_eq!(run.code, 3, "{run:?}");
    for part in ["error[IM0102]", "ironmesh.toml:1:1", "did you mean `trust_domain`"] {
        assert!(run.stderr.contains(part), "no {part:?} in {}", run.stderr);
    }
}

#[test]
fn the_trust_domain_is_fixed_at_the_first_start() {
    let Some(server) = Server::open("") else { return };
    server.place.write("policy/a.toml", "");
    server.serve_once();
    let settings = fs_err::read_to_string(server.place.path().join("ironmesh.toml")).unwrap();
    server.place.write("ironmesh.toml", &format!("trust_domain = \"other.example\"\n{settings}"));
    let run = server.refused();
    assert!(run.stderr.contains("fixed at the first start"), "{}", run.stderr);
}

#[test]
fn without_a_control_plane_the_commands_exit_with_4() {
    let Some(server) = Server::open("") else { return };
    let out = server.place.path().join("proxy");
    let run = server.place.run(&[
        "proxy",
        "bootstrap",
        "--config",
        "ironmesh.toml",
        "--service",
        "a",
        "--address",
        "127.0.0.1",
        "--out",
        out.to_str().unwrap(),
    ]);
    assert_eq!(run.code, 4, "{run:?}");
    assert!(run.stderr.contains("is `ironmesh serve` running"), "{}", run.stderr);
    assert!(!out.exists());
}
