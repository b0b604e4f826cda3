//! The working folder, as the demo sees it: made and removed by the caretaker, who also ends the
//! programs in it when the demo cannot.

use std::io::{PipeWriter, Write as _, pipe};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::caretaker::{CHILD, FAILED, KEEP, MADE};
use crate::error::DemoError;
use crate::options::Options;

/// The folder in which everything of one demo lies. However this value and its process end, the
/// programs in it are ended and the folder is removed, except after [`Self::keep`].
#[derive(Debug)]
pub(crate) struct WorkingFolder {
    path: PathBuf,
    caretaker: Child,
    /// None when the caretaker is dismissed.
    pipe: Option<PipeWriter>,
}

impl WorkingFolder {
    pub(crate) async fn create(options: &Options) -> Result<Self, DemoError> {
        let start = |source| DemoError::Start { name: "the caretaker".to_owned(), source };
        let (end, pipe) = pipe().map_err(start)?;
        // It is not tied to us: its work begins when we are gone. A group of its own keeps it from
        // the signals of the terminal.
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
            problem: line.strip_prefix(FAILED).unwrap_or("the caretaker said nothing").to_owned(),
        })?;
        // Should it be refused, the caretaker hears the end of its pipe, and removes it.
        if path.as_os_str().len() + SOCKET.len() > LONGEST_SOCKET {
            let problem = format!("its path is too long for a socket in it: `{}`", path.display());
            return Err(DemoError::Folder { problem });
        }
        Ok(Self { path, caretaker, pipe: Some(pipe) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Has a program ended when we are gone, should it not end by itself.
    pub(crate) fn look_after(&self, id: u32) {
        self.say(&format!("{CHILD}{id}"));
    }

    /// Has it removed, and waits for that. Returns whether it is gone.
    pub(crate) async fn remove(&mut self) -> bool {
        self.dismiss().await;
        !self.path.exists()
    }

    /// Has it kept.
    pub(crate) async fn keep(&mut self) {
        self.say(KEEP);
        self.dismiss().await;
    }

    /// Tells the caretaker something. A pipe has room for thousands of such lines, so this does not
    /// wait.
    fn say(&self, line: &str) {
        if let Some(mut pipe) = self.pipe.as_ref() {
            // Should it be gone already, there is nobody to do more.
            drop(pipe.write_all(format!("{line}\n").as_bytes()));
        }
    }

    async fn dismiss(&mut self) {
        self.pipe = None;
        drop(timeout(PATIENCE, self.caretaker.wait()).await);
    }
}

/// Where the control plane will have a socket in the folder.
const SOCKET: &str = "/state/admin.sock";
/// The longest path of a socket, without the NUL at its end (unix(7)).
const LONGEST_SOCKET: usize = 107;
/// Longer than all tries of the caretaker.
const PATIENCE: Duration = Duration::from_secs(10);
