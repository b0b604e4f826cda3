//! The signals that end the demo cleanly.

use std::future::pending;

use procfs::process::Process;
use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::DemoError;

/// The handlers of SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal).
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if the parent process ignores SIGHUP.
    hang_up: Option<Signal>,
}

impl Signals {
    /// Installs the handlers, so that these signals no longer kill the process. SIGHUP stays ignored if it was: with
    /// `nohup` the demo outlives the terminal.
    pub(crate) fn listen() -> Result<Self, DemoError> {
        let listen = |kind| signal(kind).map_err(DemoError::Signals);
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: is_handled(Number::HUP).then(|| listen(SignalKind::hangup())).transpose()?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = or_never(self.hang_up.as_mut()) => {}
        }
    }
}

async fn or_never(signal: Option<&mut Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => pending().await,
    }
}

/// Whether this signal is not ignored by inheritance from the parent process.
fn is_handled(signal: Number) -> bool {
    let status = Process::myself().and_then(|this| this.status());
    !status.is_ok_and(|status| status.sigign & (1 << (signal.as_raw() - 1)) != 0)
}
