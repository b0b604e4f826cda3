//! A picture on a terminal that is redrawn in place: `--watch`.
//!
//! A picture is written over the previous one, without clearing the screen first, so that it never flickers. It is cut to
//! the size of the terminal: a longer one would scroll. The alternate screen keeps what the terminal showed before.

use std::io;

use ironmesh_catalog::text::{escape_line, escape_output};
use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

use crate::color;
use crate::stdout::{StdoutError, write_styled_if_open};

/// Enters the alternate screen and hides the cursor (xterm: private modes 1049 and 25).
const ENTER: &str = "\x1b[?1049h\x1b[?25l";

/// Shows the cursor and leaves the alternate screen.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The begin of a picture: synchronized output (mode 2026), no line wrap (mode 7), and the cursor home (ECMA-48: CUP).
const BEGIN: &str = "\x1b[?2026h\x1b[?7l\x1b[H";

/// The end of a picture: clears below the last line (ECMA-48: ED), and resets both modes.
const END: &str = "\x1b[J\x1b[?7h\x1b[?2026l";

/// Clears the rest of a line (ECMA-48: EL).
const END_OF_LINE: &str = "\x1b[K";

/// The styles of a warning and of an outdated picture (ECMA-48: SGR), and their end.
const WARNING: &str = "\x1b[1;31m";
const OUTDATED: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// What a picture shows.
#[derive(Debug, Clone, Copy)]
pub struct Picture<'a> {
    /// The first line.
    pub header: &'a str,
    /// Why the text is outdated; none while it is current.
    pub warning: Option<&'a str>,
    /// The result of the command.
    pub text: &'a str,
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The columns.
    pub columns: usize,
    /// The lines.
    pub lines: usize,
}

impl Size {
    /// The size of a terminal that does not report one.
    const DEFAULT: Self = Self { columns: 80, lines: 24 };

    /// The size of the terminal of stdout.
    fn of_stdout() -> Self {
        let size = tcgetwinsize(io::stdout()).ok();
        let size = size.map(|size| Self { columns: size.ws_col.into(), lines: size.ws_row.into() });
        size.filter(|size| size.columns > 0 && size.lines > 0).unwrap_or(Self::DEFAULT)
    }
}

/// The terminal of stdout while it shows a picture. Dropping this value restores the terminal.
#[derive(Debug)]
pub struct Screen {
    is_entered: bool,
    has_styles: bool,
}

impl Screen {
    /// The terminal of stdout; none if stdout cannot be redrawn.
    pub fn of_stdout() -> Option<Self> {
        let stdout = io::stdout();
        let has_styles = color::is_enabled(&stdout);
        color::can_redraw(&stdout).then_some(Self { is_entered: false, has_styles })
    }

    /// Shows a picture; not in the background, where a shell has the terminal. Returns whether stdout is open.
    ///
    /// # Errors
    ///
    /// Fails if stdout cannot be written.
    pub fn show(&mut self, picture: Picture<'_>) -> Result<bool, StdoutError> {
        // Without an answer, the terminal is not that of a shell of this session.
        if tcgetpgrp(io::stdout()).is_ok_and(|group| group != getpgrp()) {
            return Ok(true);
        }
        let enter = if self.is_entered { "" } else { ENTER };
        self.is_entered = true;
        let bytes = bytes(picture, Size::of_stdout(), self.has_styles);
        write_styled_if_open(&format!("{enter}{bytes}"))
    }

