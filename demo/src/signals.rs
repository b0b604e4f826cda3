//! The signals that end the demo in good order.

use std::future::pending;

use procfs::process::Process;
use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::DemoError;

/// Ctrl-C, the polite end, and the closing of the terminal.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None if it is to be ignored.
    hang_up: Option<Signal>,
}

impl Signals {
    /// From now on these signals do not end the process. SIGHUP stays ignored if it was: that is how
    /// `nohup` asks us to outlive the terminal.
    pub(crate) fn listen() -> Result<Self, DemoError> {
        let listen = |kind| signal(kind).map_err(DemoError::Signals);
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: hears(Number::HUP).then(|| listen(SignalKind::hangup())).transpose()?,
        })
    }

    /// Waits for one.
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

/// Whether whoever started us lets us have this signal.
fn hears(signal: Number) -> bool {
    let status = Process::myself().and_then(|this| this.status());
    !status.is_ok_and(|status| status.sigign & (1 << (signal.as_raw() - 1)) != 0)
}
