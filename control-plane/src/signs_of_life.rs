//! When `serve` tells systemd's watchdog that it works.
//!
//! A process whose reconciler hangs serves an old configuration and looks healthy, so its signs of life depend on the
//! reconciler's heartbeat. Without them, systemd restarts the process.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The signs of life for the watchdog.
#[derive(Debug)]
pub struct SignsOfLife {
    interval: Option<Interval>,
    heartbeat: watch::Receiver<()>,
}

impl SignsOfLife {
    /// Signs of life in this interval, or none without a watchdog.
    pub fn new(watchdog: Option<Duration>, heartbeat: watch::Receiver<()>) -> Self {
        let interval = watchdog.map(|duration| {
            let mut interval = interval(duration);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        });
        Self { interval, heartbeat }
    }

    /// Waits until the next sign of life is due. It never is while the reconciler hangs.
    pub async fn due(&mut self) {
        let Some(interval) = &mut self.interval else { return std::future::pending().await };
        loop {
            interval.tick().await;
            match self.heartbeat.has_changed() {
                Ok(true) => return self.heartbeat.mark_unchanged(),
                Ok(false) => tracing::error!(
                    action = "systemd restarts the control plane unless it continues",
                    "the reconciler hangs: no configuration reaches a proxy"
                ),
                // The end of the reconciler ends the process.
                Err(_) => return std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn hung_reconciler_gives_no_sign_of_life() {
        let sender = watch::Sender::new(());
        let mut signs = SignsOfLife::new(Some(INTERVAL), sender.subscribe());
        let begin = Instant::now();
        for count in 0..3 {
            sender.send_replace(());
            signs.due().await;
            assert_eq!(begin.elapsed(), INTERVAL * count);
        }
        timeout(INTERVAL * 10, signs.due()).await.unwrap_err();
        sender.send_replace(());
        timeout(INTERVAL, signs.due()).await.unwrap();
    }
}
