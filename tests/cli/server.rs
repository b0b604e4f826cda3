//! Runs `ironmesh serve` for a test.

use std::path::{Path, PathBuf};

use fs_err as fs;
use ironmesh_tests::process::Child;
use ironmesh_tests::{Http1Connection, Loopback, Response, eventually, get_once};
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::command::{Run, Workspace};

/// A place whose control plane has addresses of its own.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) workspace: Workspace,
    pub(crate) loopback: Loopback,
}

impl Server {
    /// One with the settings `more`, and no policy folder yet. `None` where the program is missing.
    pub(crate) fn open(more: &str) -> Option<Self> {
        let server = Self { workspace: Workspace::open()?, loopback: Loopback::claim() };
        let (xds, admin) = (server.loopback.socket(1, 15128), server.loopback.socket(1, 15014));
        let settings = format!(
            "{more}\nstate = \"state\"\npolicy = \"policy\"\n[listen]\nxds = \"{xds}\"\nadmin = \"{admin}\"\n"
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

    /// Runs `serve`, which is to fail by itself.
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

    /// What `/readyz` answers.
    pub(crate) async fn readyz(&self) -> Response {
        get_once(self.loopback.socket(1, 15014), "/readyz", &[]).await.unwrap()
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

/// What `/readyz` answers on an admin socket.
pub(crate) async fn readyz_by_socket(socket: &Path) -> anyhow::Result<Response> {
    let stream = UnixStream::connect(socket).await?;
    Http1Connection::over(stream).await?.get("/readyz", "ironmesh").await
}

/// The names in a folder; none if it is not there.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
