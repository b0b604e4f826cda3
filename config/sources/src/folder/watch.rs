//! Says when the policy folder is to be read again. Level-triggered: it never says what changed, and
//! several changes may be one signal.
//!
//! A swap is atomic, so it is told at once: another folder or link was put in the place of one, and
//! what is there now is complete. Edits in place are told when they have settled, since a reader in
//! their midst would see half of them; so are files that a program writes to and has not closed.

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

/// Why a policy folder could not be watched.
#[derive(Debug, thiserror::Error)]
#[error(
    "changes of the policy folder cannot be watched: is `fs.inotify.max_user_instances` used up?"
)]
pub struct WatchError {
    /// What the system said.
    #[from]
    source: notify::Error,
}

/// Watches the policy folder at `path`, which need not be there yet. All changes after this call are
/// told. Must be called on a tokio runtime.
pub fn watch_folder(path: PathBuf) -> Result<FolderWatch, WatchError> {
    let alarm = Arc::new(Alarm::default());
    let armed = Armed::new(&path, &alarm)?;
    let (sender, signal) = watch::channel(0);
    tokio::spawn(run(path, armed, alarm, sender));
    Ok(FolderWatch { signal })
}

impl FolderWatch {
    /// Waits until the folder is to be read again. May be cancelled without losing a signal.
    pub async fn changed(&mut self) {
        if self.signal.changed().await.is_err() {
            // The task is gone, by a panic. Slow is better than deaf.
            sleep(READ_AGAIN).await;
        }
    }
}

/// How long nothing must happen before edits in place are told.
const SETTLE: Duration = Duration::from_millis(200);
/// How long edits that never cease are waited for.
const SETTLE_AT_MOST: Duration = Duration::from_secs(2);
/// How long a file that is written to and not closed is waited for. A slow copy exposes half a policy until then.
const WRITE_AT_MOST: Duration = Duration::from_secs(30);
/// After which the folder is read again in any case: network file systems tell no events.
const READ_AGAIN: Duration = Duration::from_secs(30);

/// When edits will have settled.
struct Settling {
    began: Instant,
    until: Instant,
}

impl Settling {
    /// Something happened, now.
    fn after_event(before: Option<Self>) -> Self {
        let now = Instant::now();
        let began = before.map_or(now, |settling| settling.began);
        Self { began, until: (now + SETTLE).min(began + SETTLE_AT_MOST) }
    }

    /// The edits have settled, and a writer has not closed its file. None if it was waited for long enough.
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
            // What settles is told soon.
            _ = read_again.tick() => report = settling.is_none(),
        }
        let renamed = alarm.take_renamed();
        let before = armed.identity();
        // Looking at a folder on a network file system may take its time.
        let (path, alarm) = (path.clone(), Arc::clone(&alarm));
        match tokio::task::spawn_blocking(move || armed.renew(&path, &alarm)).await {
            Ok(renewed) => armed = renewed,
            // The runtime is shutting down.
            Err(_) => return,
        }
        // The watches are renewed before anything is told, so that nothing is missed that happens
        // while the folder is read.
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
