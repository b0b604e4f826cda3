//! Results go to stdout. Who reads them may have seen enough, as `head` has: then the rest is not written, and
//! the command ends as it would have, with the same exit code. `println!` would panic.

use std::fmt::Arguments;
use std::io::{self, Write as _};

/// Results cannot be written, for another reason than that nobody reads them.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to stdout")]
pub(crate) struct Unwritten(#[source] io::Error);

/// Writes a part of a result.
pub(crate) fn write(words: Arguments<'_>) -> Result<(), Unwritten> {
    offer(words).map(|_| ())
}

/// The same, and tells whether anybody reads it.
pub(crate) fn offer(words: Arguments<'_>) -> Result<bool, Unwritten> {
    let mut stdout = io::stdout().lock();
    // At once: what is left over when the program ends is written without a word about how that went.
    match stdout.write_fmt(words).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).map_err(Unwritten),
    }
}

/// Writes a line of a result, in words as `println!` takes them.
macro_rules! outln {
    ($($words:tt)*) => { $crate::stdout::write(format_args!("{}\n", format_args!($($words)*))) };
}

/// Writes a result that has its ends of lines.
macro_rules! out {
    ($($words:tt)*) => { $crate::stdout::write(format_args!($($words)*)) };
}

pub(crate) use {out, outln};
