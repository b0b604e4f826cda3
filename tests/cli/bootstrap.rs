//! `ironmesh proxy bootstrap`: its files, and the requests that it rejects without enrolling a
//! proxy.

use std::os::unix::fs::PermissionsExt;

use fs_err as fs;
use ironmesh_tests::process::Child;
use serde_json::Value;

use crate::command::Run;
use crate::server::{Server, files};

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "buyer"
"#;

/// A running control plane with two services and no proxy.
struct BootstrapServer {
    server: Server,
    _child: Child,
}

impl BootstrapServer {
    async fn open() -> Option<Self> {
        let server = Server::open("")?;
        server.workspace.write("policy/services.toml", POLICY);
        let child = server.start().await;
        server.ready().await;
        Some(Self { server, _child: child })
    }

    fn bootstrap(&self, services: &[&str], out: &str) -> Run {
        let mut arguments = vec!["proxy", "bootstrap", "--address", "127.0.0.1", "--out", out];
        for service in services {
            arguments.extend(["--service", service]);
        }
        self.server.run(&arguments)
    }

    fn enrolled(&self) -> Vec<Value> {
        let run = self.server.run(&["proxy", "list", "--output", "json"]);
        assert_eq!(run.code, 0, "{run:?}");
        serde_json::from_str(&run.stdout).unwrap()
    }

    /// Checks that the run was rejected with these words, and that no proxy is enrolled.
    fn assert_rejected(&self, run: &Run, words: &[&str]) {
        assert_eq!(run.code, 1, "{run:?}");
        for part in words {
            assert!(run.stderr.contains(part), "no {part:?} in {}", run.stderr);
        }
        assert_eq!(run.stdout, "");
        assert_eq!(self.enrolled(), Vec::<Value>::new());
    }
}

#[tokio::test]
async fn output_folder_is_private_and_holds_the_envoy_files() {
    let Some(running) = BootstrapServer::open().await else { return };
    // The parent folder is created as well.
    let run = running.bootstrap(&["store", "default/buyer"], "proxies/one");
    assert_eq!(run.code, 0, "{run:?}");
    let out = running.server.workspace.path().join("proxies/one");
    // The printed command would run Envoy as the current user.
    let advice = format!(
        "note: running as root: start Envoy as an unprivileged user that can read {0}, for example `chown -R envoy: {0}`",
        out.display()
    );
    assert_eq!(run.stdout.contains(&advice), rustix::process::geteuid().is_root(), "{run:?}");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&out), 0o700);
    assert_eq!(mode(&out.join("proxy.key")), 0o600);
    assert_eq!(
        files(&out),
        [
            "ca.crt",
            "enrollment.json",
            "envoy.yaml",
            "proxy.crt",
            "proxy.key",
            "sds-certificate.yaml",
            "sds-roots.yaml",
            "workload.json"
        ]
    );
    assert_eq!(files(&running.server.workspace.path().join("proxies")), ["one"]);
    let command = format!("envoy -c {}", out.join("envoy.yaml").display());
    assert!(run.stdout.contains(&command), "{}", run.stdout);

    let enrolled = running.enrolled();
    assert_eq!(enrolled.len(), 1, "{enrolled:?}");
    let proxy = &enrolled[0];
    assert_eq!(proxy["services"], serde_json::json!(["default/store", "default/buyer"]));
    assert_eq!(proxy["mesh_address"], "127.0.0.1:15003");
    let text = fs::read_to_string(out.join("envoy.yaml")).unwrap();
    let bootstrap: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(bootstrap["node"]["id"], proxy["id"]);
    assert_eq!(bootstrap["node"]["cluster"], "default/store");
}

#[tokio::test]
async fn existing_output_folder_is_rejected_and_unchanged() {
    let Some(running) = BootstrapServer::open().await else { return };
    running.server.workspace.write("proxy/notes.txt", "mine");
    let run = running.bootstrap(&["store"], "proxy");
    running.assert_rejected(&run, &["proxy` exists already", "choose a new folder"]);
    let folder = running.server.workspace.path().join("proxy");
    assert_eq!(files(&folder), ["notes.txt"]);
    running.server.workspace.write("file", "mine");
    let run = running.bootstrap(&["store"], "file");
    running.assert_rejected(&run, &["file` exists already"]);
}

#[tokio::test]
async fn undefined_service_is_rejected_with_the_defined_ones() {
    let Some(running) = BootstrapServer::open().await else { return };
    let known = "it defines: default/buyer, default/store";
    let run = running.bootstrap(&["store", "stroe"], "proxy");
    running.assert_rejected(
        &run,
        &["policy defines no service `default/stroe`; did you mean `default/store`?"],
    );
    let out = running.server.workspace.path().join("proxy");
    assert!(!out.exists());
    // An upstream is a reference like any other.
    let run = running.server.run(&[
        "proxy",
        "bootstrap",
        "--service",
        "store",
        "--address",
        "127.0.0.1",
        "--upstream",
        "elsewhere/store=8000",
        "--out",
        "proxy",
    ]);
    running.assert_rejected(&run, &["policy defines no service `elsewhere/store`", known]);
    assert!(!out.exists());
    assert_eq!(files(running.server.workspace.path()).len(), 4, "something is left");
}

