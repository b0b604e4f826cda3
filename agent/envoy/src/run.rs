//! Short runs of a program: with a time limit, and with a bounded part of its output.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::timeout;

/// The most bytes of each output stream that are read. A program that writes more ends by SIGPIPE.
const MAX_OUTPUT: u64 = 64 << 10;

/// What a run gave.
#[derive(Debug)]
pub(crate) struct RunOutput {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Why a run gave nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("it cannot be started")]
    Start(#[source] io::Error),
    #[error("it has not ended within {} s", .0.as_secs())]
    Timeout(Duration),
}

/// Runs `program`, for `limit` at most.
pub(crate) async fn run<A: AsRef<std::ffi::OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = A>,
    limit: Duration,
) -> Result<RunOutput, RunError> {
    let mut command = Command::new(program);
    command.args(arguments).kill_on_drop(true).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(RunError::Start)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let ended = timeout(limit, async {
        let (stdout, stderr) = tokio::join!(read(stdout), read(stderr));
        Ok(RunOutput { status: child.wait().await?, stdout, stderr })
    });
    ended.await.map_err(|_| RunError::Timeout(limit))?.map_err(RunError::Start)
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What was read before an error is the output.
        let _ = stream.take(MAX_OUTPUT).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
