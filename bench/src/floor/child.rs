//! The floor as a child process of the runner.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, timeout};

use crate::measured_control_plane::{XDS, free_host};

/// A running floor. Dropping it ends the floor.
#[derive(Debug)]
pub(crate) struct Floor {
    program: PathBuf,
    folder: PathBuf,
    frames: PathBuf,
    roots: PathBuf,
    address: SocketAddr,
    /// Whether it sends the second of its two contents.
    is_second: bool,
    child: Option<(Child, ChildStdin)>,
}

impl Floor {
    /// Starts the floor. `program` is this binary, `roots` verify the certificates of clients.
    pub(crate) async fn start(
        program: &Path,
        folder: &Path,
        frames: &Path,
        roots: &Path,
    ) -> anyhow::Result<Self> {
        let mut floor = Self {
            program: program.to_owned(),
            folder: folder.join("floor"),
            frames: frames.to_owned(),
            roots: roots.to_owned(),
            address: SocketAddr::from((free_host()?, XDS)),
            is_second: false,
            child: None,
        };
        floor.run().await?;
        Ok(floor)
    }

    /// Restarts the floor with a change that it has sent to no client.
    pub(crate) async fn run_changed(&mut self) -> anyhow::Result<()> {
        self.is_second = !self.is_second;
        self.run().await
    }

    /// Starts the process, and waits until it listens.
    async fn run(&mut self) -> anyhow::Result<()> {
        let mut command = Command::new(&self.program);
        command.arg("floor").arg("--frames").arg(&self.frames);
        command.arg("--listen").arg(self.address.to_string());
        command.arg("--roots").arg(&self.roots).arg("--state").arg(&self.folder);
        if self.is_second {
            command.arg("--changed");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("cannot run the floor")?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stdout = BufReader::new(stdout.context("no standard output")?);
        let line = timeout(Duration::from_secs(30), stdout.lines().next_line()).await??;
        ensure!(line.as_deref() == Some("ready"), "the floor does not start");
        self.child = Some((child, stdin.context("no standard input")?));
        Ok(())
    }

    /// Kills the floor with SIGKILL.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        if let Some((mut child, _)) = self.child.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// Sends the other content to all clients. Returns the time before.
    pub(crate) async fn change(&mut self) -> anyhow::Result<Instant> {
        let (_, stdin) = self.child.as_mut().context("the floor is not running")?;
        self.is_second = !self.is_second;
        let before = Instant::now();
        stdin.write_all(b"change\n").await?;
        Ok(before)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn id(&self) -> anyhow::Result<u32> {
        let id = self.child.as_ref().and_then(|(child, _)| child.id());
        id.context("the floor is not running")
    }

    /// The roots of its own certificate, in PEM.
    pub(crate) fn own_roots(&self) -> anyhow::Result<String> {
        Ok(fs_err::read_to_string(self.folder.join("roots.pem"))?)
    }
}