#[tokio::test]
async fn duplicate_service_is_rejected() {
    let Some(running) = BootstrapServer::open().await else { return };
    // Two spellings of the same service.
    let run = running.bootstrap(&["store", "buyer", "default/store"], "proxy");
    running.assert_rejected(&run, &["the service `default/store` is named twice"]);
    assert!(!running.server.workspace.path().join("proxy").exists());
}

#[tokio::test]
async fn undialable_mesh_address_is_rejected() {
    let Some(running) = BootstrapServer::open().await else { return };
    for address in ["0.0.0.0", "::", "224.0.0.1"] {
        let run = running.server.run(&[
            "proxy",
            "bootstrap",
            "--service",
            "store",
            "--address",
            address,
            "--out",
            "proxy",
        ]);
        running
            .assert_rejected(&run, &[&format!("callers cannot connect to a proxy at {address}")]);
        assert!(!running.server.workspace.path().join("proxy").exists());
    }
}

#[tokio::test]
async fn unwritable_output_folder_leaves_no_join_record() {
    let Some(running) = BootstrapServer::open().await else { return };
    // Not even root can create a folder in /proc.
    for (out, named) in
        [("/proc/ironmesh-test/proxy", "/proc/ironmesh-test"), ("/proc/ironmesh-test", "/proc/")]
    {
        let run = running.bootstrap(&["store"], out);
        running.assert_rejected(&run, &[named]);
    }
}

#[tokio::test]
async fn file_or_link_at_output_path_prevents_enrollment() {
    let Some(running) = BootstrapServer::open().await else { return };
    let workspace = &running.server.workspace;
    workspace.write("file", "");
    // A dangling symlink exists, too.
    std::os::unix::fs::symlink("nowhere", workspace.path().join("link")).unwrap();
    let before = files(workspace.path());
    for out in ["link", "file/proxy"] {
        let run = running.bootstrap(&["store"], out);
        running.assert_rejected(&run, &[out]);
        assert_eq!(files(workspace.path()), before, "something is left");
    }
}

#[tokio::test]
async fn known_as_addresses_are_stored_with_the_proxy() {
    let Some(running) = BootstrapServer::open().await else { return };
    let bootstrap = |out: &str, more: &[&str]| {
        let known = ["proxy", "bootstrap", "--service", "store", "--address", "127.0.0.1"];
        running.server.run(&[&known, &["--out", out][..], more].concat())
    };
    let nobody = bootstrap("nobody", &["--known-as", "0.0.0.0"]);
    running.assert_rejected(&nobody, &["a provider cannot know a machine by 0.0.0.0"]);
    let many: Vec<_> =
        (0..17).flat_map(|n| ["--known-as".to_owned(), format!("10.0.0.{n}")]).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    running.assert_rejected(&bootstrap("many", &many), &["known by at most 16 addresses"]);
    let several = bootstrap("several", &["--known-as", "10.0.0.1", "--count", "2"]);
    assert_eq!(several.code, 2, "{several:?}");
    assert!(several.stderr.contains("--count"), "{several:?}");

    let run = bootstrap("one", &["--known-as", "192.168.7.7", "--known-as", "fd00::7"]);
    assert_eq!(run.code, 0, "{run:?}");
    let enrolled = running.enrolled();
    assert_eq!(enrolled[0]["addresses"], serde_json::json!(["192.168.7.7", "fd00::7"]));
    let id = enrolled[0]["id"].as_str().unwrap();
    let shown = running.server.run(&["proxy", "show", id]);
    assert!(shown.stdout.contains("known as      192.168.7.7, fd00::7\n"), "{}", shown.stdout);
}

#[tokio::test]
async fn duplicate_upstream_port_is_rejected_before_issuing() {
    let Some(running) = BootstrapServer::open().await else { return };
    for (one, other, words) in [
        (
            "store=14001",
            "buyer:80=14001",
            "the local port 14001: `default/store` and `default/buyer:80`",
        ),
        (
            "store=14001",
            "api.example.com:443=14001",
            "the local port 14001: `default/store` and `api.example.com:443`",
        ),
    ] {
        let mut arguments = vec!["proxy", "bootstrap", "--address", "127.0.0.1", "--out", "proxy"];
        arguments.extend(["--service", "store", "--upstream", one, "--upstream", other]);
        let run = running.server.run(&arguments);
        assert_eq!((run.code, &*run.stdout), (2, ""), "{run:?}");
        assert!(run.stderr.contains(words), "no {words:?} in {}", run.stderr);
        assert!(!running.server.workspace.path().join("proxy").exists());
        assert_eq!(running.enrolled(), Vec::<Value>::new());
    }
}
