//! A line of a picture: pieces of text with colours, cut to the width of the terminal.

use std::fmt::Write as _;

/// A colour, by what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    Plain,
    Strong,
    Faint,
    Good,
    Denied,
    Bad,
}

impl Colour {
    /// How a terminal is told.
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "\x1b[1m",
            Self::Faint => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Denied => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }
}

/// One line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line(Vec<(Colour, String)>);

impl Line {
    /// A line without any colour.
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::of(Colour::Plain, text)
    }

    pub(super) fn of(colour: Colour, text: impl Into<String>) -> Self {
        Self::default().and(colour, text)
    }

    #[must_use]
    pub(super) fn and(mut self, colour: Colour, text: impl Into<String>) -> Self {
        // A control character would spoil the picture.
        let text: String = text.into().chars().filter(|c| !c.is_control()).collect();
        self.0.push((colour, text));
        self
    }

    /// The line in at most `columns` columns. All characters that are used here are one column wide.
    pub(super) fn drawn(&self, columns: usize, is_coloured: bool) -> String {
        let mut drawn = String::new();
        let mut room = columns;
        for (colour, text) in &self.0 {
            let text: String = text.chars().take(room).collect();
            room -= text.chars().count();
            let code = if is_coloured { colour.code() } else { "" };
            let end = if code.is_empty() { "" } else { "\x1b[0m" };
            // Writing to a string does not fail.
            let _ = write!(drawn, "{code}{text}{end}");
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_line_resets_its_color() {
        let line = Line::plain("now ").and(Colour::Good, "200→").and(Colour::Plain, "\u{1b}[2J");
        assert_eq!(line.drawn(80, false), "now 200→[2J");
        assert_eq!(line.drawn(6, false), "now 20");
        assert_eq!(line.drawn(6, true), "now \x1b[32m20\x1b[0m");
    }
}
