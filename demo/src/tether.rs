//! What ties a child to the demo: it dies when the demo does, however that dies.
//!
//! A child is started as a hidden subcommand of `ironmesh`, which asks the kernel for SIGKILL at the
//! death of its parent and then becomes the program that is wanted. That needs no code between fork
//! and exec in the demo itself, which would be unsafe.
//!
//! The kernel forgets the wish when an ordinary user so becomes a program that has capabilities of its
//! own. For that there is the [`caretaker`](crate::caretaker).

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// The program could not be become.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TetherError {
    /// The kernel does not tie us to our parent.
    #[error("cannot ask to die with the parent")]
    Signal(#[source] io::Error),
    /// The parent died before we were tied to it.
    #[error("the parent is gone already: {parent}")]
    Orphan {
        /// Its id.
        parent: i32,
    },
    /// The program does not start.
    #[error("cannot run `{}`", program.display())]
    Program {
        /// The program.
        program: OsString,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Becomes `program`, tied to the life of the process `parent`. Returns only if that fails.
///
/// The signal comes at the death of the *thread* that started us, so a demo starts its children on
/// its main thread alone.
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
