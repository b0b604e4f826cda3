//! The signals of the supervisor: two stop it, one reloads.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A received signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// SIGTERM or SIGINT.
    Stop(&'static str),
    /// SIGHUP.
    Reload,
}

/// The installed signal handlers.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    pub(crate) fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) -> Received {
        tokio::select! {
            _ = self.terminate.recv() => Received::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Received::Stop("SIGINT"),
            _ = self.hangup.recv() => Received::Reload,
        }
    }

    /// Waits for a signal that stops the supervisor.
    pub(crate) async fn stop(&mut self) -> &'static str {
        loop {
            if let Received::Stop(name) = self.next().await {
                return name;
            }
        }
    }
}
