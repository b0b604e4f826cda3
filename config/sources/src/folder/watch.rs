//! The watch of the policy folder: it signals when to read the folder again. It is level-triggered: it never
//! reports what changed, and several changes may be one signal.
//!
//! A swap is atomic, so it is signalled at once: another folder or link has replaced the old one, and is
//! complete. Edits in place are signalled when they have settled, since a reader would see half of them
//! otherwise. The same holds for files that a program has written to and not closed.

mod alarm;
mod armed;
mod decision;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until};

use alarm::Alarm;
use armed::Armed;
use decision::{Decision, decide};

/// A watch on a policy folder. It ends when it is dropped.
#[derive(Debug)]
pub struct FolderWatch {
    signal: watch::Receiver<u64>,
}

/// The reason why a policy folder could not be watched.
#[derive(Debug, thiserror::Error)]
#[error(
    "changes of the policy folder cannot be watched: is `fs.inotify.max_user_instances` used up?"
)]
pub struct WatchError {
    /// The error of the system.
    #[from]
    source: notify::Error,
}

/// Watches the policy folder at `path`, which need not exist yet. All changes after this call are signalled.
/// Must be called on a tokio runtime.
pub fn watch_folder(path: PathBuf) -> Result<FolderWatch, WatchError> {
    let alarm = Arc::new(Alarm::default());
    let armed = Armed::new(&path, &alarm)?;
    let (sender, signal) = watch::channel(0);
    tokio::spawn(run(path, armed, alarm, sender));
    Ok(FolderWatch { signal })
}

impl FolderWatch {
    /// Waits until the folder is to be read again. Cancel-safe.
    pub async fn changed(&mut self) {
        if self.signal.changed().await.is_err() {
            // The task has panicked. Periodic reads are better than none.
            sleep(READ_AGAIN).await;
        }
    }
}

/// The quiet time after which edits in place count as settled.
const SETTLE: Duration = Duration::from_millis(200);
/// The most time that continuous edits delay a signal.
const SETTLE_AT_MOST: Duration = Duration::from_secs(2);
/// The most time that an open file delays a signal. A slow copy exposes half a policy after it.
const WRITE_AT_MOST: Duration = Duration::from_secs(30);
/// The most time between two reads: network file systems report no events.
const READ_AGAIN: Duration = Duration::from_secs(30);

/// The time when edits will have settled.
struct Settling {
    began: Instant,
    until: Instant,
}

impl Settling {
    /// Records an event at the current time.
    fn after_event(before: Option<Self>) -> Self {
        let now = Instant::now();
        let began = before.map_or(now, |settling| settling.began);
        Self { began, until: (now + SETTLE).min(began + SETTLE_AT_MOST) }
    }

    /// The deadline for a writer that has not closed its file although the edits have settled. None if it is
    /// over.
    fn for_writer(self) -> Option<Self> {
        let now = Instant::now();
        (now < self.began + WRITE_AT_MOST).then_some(Self { until: now + SETTLE, ..self })
    }
}

async fn run(path: PathBuf, mut armed: Armed, alarm: Arc<Alarm>, signal: watch::Sender<u64>) {
    let mut read_again = interval_at(Instant::now() + READ_AGAIN, READ_AGAIN);
    read_again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut settling: Option<Settling> = None;
    loop {
        let settled = async {
            match &settling {
                Some(settling) => sleep_until(settling.until).await,
                None => std::future::pending().await,
            }
        };
        let mut report = false;
        tokio::select! {
            () = signal.closed() => return,
            () = settled => {
                if alarm.has_open_writer() {
                    settling = settling.take().and_then(Settling::for_writer);
                    if settling.is_some() {
                        continue;
                    }
                    alarm.forget_writers();
                }
                settling = None;
                signal.send_modify(|count| *count += 1);
                continue;
            }
            () = alarm.raised() => {}
            // The signal follows when the edits settle.
            _ = read_again.tick() => report = settling.is_none(),
        }
        let renamed = alarm.take_renamed();
        let before = armed.identity();
        // Reading a folder on a network file system may block.
        let (path, alarm) = (path.clone(), Arc::clone(&alarm));
        match tokio::task::spawn_blocking(move || armed.renew(&path, &alarm)).await {
            Ok(renewed) => armed = renewed,
            // The runtime is shutting down.
            Err(_) => return,
        }
        // The watches are renewed before the signal, so that a change during the read is not missed.
        if !report {
            match decide(renamed, before.as_ref(), armed.identity().as_ref()) {
                Decision::Now => report = true,
                Decision::Settle => settling = Some(Settling::after_event(settling.take())),
            }
        }
        if report {
            settling = None;
            signal.send_modify(|count| *count += 1);
        }
    }
}
