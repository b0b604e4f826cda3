//! The signals that `serve` handles: three stop the control plane, the others are logged and ignored.

use std::io;

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The installed signal handlers.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
    user_1: Signal,
    user_2: Signal,
    /// Sent if a file would exceed `RLIMIT_FSIZE`. The failed write reports the error itself.
    _file_size: Signal,
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

    /// Waits for the next signal that stops the control plane, and returns its name. Logs the other signals.
    pub(super) async fn stop(&mut self) -> &'static str {
        loop {
            let ignored = tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.quit.recv() => return "SIGQUIT",
                _ = self.hangup.recv() => {
                    tracing::info!(
                        signal = "SIGHUP",
                        "signal ignored: policy and token files are reloaded as soon as they change; \
                         the settings are read at start only"
                    );
                    continue;
                }
                _ = self.user_1.recv() => "SIGUSR1",
                _ = self.user_2.recv() => "SIGUSR2",
            };
            tracing::info!(signal = ignored, "signal ignored: it has no meaning here");
        }
    }
}
