//! The demo's side of the working folder. The caretaker process creates and removes the folder, and kills the remaining
//! programs if the demo cannot.

use std::io::{PipeWriter, Write as _, pipe};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::caretaker::{CHILD, FAILED, KEEP, MADE};
use crate::error::DemoError;
use crate::options::DemoOptions;

/// The folder with all files of one demo. However this value or its process ends, the caretaker kills the demo's
/// programs and removes the folder, except after [`Self::keep`].
#[derive(Debug)]
pub(crate) struct WorkingFolder {
    path: PathBuf,
    caretaker: Child,
    /// `None` after the caretaker is dismissed.
    pipe: Option<PipeWriter>,
}

impl WorkingFolder {
    /// Starts the caretaker, which creates the folder.
    pub(crate) async fn create(options: &DemoOptions) -> Result<Self, DemoError> {
        let start = |source| DemoError::Start { name: "the caretaker".to_owned(), source };
        let (end, pipe) = pipe().map_err(start)?;
        // It has no tether, since its work begins when the demo is gone. Its own process group protects it from the
        // signals of the terminal.
        let mut caretaker = Command::new(&options.ironmesh)
            .arg(options.caretaker)
            .arg(&options.temporary)
            .stdin(Stdio::from(end))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(start)?;
        let mut line = String::new();
        if let Some(stdout) = caretaker.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).await.map_err(start)?;
        }
        let line = line.trim_end();
        let made = line.strip_prefix(MADE).map(PathBuf::from);
        let path = made.ok_or_else(|| DemoError::Folder {
            problem: line.strip_prefix(FAILED).unwrap_or("the caretaker did not answer").to_owned(),
        })?;
        // On this error the pipe closes, and the caretaker removes the folder.
        if path.as_os_str().len() + SOCKET.len() > LONGEST_SOCKET {
            let problem = format!("its path is too long for a socket in it: `{}`", path.display());
            return Err(DemoError::Folder { problem });
        }
        Ok(Self { path, caretaker, pipe: Some(pipe) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Registers a program that the caretaker kills at the end, if it still runs.
    pub(crate) fn kill_at_end(&self, id: u32) {
        self.send(&format!("{CHILD}{id}"));
    }

    /// Removes the folder by the caretaker, and waits. Returns whether the folder is gone.
    pub(crate) async fn remove(&mut self) -> bool {
        self.dismiss().await;
        !self.path.exists()
    }

    /// Keeps the folder, and dismisses the caretaker.
    pub(crate) async fn keep(&mut self) {
        self.send(KEEP);
        self.dismiss().await;
    }

    /// Sends a line to the caretaker. The pipe buffers thousands of such lines, so this does not block.
    fn send(&self, line: &str) {
        if let Some(mut pipe) = self.pipe.as_ref() {
            // If the caretaker is gone, nothing can be done.
            drop(pipe.write_all(format!("{line}\n").as_bytes()));
        }
    }

    async fn dismiss(&mut self) {
        self.pipe = None;
        drop(timeout(TIMEOUT, self.caretaker.wait()).await);
    }
}

/// The path of the control plane's socket in the folder.
const SOCKET: &str = "/state/admin.sock";
/// The longest path of a socket, without the NUL at its end (unix(7)).
const LONGEST_SOCKET: usize = 107;
/// Longer than all attempts of the caretaker.
const TIMEOUT: Duration = Duration::from_secs(10);
