//! Text from other parties, made safe for a terminal and a log.
//!
//! File names, node metadata, NACK messages and what providers report may hold control characters: ESC
//! commands a terminal, a line break forges a line of a log, and marks of direction show a text in another
//! order than it has. Each such character becomes `\u` and four hexadecimal digits, which JSON reads as the
//! character itself, so the same rule serves JSON. This module decides which characters; callers decide
//! where text enters a line ([`escape_line`]) or leaves the program ([`escape_output`]).

use std::borrow::Cow;
use std::fmt::Write as _;

/// An error with all its causes, on one line. A cause that ends the text already is not repeated: some libraries
/// include the cause in the text of its error.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = cause.source();
    }
    text
}

/// The text as one line: control characters, line breaks and invisible marks are escaped.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    escape(text, |c| c.is_ascii_control() || is_hidden(c))
}

/// The text with line breaks unchanged: for whole outputs, whose lines are the program's own.
pub fn escape_output(text: &str) -> Cow<'_, str> {
    escape(text, is_hidden)
}

/// Like [`escape_output`], with ESC unchanged, for outputs with styles of the program. Text from other parties
/// in it must be escaped before.
pub fn escape_styled_output(text: &str) -> Cow<'_, str> {
    escape(text, |c| c != '\u{1b}' && is_hidden(c))
}

/// Whether a terminal or an editor interprets the character instead of showing it, except line feed and tab.
fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // Soft hyphen; the Arabic letter mark; the Mongolian vowel separator; zero width and marks of
        // direction; separators of lines and paragraphs; embeddings; word joiner to isolates and beyond;
        // the byte order mark; annotations.
        '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' => true,
        c => c.is_control(),
    }
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            // All of them have four digits; writing to a string does not fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Failure(&'static str, #[source] Option<Box<Self>>);

    #[test]
    fn chain_names_each_cause_once() {
        let cause = Failure("disk is full", None);
        let error = Failure("cannot write: disk is full", Some(Box::new(cause)));
        let error = Failure("cannot store the policy", Some(Box::new(error)));
        assert_eq!(chain(&error), "cannot store the policy: cannot write: disk is full");
    }

    /// Every character that a terminal or an editor obeys, but for line feed and tab.
    fn hidden() -> impl Iterator<Item = char> {
        let controls = ('\0'..' ').filter(|c| !"\n\t".contains(*c)).chain('\u{7f}'..='\u{9f}');
        let marks = ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}');
        let invisible =
            "\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{2060}\u{feff}\u{61c}";
        controls.chain(marks).chain(invisible.chars())
    }

    #[test]
    fn hidden_character_is_escaped_in_lines_and_outputs() {
        for c in hidden() {
            let text = format!("a{c}b");
            let expected = format!("a\\u{:04x}b", u32::from(c));
            assert_eq!(escape_line(&text), expected);
            assert_eq!(escape_output(&text), expected);
            let styled = if c == '\u{1b}' { &text } else { &expected };
            assert_eq!(escape_styled_output(&text), *styled);
        }
    }

    #[test]
    fn line_break_is_escaped_only_in_lines() {
        assert_eq!(escape_line("a\n\tb\r\n"), "a\\u000a\\u0009b\\u000d\\u000a");
        assert_eq!(escape_output("a\n\tb\r\n"), "a\n\tb\\u000d\n");
    }

    #[test]
    fn visible_text_is_returned_without_a_copy() {
        for text in ["", "a/b.toml", "Bücher", "日本語", "עברית", "👍", "\\u001b"] {
            assert!(matches!(escape_line(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }
}
