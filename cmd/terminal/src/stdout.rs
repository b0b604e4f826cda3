//! Writing of results to stdout, which may close early.
//!
//! A reader such as `head` may close the pipe. The command then skips the rest of its output and keeps its exit
//! code. `println!` would panic.

use std::fmt::Arguments;
use std::io::{self, Write as _};

use ironmesh_catalog::text::{escape_output, escape_styled_output};

/// Stdout cannot be written, for a reason other than a closed pipe.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to stdout")]
pub struct StdoutError(#[source] io::Error);

/// Writes a part of a result. A closed stdout is no error.
///
/// # Errors
///
/// Fails if stdout cannot be written for a different reason.
pub fn write(words: Arguments<'_>) -> Result<(), StdoutError> {
    write_if_open(words).map(|_| ())
}

/// Writes a part of a result that contains escape sequences of this program. The caller must escape quoted text of
/// other parties first.
pub fn write_styled(text: &str) -> Result<(), StdoutError> {
    write_styled_if_open(text).map(|_| ())
}

/// Writes a part of a result, and returns whether stdout is still open.
///
/// Results quote text of other parties, so this function escapes control characters. JSON keeps its meaning.
pub fn write_if_open(words: Arguments<'_>) -> Result<bool, StdoutError> {
    put(&escape_output(&words.to_string()))
}

/// Writes as [`write_styled`] does, and returns whether stdout is still open.
pub fn write_styled_if_open(text: &str) -> Result<bool, StdoutError> {
    put(&escape_styled_output(text))
}

fn put(text: &str) -> Result<bool, StdoutError> {
    let mut stdout = io::stdout().lock();
    // Flushed now: the flush at the end of the process would hide its errors.
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).map_err(StdoutError),
    }
}

/// Writes a line of a result. Takes the arguments of `println!`.
#[macro_export]
macro_rules! outln {
    ($($words:tt)*) => { $crate::stdout::write(format_args!("{}\n", format_args!($($words)*))) };
}

/// Writes a result that contains its own line breaks. Takes the arguments of `print!`.
#[macro_export]
macro_rules! out {
    ($($words:tt)*) => { $crate::stdout::write(format_args!($($words)*)) };
}

pub use crate::{out, outln};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_json_has_the_same_value() {
        let text = "a\u{1b}\u{9b}\u{202e}\u{2069}\u{200b}\u{feff}\n\t\r\"\\ü";
        let json = serde_json::to_string_pretty(&[text]).unwrap();
        let escaped = escape_output(&json);
        assert!(!escaped.contains(['\u{9b}', '\u{202e}', '\u{2069}', '\u{200b}']), "{escaped}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&escaped).unwrap(), [text]);
    }
}
