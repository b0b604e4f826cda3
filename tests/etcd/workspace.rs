//! A folder with settings, the `ironmesh` command, and a control plane.

use std::path::{Path, PathBuf};

use fs_err as fs;
use ironmesh_tests::process::Child;
use ironmesh_tests::{Loopback, eventually, get_once, require_ironmesh};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

/// The result of a run of `ironmesh`.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The output as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The same run; fails the test unless it succeeded.
    pub(crate) fn assert_success(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }
}

#[derive(Debug)]
pub(crate) struct Workspace {
    program: PathBuf,
    folder: TempDir,
    loopback: Loopback,
}

impl Workspace {
    /// Opens a workspace with these settings on policy. `None` if the program is missing.
    pub(crate) fn open(settings: &str) -> Option<Self> {
        let workspace = Self {
            program: require_ironmesh()?,
            folder: tempfile::Builder::new().prefix("ironmesh-test-").tempdir().unwrap(),
            loopback: Loopback::claim(),
        };
        workspace.set(settings);
        Some(workspace)
    }

    /// Replaces the settings.
    pub(crate) fn set(&self, settings: &str) {
        let (xds, admin) = (self.loopback.socket(1, 15128), self.loopback.socket(1, 15014));
        let own =
            format!("state = \"state\"\nlisten = {{ xds = \"{xds}\", admin = \"{admin}\" }}\n");
        self.write("ironmesh.toml", &format!("{own}{settings}"));
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file below the folder.
    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).args(["--config", "ironmesh.toml"]).current_dir(self.path());
        command.env_remove("RUST_LOG").env_remove("IRONMESH_CONFIG").env_remove("SUDO_USER");
        command.env("USER", "anna").kill_on_drop(true);
        command
    }

    /// Runs `ironmesh policy` with these arguments to its end.
    pub(crate) async fn policy(&self, arguments: &[&str]) -> Run {
        self.run(&[&["policy"], arguments].concat()).await
    }

    /// Runs `ironmesh status` to its end.
    pub(crate) async fn status(&self) -> Run {
        self.run(&["status"]).await
    }

    async fn run(&self, arguments: &[&str]) -> Run {
        let output = self.command(arguments).output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap();
        Run { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Pushes a folder, which must succeed. Returns its revision.
    pub(crate) async fn push(&self, folder: &str) -> String {
        let run = self.policy(&["push", folder, "--output", "json"]).await.assert_success();
        run.json()["policy"]["revision"].as_str().unwrap().to_owned()
    }

    /// Starts `ironmesh serve`, and waits until it answers, ready or not.
    pub(crate) async fn serve(&self) -> Child {
        let log = self.path().join("serve.log");
        let mut child = Child::start("ironmesh serve", &mut self.command(&["serve"]), &log);
        eventually("the admin API", async || {
            child.assert_running();
            get_once(self.loopback.socket(1, 15014), "/readyz", &[]).await
        })
        .await;
        child
    }

    /// The answer of the admin port.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let answer = get_once(self.loopback.socket(1, 15014), path, &[]).await?;
        anyhow::ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
        Ok(answer.json())
    }

    /// The answer of `/readyz`.
    pub(crate) async fn readyz(&self) -> Value {
        get_once(self.loopback.socket(1, 15014), "/readyz", &[]).await.unwrap().json()
    }

    /// Waits until `/readyz` satisfies a condition.
    pub(crate) async fn wait_for_readyz(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually(what, async || match self.readyz().await {
            readyz if is(&readyz) => Ok(readyz),
            readyz => Err(format!("{readyz:#}")),
        })
        .await
    }

    /// Waits until this revision is active, and not stale.
    pub(crate) async fn wait_until_active(&self, revision: &str) -> Value {
        self.wait_for_readyz(revision, |readyz| {
            let policy = &readyz["policy"];
            readyz["ready"] == true
                && policy["revision"] == revision
                && policy["stale_since"].is_null()
        })
        .await
    }
}
