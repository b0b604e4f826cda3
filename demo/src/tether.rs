//! The tether between the demo and a child process: the child dies with the demo, whatever ends the demo.
//!
//! A child starts as a hidden subcommand of `ironmesh`. The subcommand requests SIGKILL at the death of its parent from
//! the kernel, and then becomes the wanted program. The demo itself so needs no code between fork and exec, which would
//! be unsafe.
//!
//! The kernel drops the request when an ordinary user executes a program with capabilities. The
//! [`caretaker`](crate::caretaker) covers that case.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// The tethered program could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TetherError {
    /// The kernel rejects the request for a death signal.
    #[error("cannot request a signal at the death of the parent process")]
    Signal(#[source] io::Error),
    /// The parent died before the request.
    #[error("the parent is gone already: {parent}")]
    Orphan {
        /// Its process id.
        parent: i32,
    },
    /// The program does not start.
    #[error("cannot run `{}`", program.display())]
    Program {
        /// The program.
        program: OsString,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

/// Becomes `program`, which dies with the process `parent`. Returns only on failure.
///
/// The signal comes at the death of the *thread* that started this process, so the demo starts children only on its
/// main thread.
pub fn become_program(parent: i32, program: OsString, arguments: &[OsString]) -> TetherError {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return TetherError::Signal(error.into());
    }
    // If the parent died before the line above, no signal will ever come.
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
        return TetherError::Orphan { parent };
    }
    let source = Command::new(&program).args(arguments).exec();
    TetherError::Program { program, source }
}
