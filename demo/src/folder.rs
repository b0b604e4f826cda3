//! The working folder, as the demo sees it: made and removed by the caretaker.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::caretaker::{FAILED, KEEP, MADE};
use crate::error::DemoError;
use crate::options::Options;

/// The folder in which everything of one demo lies. However this value and its process end, the
/// folder is removed, except after [`Self::keep`].
#[derive(Debug)]
pub(crate) struct WorkingFolder {
    path: PathBuf,
    caretaker: Child,
}

impl WorkingFolder {
    pub(crate) async fn create(options: &Options) -> Result<Self, DemoError> {
        let start = |source| DemoError::Start { name: "the caretaker".to_owned(), source };
        // It is not tied to us: its work begins when we are gone. A group of its own keeps it from
        // the signals of the terminal.
        let mut caretaker = Command::new(&options.ironmesh)
            .arg(options.caretaker)
            .arg(&options.temporary)
            .stdin(Stdio::piped())
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
        Ok(Self { path, caretaker })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Has it removed, and waits for that. Returns whether it is gone.
    pub(crate) async fn remove(self) -> bool {
        let path = self.path.clone();
        self.dismiss(&[]).await;
        !path.exists()
    }

    /// Has it kept.
    pub(crate) async fn keep(self) {
        self.dismiss(KEEP).await;
    }

    async fn dismiss(mut self, word: &[u8]) {
        if let Some(mut stdin) = self.caretaker.stdin.take() {
            // Should it be gone already, there is nobody to do more.
            drop(stdin.write_all(word).await);
        }
        drop(timeout(PATIENCE, self.caretaker.wait()).await);
    }
}

/// Where the control plane will have a socket in the folder.
const SOCKET: &str = "/state/admin.sock";
/// The longest path of a socket, without the NUL at its end (unix(7)).
const LONGEST_SOCKET: usize = 107;
/// Longer than all tries of the caretaker.
const PATIENCE: Duration = Duration::from_secs(10);
