//! The log of commands that run for long, such as `serve`, on stderr.
//!
//! A full disk or a closed pipe never stops the process. The log counts lost lines, and reports the count as
//! soon as stderr is writable again.
//!
//! With `--output json` each line is a JSON object in the format of tracing-subscriber: `timestamp`, `level`,
//! `fields` (with `message`) and `target`.

mod fields;

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ironmesh_catalog::text::escape_output;
use jiff::Timestamp;
use serde_json::{Value, json};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::color;

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogOutput {
    /// Lines for people.
    Text,
    /// A JSON object in each line.
    Json,
}

/// Installs the subscriber, with the filter of `RUST_LOG`.
pub fn init(format: LogOutput) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lost = Arc::<AtomicU64>::default();
    // Its internal errors would only say, on stderr, that stderr cannot be written.
    let log = tracing_subscriber::fmt().with_env_filter(filter).log_internal_errors(false);
    // At the level of debug: how long each reconcile pass, stream and request took.
    let log = log.with_span_events(FmtSpan::CLOSE);
    let writer = move || Lossy { output: io::stderr(), format, lost: Arc::clone(&lost) };
    match format {
        LogOutput::Text => {
            let log = log.with_ansi(color::is_enabled(&io::stderr()));
            log.fmt_fields(fields::escaped_fields()).with_writer(writer).init();
        }
        LogOutput::Json => log.json().with_writer(writer).init(),
    }
}

/// Logs why a command failed as a JSON line, regardless of `RUST_LOG`.
pub fn write_failure(event: &str, reason: &str) {
    let fields = json!({ "message": event, "reason": reason });
    // If stderr cannot be written, the exit code alone reports the failure.
    let _ = io::stderr().write_all(escape_output(&json_line("ERROR", &fields)).as_bytes());
}

/// A JSON log line that does not come from the subscriber.
fn json_line(level: &str, fields: &Value) -> String {
    let timestamp = format!("{:.6}", Timestamp::now());
    let target = "ironmesh";
    let line =
        json!({ "timestamp": timestamp, "level": level, "fields": fields, "target": target });
    format!("{line}\n")
}

/// A writer that counts the lines that `output` cannot take, and never fails.
struct Lossy<W> {
    output: W,
    format: LogOutput,
    lost: Arc<AtomicU64>,
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
                json_line("WARN", &json!({ "message": message, "lost": lost }))
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
