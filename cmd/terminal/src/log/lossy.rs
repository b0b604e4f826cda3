//! The writer of the log, which no full disk and no closed pipe stops.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ironmesh_catalog::text::escape_output;
use serde_json::json;

use super::LogOutput;
use super::line::json_line;

/// A writer that counts the lines that `output` cannot take, and never fails.
pub(super) struct Lossy<W> {
    pub(super) output: W,
    pub(super) format: LogOutput,
    /// How many lines were lost since the last report.
    pub(super) lost: Arc<AtomicU64>,
}

impl<W> Lossy<W> {
    /// The line that reports `lost` lines; empty if there are none.
    fn loss_report(&self, lost: u64) -> String {
        match self.format {
            _ if lost == 0 => String::new(),
            LogOutput::Text => {
                format!("{lost} log lines were lost: stderr could not be written\n")
            }
            LogOutput::Json => {
                let message = "log lines were lost: stderr could not be written";
                json_line("WARN", "ironmesh", &json!({ "message": message, "lost": lost }))
            }
        }
    }

    /// The line as written. JSON escapes only ASCII control characters, so text of other parties in JSON fields is
    /// escaped here. The text format escapes its fields itself.
    fn escaped<'line>(&self, line: &'line [u8]) -> Cow<'line, [u8]> {
        match (self.format, std::str::from_utf8(line)) {
            (LogOutput::Json, Ok(line)) => match escape_output(line) {
                Cow::Borrowed(line) => Cow::Borrowed(line.as_bytes()),
                Cow::Owned(line) => Cow::Owned(line.into_bytes()),
            },
            _ => Cow::Borrowed(line),
        }
    }
}

impl<W: Write> Write for Lossy<W> {
    /// Writes one line: the subscriber passes whole lines.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let words = self.loss_report(lost);
        let written = self.output.write_all(words.as_bytes());
        if written.and_then(|()| self.output.write_all(&self.escaped(line))).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// A writer that fails while `is_full` is set.
    #[derive(Default)]
    struct Disk {
        is_full: bool,
        text: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            if self.is_full && !text.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.text.extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn unwritable_log_lines_are_counted_and_the_count_is_logged() {
        let (mut output, lost) = (Disk::default(), Arc::default());
        for (is_full, line) in
            [(false, "1\n"), (true, "2\n"), (true, "3\n"), (false, "4\n"), (false, "5\n")]
        {
            output.is_full = is_full;
            let lost = Arc::clone(&lost);
            let mut lossy = Lossy { output: &mut output, format: LogOutput::Text, lost };
            lossy.write_all(line.as_bytes()).unwrap();
        }
        let expected = "1\n2 log lines were lost: stderr could not be written\n4\n5\n";
        assert_eq!(String::from_utf8(output.text).unwrap(), expected);
    }

    #[test]
    fn json_log_reports_lost_lines_and_escapes_control_characters() {
        let (mut output, lost) = (Disk::default(), Arc::default());
        let hostile = "{\"fields\":{\"message\":\"a\\u001b\u{9b}\u{202e}b\"}}\n";
        for (is_full, line) in [(true, "{}\n"), (false, hostile)] {
            output.is_full = is_full;
            let lost = Arc::clone(&lost);
            let mut lossy = Lossy { output: &mut output, format: LogOutput::Json, lost };
            lossy.write_all(line.as_bytes()).unwrap();
        }
        let text = String::from_utf8(output.text).unwrap();
        assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{text:?}");
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["level"], &lines[0]["fields"]["lost"]), (&"WARN".into(), &1.into()));
        assert_eq!(lines[1]["fields"]["message"], "a\u{1b}\u{9b}\u{202e}b");
    }
}
