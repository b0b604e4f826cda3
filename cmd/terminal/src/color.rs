//! Whether output may have colors, and whether a terminal can be redrawn: NO_COLOR (<https://no-color.org>) and TERM.

use std::env::var_os;
use std::ffi::OsStr;
use std::io::IsTerminal;

/// Whether output to `stream` has colors: it is a terminal, and the environment does not turn colors off.
pub fn is_enabled(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && is_allowed()
}

/// Whether the environment allows colors: `NO_COLOR` is unset or empty, and `TERM` is not `dumb`.
pub fn is_allowed() -> bool {
    allows_color(var_os("NO_COLOR").as_deref(), var_os("TERM").as_deref())
}

/// Whether `stream` is a terminal with cursor control, so that a new picture can replace the previous one.
pub fn can_redraw(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && !is_dumb(var_os("TERM").as_deref())
}

fn allows_color(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && !is_dumb(term)
}

fn is_dumb(term: Option<&OsStr>) -> bool {
    term.is_some_and(|term| term == "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_and_dumb_terminal_disable_colors() {
        let allows = |no_color: Option<&str>, term: Option<&str>| {
            allows_color(no_color.map(OsStr::new), term.map(OsStr::new))
        };
        assert!(
            allows(None, None) && allows(None, Some("xterm")) && allows(Some(""), Some("xterm"))
        );
        assert!(!allows(Some("1"), Some("xterm")) && !allows(Some("0"), None));
        assert!(!allows(None, Some("dumb")) && !allows(Some(""), Some("dumb")));
    }
}
