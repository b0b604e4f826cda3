//! The text format of log fields.
//!
//! Fields quote text of other parties: NACK messages, node ids, names in Consul. Such text must not control a
//! terminal or forge a line. The format escapes control characters, and indents all lines of a message after its
//! first.

use std::fmt;

use ironmesh_catalog::text::{escape_line, escape_output};
use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// Formats fields with control characters escaped.
pub(super) fn escaped_fields() -> impl for<'writer> FormatFields<'writer> + 'static {
    debug_fn(write_field).delimited(" ")
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    match field.name() {
        "message" => writer.write_str(&escape_output(&text).replace('\n', "\n  ")),
        name => write!(writer, "{name}={}", escape_line(&text)),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn hostile_log_text_forges_no_lines_or_terminal_codes() {
        let written = Written::default();
        let writer = written.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).without_time().with_target(false);
        let log = log.fmt_fields(escaped_fields()).with_writer(move || writer.clone());
        let hostile = "a\u{1b}[2J\r\nERROR forged\u{202e}\u{9b}";
        tracing::subscriber::with_default(log.finish(), || {
            tracing::warn!(name = %hostile, reason = hostile, "rendered:\n{hostile}");
        });
        let text = String::from_utf8(written.0.lock().clone()).unwrap();
        assert!(!text.contains(['\u{1b}', '\r', '\u{202e}', '\u{9b}']), "{text:?}");
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].trim_start().starts_with("WARN rendered:"), "{text}");
        assert!(lines[1..].iter().all(|line| line.starts_with("  ")), "{text}");
        assert!(text.contains("name=a\\u001b[2J\\u000d\\u000aERROR forged\\u202e"), "{text}");
        assert!(text.contains("reason="), "{text}");
    }
}
