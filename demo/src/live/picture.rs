//! A line of a picture: colored text, truncated to the width of the terminal.

use std::fmt::Write as _;

/// A color, by its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Color {
    Plain,
    Strong,
    Faint,
    Good,
    Denied,
    Bad,
}

impl Color {
    /// The escape sequence.
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
pub(super) struct Line(Vec<(Color, String)>);

impl Line {
    /// A line without any color.
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::of(Color::Plain, text)
    }

    pub(super) fn of(color: Color, text: impl Into<String>) -> Self {
        Self::default().and(color, text)
    }

    #[must_use]
    pub(super) fn and(mut self, color: Color, text: impl Into<String>) -> Self {
        // Control characters would break the picture.
        let text: String = text.into().chars().filter(|c| !c.is_control()).collect();
        self.0.push((color, text));
        self
    }

    /// The line in at most `columns` columns. All characters used here are one column wide.
    pub(super) fn rendered(&self, columns: usize, is_colored: bool) -> String {
        let mut rendered = String::new();
        let mut left = columns;
        for (color, text) in &self.0 {
            let text: String = text.chars().take(left).collect();
            left -= text.chars().count();
            let code = if is_colored { color.code() } else { "" };
            let end = if code.is_empty() { "" } else { "\x1b[0m" };
            // Writing to a string does not fail.
            let _ = write!(rendered, "{code}{text}{end}");
        }
        rendered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_line_resets_its_color() {
        let line = Line::plain("now ").and(Color::Good, "200→").and(Color::Plain, "\u{1b}[2J");
        assert_eq!(line.rendered(80, false), "now 200→[2J");
        assert_eq!(line.rendered(6, false), "now 20");
        assert_eq!(line.rendered(6, true), "now \x1b[32m20\x1b[0m");
    }
}
