//! Results go to stdout. Who reads them may have seen enough, as `head` has: then the rest is not written, and
//! the command ends as it would have, with the same exit code. `println!` would panic.

use std::fmt::Arguments;
use std::io::{self, Write as _};

use ironmesh_catalog::text::{escape_output, escape_styled_output};

/// Results cannot be written, for another reason than that nobody reads them.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to stdout")]
pub(crate) struct Unwritten(#[source] io::Error);

/// Writes a part of a result.
pub(crate) fn write(words: Arguments<'_>) -> Result<(), Unwritten> {
    offer(words).map(|_| ())
}

/// Writes a part of a result that has escape sequences of the program's own. What other parties wrote in it
/// must be escaped before.
pub(crate) fn write_styled(text: &str) -> Result<(), Unwritten> {
    offer_styled(text).map(|_| ())
}

/// The same as [`write()`], and tells whether anybody reads it.
///
/// Results quote what other parties wrote, so control characters are escaped here. JSON keeps its meaning.
pub(crate) fn offer(words: Arguments<'_>) -> Result<bool, Unwritten> {
    put(&escape_output(&words.to_string()))
}

/// The same as [`write_styled`], and tells whether anybody reads it.
pub(crate) fn offer_styled(text: &str) -> Result<bool, Unwritten> {
    put(&escape_styled_output(text))
}

fn put(text: &str) -> Result<bool, Unwritten> {
    let mut stdout = io::stdout().lock();
    // At once: what is left over when the program ends is written without a word about how that went.
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
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
