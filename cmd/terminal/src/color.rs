//! Whether output may have colors, and whether a terminal can be redrawn: `--color`, NO_COLOR (<https://no-color.org>) and
//! TERM.

use std::env::var_os;
use std::ffi::OsStr;
use std::fmt;
use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::OnceLock;

/// The user's choice about colors, the value of `--color`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ColorChoice {
    /// On a terminal, unless the environment turns colors off.
    #[default]
    Auto,
    /// Everywhere, also in files and pipes.
    Always,
    /// Nowhere.
    Never,
}

impl ColorChoice {
    const ALL: [(&str, Self); 3] =
        [("auto", Self::Auto), ("always", Self::Always), ("never", Self::Never)];
}

impl fmt::Display for ColorChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, _) =
            Self::ALL.into_iter().find(|(_, choice)| choice == self).unwrap_or(Self::ALL[0]);
        f.write_str(word)
    }
}

impl FromStr for ColorChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let found = Self::ALL.into_iter().find(|(word, _)| *word == text);
        found.map(|(_, choice)| choice).ok_or("expected `auto`, `always` or `never`")
    }
}

/// The choice of this process, which its command line makes once.
static CHOICE: OnceLock<ColorChoice> = OnceLock::new();

/// Makes the choice of this process. A later one has no effect.
pub fn choose(choice: ColorChoice) {
    let _ = CHOICE.set(choice);
}

/// The choice of this process.
pub fn choice() -> ColorChoice {
    CHOICE.get().copied().unwrap_or_default()
}

/// Whether output to `stream` has colors: it is a terminal, and the environment does not turn colors off.
pub fn is_enabled(stream: &impl IsTerminal) -> bool {
    match choice() {
        ColorChoice::Auto => stream.is_terminal() && is_allowed_by_environment(),
        ColorChoice::Always => true,
        ColorChoice::Never => false,
    }
}

/// Whether a terminal gets colors.
pub fn is_allowed() -> bool {
    match choice() {
        ColorChoice::Auto => is_allowed_by_environment(),
        ColorChoice::Always => true,
        ColorChoice::Never => false,
    }
}

/// Whether `NO_COLOR` is unset or empty, and `TERM` is not `dumb`.
fn is_allowed_by_environment() -> bool {
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
