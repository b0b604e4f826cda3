//! Runs `ironmesh serve` for a test.

use std::path::{Path, PathBuf};

use fs_err as fs;
use ironmesh_tests::process::Child;
use ironmesh_tests::{Http1Connection, Loopback, Response, eventually, get_once};
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::command::{Run, Workspace};

/// A workspace whose control plane has its own addresses.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) workspace: Workspace,
    pub(crate) loopback: Loopback,
}

impl Server {
    /// Opens a server with further settings `more`, without a policy folder. `None` if the program
    /// is missing.
    pub(crate) fn open(more: &str) -> Option<Self> {
        let server = Self { workspace: Workspace::open()?, loopback: Loopback::claim() };
        let (xds, admin) = (server.loopback.socket(1, 15128), server.loopback.socket(1, 15014));
        let settings = format!(
            "{more}\nstate = \"state\"\npolicy = \"policy\"\n[listen]\nxds = \"{xds}\"\nadmin = \"{admin}\"\n"
        );
        server.workspace.write("ironmesh.toml", &settings);
        Some(server)
    }

    /// Opens a server whose policy comes from releases.
    pub(crate) fn open_with_releases() -> Option<Self> {
        let server = Self::open("")?;
        let (xds, admin) = (server.loopback.socket(1, 15128), server.loopback.socket(1, 15014));
        let settings = format!(
            "state = \"state\"\npolicy.source = \"releases\"\n[listen]\nxds = \"{xds}\"\nadmin = \"{admin}\"\n"
        );
        server.workspace.write("ironmesh.toml", &settings);
        Some(server)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.workspace.path().join("state")
    }

    /// Runs `ironmesh` with this server's settings to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.workspace.run(&[arguments, &["--config", "ironmesh.toml"]].concat())
    }

    /// Runs `ironmesh` with `--output json`, which must succeed. Returns its output.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let run = self.run(&[arguments, &["--output", "json"]].concat());
        assert_eq!(run.code, 0, "{run:?}");
        serde_json::from_str(&run.stdout).unwrap()
    }

    /// Runs `serve`, which must fail by itself.
    pub(crate) fn run_failing(&self) -> Run {
        let run = self.run(&["serve"]);
        assert_eq!(run.code, 1, "{run:?}");
        run
    }

    /// Starts `serve`, and waits until it answers, ready or not.
    pub(crate) async fn start(&self) -> Child {
        let command = self.workspace.command(&["serve", "--config", "ironmesh.toml"]);
        let log = self.workspace.path().join("serve.log");
        let mut child = Child::start("ironmesh serve", &mut Command::from(command), &log);
        eventually("the admin API", async || {
            child.assert_running();
            get_once(self.loopback.socket(1, 15014), "/readyz", &[]).await
        })
        .await;
        child
    }

    /// The answer of `/readyz`.
    pub(crate) async fn readyz(&self) -> Response {
        get_once(self.loopback.socket(1, 15014), "/readyz", &[]).await.unwrap()
    }

    /// Waits until the policy in `/readyz` satisfies a condition.
    pub(crate) async fn wait_for_policy(
        &self,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(what, async || match self.readyz().await.json()["policy"].clone() {
            policy if condition(&policy) => Ok(policy),
            policy => Err(format!("{policy:#}")),
        })
        .await
    }

    /// Waits until `/readyz` answers 200.
    pub(crate) async fn ready(&self) {
        eventually("readiness", async || match self.readyz().await {
            answer if answer.status == 200 => Ok(()),
            answer => Err(answer.text()),
        })
        .await;
    }

    /// Runs `serve` until it is ready, and ends it.
    pub(crate) async fn serve_once(&self) {
        let mut child = self.start().await;
        self.ready().await;
        assert!(child.terminate().await.success());
    }
}

/// The answer of `/readyz` on an admin socket.
pub(crate) async fn readyz_by_socket(socket: &Path) -> anyhow::Result<Response> {
    let stream = UnixStream::connect(socket).await?;
    Http1Connection::over(stream).await?.get("/readyz", "ironmesh").await
}

/// The names in a folder; empty if it is missing.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
