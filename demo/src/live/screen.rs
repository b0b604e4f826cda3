//! A terminal on which a picture is drawn in place.
//!
//! There is no other screen, no hidden cursor and no raw mode: whenever we end, and be it by
//! SIGKILL, the terminal is as it was, with the last picture on it.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::stdout;

use rustix::termios::tcgetwinsize;

use super::events::Event;
use super::facts::{Facts, Ground};
use super::lines;
use super::table::{Size, table};
use crate::printer::{Printer, StdoutClosed};

/// What is on the terminal.
#[derive(Debug)]
pub(super) struct Screen {
    is_coloured: bool,
    events: VecDeque<Event>,
    /// The size for which the picture above the cursor was drawn, and how many lines it has.
    drawn: Option<(Size, usize)>,
    /// Whether the first lines have been told, as a terminal too small for pictures is told them.
    is_begun: bool,
}

impl Screen {
    pub(super) fn new(is_coloured: bool) -> Self {
        Self { is_coloured, events: VecDeque::new(), drawn: None, is_begun: false }
    }

    /// Draws what is true now over what was before, or tells events in lines where a picture has no
    /// room.
    pub(super) async fn show(
        &mut self,
        ground: &Ground,
        facts: &Facts,
        events: &[Event],
        summary: Option<String>,
        printer: &Printer,
    ) -> Result<(), StdoutClosed> {
        self.events.extend(events.iter().cloned());
        while self.events.len() > MOST_EVENTS {
            self.events.pop_front();
        }
        // It can be resized at any time.
        let size = size();
        let Some(picture) = table(ground, facts, &self.events, size) else {
            self.drawn = None;
            let begin = if self.is_begun { String::new() } else { lines::begin(ground) };
            self.is_begun = true;
            let text: String =
                [begin].into_iter().chain(events.iter().map(lines::event)).chain(summary).collect();
            return if text.is_empty() { Ok(()) } else { printer.print(text).await };
        };
        let mut text = match self.drawn {
            Some((before, lines)) if before == size => format!("\x1b[{lines}A\r"),
            // A terminal of another width may have broken the lines: what is where is not known.
            Some(_) => "\x1b[2J\x1b[H".to_owned(),
            None => String::new(),
        };
        for line in &picture {
            let line = line.drawn(size.columns, self.is_coloured);
            // Writing to a string does not fail.
            let _ = writeln!(text, "{line}\x1b[K");
        }
        text.push_str("\x1b[J");
        if printer.picture(text)? {
            self.drawn = Some((size, picture.len()));
        }
        Ok(())
    }
}

/// The size of the terminal; nothing if it has none, or does not know.
fn size() -> Size {
    let found = tcgetwinsize(stdout());
    let number = |count: u16| usize::from(count);
    found.map_or(Size { columns: 0, lines: 0 }, |found| Size {
        columns: number(found.ws_col),
        lines: number(found.ws_row),
    })
}

const MOST_EVENTS: usize = 200;
