//! The progress of a reload, which the supervisor reports to the log and to the command.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// A step of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ReloadProgress {
    /// The binary and the bootstrap are checked.
    Checking,
    /// Both can be used.
    Checked {
        /// The version of the binary.
        version: String,
    },
    /// The epoch before the serving one must end first.
    WaitingForPrevious {
        /// Its restart epoch.
        epoch: u32,
        /// When it ends at the latest.
        ends_at: Timestamp,
    },
    /// The new Envoy is started.
    Started {
        /// Its restart epoch.
        epoch: u32,
        /// Its process id.
        pid: u32,
    },
    /// The new Envoy serves.
    Done {
        /// Its restart epoch.
        epoch: u32,
        /// Its version.
        version: String,
        /// The epoch that it replaced. Absent if none was running.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        previous_epoch: Option<u32>,
        /// When the replaced epoch ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        previous_ends_at: Option<Timestamp>,
        /// How many established TCP connections the replaced epoch has, which end with it. Absent if unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tcp_connections: Option<u64>,
    },
    /// The reload failed; Envoy serves as before.
    Failed {
        /// The reason, and what to do.
        reason: String,
    },
}

impl fmt::Display for ReloadProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checking => write!(f, "checking the binary and the bootstrap"),
            Self::Checked { version } => write!(f, "Envoy {version} accepts the bootstrap"),
            Self::WaitingForPrevious { epoch, ends_at } => {
                write!(f, "waiting for the end of epoch {epoch}, at {ends_at:.0}")
            }
            Self::Started { epoch, pid } => {
                write!(f, "started epoch {epoch} as process {pid}; waiting until it is live")
            }
            Self::Done { epoch, version, previous_epoch: None, .. } => {
                write!(f, "Envoy {version} was not running, and serves now as epoch {epoch}")
            }
            Self::Done {
                epoch,
                version,
                previous_epoch: Some(previous),
                previous_ends_at,
                tcp_connections,
            } => {
                write!(f, "Envoy {version} serves as epoch {epoch}; epoch {previous} ends")?;
                if let Some(at) = previous_ends_at {
                    write!(f, " at {at:.0}")?;
                }
                match tcp_connections {
                    None => write!(f, ", with its established TCP connections"),
                    Some(0) => write!(f, ", and has no TCP connections"),
                    Some(1) => write!(f, ", and closes 1 TCP connection if it is still open"),
                    Some(count) => {
                        write!(
                            f,
                            ", and closes those of {count} TCP connections that are still open"
                        )
                    }
                }
            }
            Self::Failed { reason } => {
                write!(f, "reload failed, and Envoy serves as before: {reason}")
            }
        }
    }
}

/// The receivers of a reload's progress: the log, and the command if one requested it.
#[derive(Debug)]
pub(crate) struct Reporter(pub(crate) Option<mpsc::Sender<ReloadProgress>>);

impl Reporter {
    pub(crate) fn report(&self, step: ReloadProgress) {
        match &step {
            // The supervisor logs and records a failure.
            ReloadProgress::Failed { .. } => {}
            step => tracing::info!(step = %step, "reload"),
        }
        // The queue holds all steps of a reload. The command may have ended; the reload goes on.
        let _ = self.0.as_ref().map(|sender| sender.try_send(step));
    }
}

/// The most steps of one reload, and so the length of the queue to its command.
pub(crate) const MAX_STEPS: usize = 8;