    /// Restores the terminal. The next picture enters the alternate screen again.
    pub fn leave(&mut self) {
        if std::mem::take(&mut self.is_entered) {
            // A terminal that is gone needs nothing.
            let _ = write_styled_if_open(LEAVE);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The bytes that replace any previous picture by this one.
fn bytes(picture: Picture<'_>, size: Size, has_styles: bool) -> String {
    let Picture { header, warning, text } = picture;
    let style = |codes: &'static str| if has_styles { codes } else { "" };
    let mut lines = vec![cut(&escape_line(header), size.columns)];
    if let Some(warning) = warning {
        let warning = cut(&escape_line(warning), size.columns);
        lines.push(format!("{}{warning}{}", style(WARNING), style(PLAIN)));
    } else {
        lines.push(String::new());
    }
    let outdated = if warning.is_some() { style(OUTDATED) } else { "" };
    let end = if outdated.is_empty() { "" } else { PLAIN };
    let text = escape_output(text);
    let text: Vec<_> = text.trim_end().lines().collect();
    let rows = size.lines.saturating_sub(lines.len());
    // The last line says how many are missing, itself included.
    let shown = if text.len() > rows { rows.saturating_sub(1) } else { text.len() };
    let cut_lines = text.iter().take(shown).map(|line| cut(line, size.columns));
    lines.extend(cut_lines.map(|line| format!("{outdated}{line}{end}")));
    if let Some(more) = text.len().checked_sub(shown).filter(|more| *more > 0) {
        let plural = if more == 1 { "" } else { "s" };
        lines.push(cut(&format!("… {more} more line{plural}"), size.columns));
    }
    lines.truncate(size.lines);
    // (No line break after the last line: in the last row it would scroll.)
    let lines: Vec<_> = lines.into_iter().map(|line| line + END_OF_LINE).collect();
    format!("{BEGIN}{}{END}", lines.join("\n"))
}

/// A line with at most this many characters. A tab counts as one.
fn cut(line: &str, columns: usize) -> String {
    let line = line.replace('\t', " ");
    if line.chars().count() <= columns {
        return line;
    }
    line.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture<'a>(warning: Option<&'a str>, text: &'a str) -> Picture<'a> {
        Picture { header: "12:00 watch", warning, text }
    }

    /// The rows that a terminal shows: without escape sequences.
    fn rows(bytes: &str) -> Vec<String> {
        let mut text = String::new();
        let mut parts = bytes.split('\x1b');
        text.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let end = part.find(|c: char| c.is_ascii_alphabetic()).unwrap();
            text.push_str(&part[end + 1..]);
        }
        text.split('\n').map(str::to_owned).collect()
    }

    #[test]
    fn picture_replaces_lines_without_clearing_the_screen() {
        let size = Size { columns: 20, lines: 6 };
        let bytes = bytes(picture(None, "a\nbb\n"), size, true);
        assert!(!bytes.contains("\x1b[2J") && !bytes.contains("\x1b[0m"), "{bytes:?}");
        assert!(bytes.starts_with("\x1b[?2026h\x1b[?7l\x1b[H12:00 watch\x1b[K\n"), "{bytes:?}");
        assert!(bytes.ends_with("bb\x1b[K\x1b[J\x1b[?7h\x1b[?2026l"), "{bytes:?}");
        assert_eq!(rows(&bytes), ["12:00 watch", "", "a", "bb"]);
    }

    #[test]
    fn picture_is_cut_to_the_size_of_the_terminal() {
        let size = Size { columns: 8, lines: 5 };
        let of = |text| rows(&bytes(picture(None, text), size, false));
        assert_eq!(of("1\n2\n3\n"), ["12:00 w…", "", "1", "2", "3"]);
        assert_eq!(of("1\n234567890\n3\n4\n"), ["12:00 w…", "", "1", "2345678…", "… 2 mor…"]);
        assert_eq!(of("ü\tö"), ["12:00 w…", "", "ü ö"]);
        for lines in 0..3 {
            let size = Size { columns: 1, lines };
            let rows = rows(&bytes(picture(Some("gone"), "1\n2"), size, false));
            assert!(
                rows.len() <= lines.max(1) && rows.iter().all(|row| row.len() <= 3),
                "{rows:?}"
            );
        }
    }

    #[test]
    fn outdated_picture_has_its_reason_and_no_color_of_its_own() {
        let size = Size { columns: 40, lines: 5 };
        let of = |has_styles| {
            bytes(picture(Some("no answer\n\x1b[32m"), "ready\x1b[32m"), size, has_styles)
        };
        let styled = of(true);
        assert!(
            styled.contains("\x1b[1;31mno answer\\u000a\\u001b[32m\x1b[0m\x1b[K"),
            "{styled:?}"
        );
        assert!(styled.contains("\x1b[2mready\\u001b[32m\x1b[0m\x1b[K"), "{styled:?}");
        assert!(!styled.contains("\x1b[32m"), "{styled:?}");
        let plain = of(false);
        assert!(
            ["\x1b[1;31m", "\x1b[2m", "\x1b[0m"].iter().all(|code| !plain.contains(code)),
            "{plain:?}"
        );
    }
}
