//! The signals that end the demo in good order.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::DemoError;

/// Ctrl-C, the polite end, and the closing of the terminal.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    /// From now on these signals do not end the process.
    pub(crate) fn listen() -> Result<Self, DemoError> {
        let listen = |kind| signal(kind).map_err(DemoError::Signals);
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for one.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
