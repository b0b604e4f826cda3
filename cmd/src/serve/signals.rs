//! The signals that `serve` handles: three stop the control plane, one reloads the settings, the others are logged and
//! ignored.

use std::io;

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal as Handler, SignalKind, signal};

/// What a signal requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// Stop the control plane; with the name of the signal.
    Stop(&'static str),
    /// Reload the settings.
    Reload,
}

/// The installed signal handlers.
pub(super) struct Signals {
    terminate: Handler,
    interrupt: Handler,
    quit: Handler,
    hangup: Handler,
    user_1: Handler,
    user_2: Handler,
    /// Sent if a file would exceed `RLIMIT_FSIZE`. The failed write reports the error itself.
    _file_size: Handler,
}

/// Ends the process at the first signal that stops the control plane. Nothing is lost while it starts: it serves no proxy
/// yet, and what it stores is whole after any end.
pub(super) async fn exit_at_stop(mut signals: Signals) {
    signals.stop().await;
    tracing::info!("control plane stopped while it started");
    ironmesh_terminal::log::finish();
    #[expect(clippy::exit, reason = "the start may hold threads that cannot be cancelled")]
    std::process::exit(0)
}

impl Signals {
    pub(super) fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
            user_1: signal(SignalKind::user_defined1())?,
            user_2: signal(SignalKind::user_defined2())?,
            _file_size: signal(SignalKind::from_raw(Number::XFSZ.as_raw()))?,
        })
    }

    /// Waits for the next signal that means something, and logs the others.
    pub(super) async fn next(&mut self) -> Signal {
        loop {
            let ignored = tokio::select! {
                _ = self.terminate.recv() => return Signal::Stop("SIGTERM"),
                _ = self.interrupt.recv() => return Signal::Stop("SIGINT"),
                _ = self.quit.recv() => return Signal::Stop("SIGQUIT"),
                _ = self.hangup.recv() => return Signal::Reload,
                _ = self.user_1.recv() => "SIGUSR1",
                _ = self.user_2.recv() => "SIGUSR2",
            };
            tracing::info!(signal = ignored, "signal ignored: it has no meaning here");
        }
    }

    /// Waits for the next signal that stops the control plane, and ignores the others.
    pub(super) async fn stop(&mut self) {
        while self.next().await == Signal::Reload {}
    }
}
