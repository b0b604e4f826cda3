//! What the caller passes in: the plan of what to run, and the leave request.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_sidecar::ProgramVersion;

use crate::local_http::LocalAddress;

/// An error of the caller's functions.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Produces the plan anew for each start and reload, so that changed settings take effect.
pub type PlanSource = Box<dyn Fn() -> Result<EnvoyPlan, BoxError> + Send + Sync>;

/// Asks the control plane to direct callers elsewhere. The supervisor repeats it while it drains.
pub type LeaveCall = Box<
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<LeaveOutcome, BoxError>> + Send>> + Send + Sync,
>;

/// The files of a plan that differ from those in use. They are removed with the plan if it fails the check.
pub trait PlanFiles: fmt::Debug + Send + Sync {
    /// Moves them into place. It is called after the check, before each start, and does nothing the second time.
    fn install(&self) -> Result<(), BoxError>;

    /// Puts the files back that were in use before, because Envoy does not start with the new ones.
    fn revert(&self) -> Result<(), BoxError>;
}

/// What to run as the Envoy of a folder.
#[derive(Debug, Clone)]
pub struct EnvoyPlan {
    /// The program: a path, or a name in `PATH`.
    pub program: PathBuf,
    /// The bootstrap, which `arguments` and `validation` name.
    pub bootstrap: PathBuf,
    /// The arguments of the program. The supervisor adds base id and restart epoch.
    pub arguments: Vec<OsString>,
    /// The arguments that make the program validate the bootstrap and exit.
    pub validation: Vec<OsString>,
    /// The files that differ from those in use.
    pub files: Arc<dyn PlanFiles>,
    /// Variables to add to the environment of the program.
    pub environment: Vec<(OsString, OsString)>,
    /// The address of Envoy's admin interface.
    pub admin: LocalAddress,
    /// The oldest Envoy that has what the bootstrap needs.
    pub minimum_version: ProgramVersion,
    /// How long an epoch lives after a hot restart, as `arguments` set it. Its established TCP connections end then.
    pub parent_shutdown_time: Duration,
    /// The shortest drain before a stop.
    pub drain_minimum: Duration,
    /// The longest drain before a stop. Established TCP connections end then.
    pub drain_maximum: Duration,
}

/// The answer to a leave request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaveOutcome {
    /// Whether all callers have ACKed that the endpoints are draining.
    pub is_acked: bool,
    /// The names of the callers that have not ACKed it.
    pub laggards: Vec<String>,
}

impl EnvoyPlan {
    /// The path with which the sockets between two epochs begin. Envoy appends `_parent_` or `_child_` and a number.
    pub(crate) fn handover_socket(&self) -> PathBuf {
        self.bootstrap.with_file_name("epoch")
    }

    /// All arguments of the Envoy of one restart epoch.
    pub(crate) fn arguments_of_epoch(&self, base_id: u32, epoch: u32) -> Vec<OsString> {
        let mut arguments = self.arguments.clone();
        for (flag, value) in [("--base-id", base_id), ("--restart-epoch", epoch)] {
            arguments.extend([flag.into(), value.to_string().into()]);
        }
        // By default the epochs talk by abstract sockets, which every local user may use to end or drain an Envoy.
        arguments.extend(["--socket-path".into(), self.handover_socket().into_os_string()]);
        arguments.extend(["--socket-mode".into(), "600".into()]);
        arguments
    }
}
