//! A terminal on which a picture is redrawn in place.
//!
//! It uses no alternate screen, no hidden cursor and no raw mode. Whatever ends the demo, even SIGKILL, the terminal
//! stays usable and shows the last picture.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::stdout;

use rustix::termios::tcgetwinsize;

use super::events::Event;
use super::facts::{DemoSetup, Facts};
use super::lines;
use super::table::{Size, table};
use crate::printer::{Printer, StdoutClosed};

/// The state of the terminal.
#[derive(Debug)]
pub(super) struct Screen {
    is_colored: bool,
    events: VecDeque<Event>,
    /// The size for which the picture above the cursor was rendered, and its number of lines.
    rendered: Option<(Size, usize)>,
    /// Whether the introduction was printed, which happens only on a terminal too small for pictures.
    is_begun: bool,
}

impl Screen {
    pub(super) fn new(is_colored: bool) -> Self {
        Self { is_colored, events: VecDeque::new(), rendered: None, is_begun: false }
    }

    /// Draws the picture over the previous one. On a terminal too small for it, prints events as lines.
    pub(super) async fn show(
        &mut self,
        setup: &DemoSetup,
        facts: &Facts,
        events: &[Event],
        summary: Option<String>,
        printer: &Printer,
    ) -> Result<(), StdoutClosed> {
        self.events.extend(events.iter().cloned());
        while self.events.len() > MOST_EVENTS {
            self.events.pop_front();
        }
        // The terminal can be resized at any time.
        let size = size();
        let Some(picture) = table(setup, facts, &self.events, size) else {
            self.rendered = None;
            let begin = if self.is_begun { String::new() } else { lines::begin(setup) };
            self.is_begun = true;
            let text: String =
                [begin].into_iter().chain(events.iter().map(lines::event)).chain(summary).collect();
            return if text.is_empty() { Ok(()) } else { printer.print(text).await };
        };
        let mut text = match self.rendered {
            Some((before, lines)) if before == size => format!("\x1b[{lines}A\r"),
            // A resized terminal may have wrapped lines, so the position of the old picture is unknown.
            Some(_) => "\x1b[2J\x1b[H".to_owned(),
            None => String::new(),
        };
        for line in &picture {
            let line = line.rendered(size.columns, self.is_colored);
            // Writing to a string does not fail.
            let _ = writeln!(text, "{line}\x1b[K");
        }
        text.push_str("\x1b[J");
        if printer.picture(text)? {
            self.rendered = Some((size, picture.len()));
        }
        Ok(())
    }
}

/// The size of the terminal; zero if it is unknown.
fn size() -> Size {
    let found = tcgetwinsize(stdout());
    let number = |count: u16| usize::from(count);
    found.map_or(Size { columns: 0, lines: 0 }, |found| Size {
        columns: number(found.ws_col),
        lines: number(found.ws_row),
    })
}

const MOST_EVENTS: usize = 200;
