//! The log of `serve`, on stderr. A log that cannot be written, on a full disk or into a closed pipe, never
//! stops the control plane: its lines are counted, and the count is logged as soon as one can be written.

mod fields;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing_subscriber::EnvFilter;

/// Installs the subscriber, with the filter of `RUST_LOG`.
pub(super) fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lost = Arc::<AtomicU64>::default();
    let log = tracing_subscriber::fmt().with_env_filter(filter);
    let log = log.fmt_fields(fields::escaped_fields());
    // What it would report is that the log cannot be written, and on stderr.
    let log = log.with_ansi(io::stderr().is_terminal()).log_internal_errors(false);
    log.with_writer(move || Lossy { output: io::stderr(), lost: Arc::clone(&lost) }).init();
}

/// Writes lines to `output`, and succeeds where that fails.
struct Lossy<W> {
    output: W,
    lost: Arc<AtomicU64>,
}

impl<W: Write> Write for Lossy<W> {
    /// The subscriber writes a line at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let words = match lost {
            0 => String::new(),
            lost => format!("{lost} lines of the log were lost: stderr could not be written\n"),
        };
        let written = self.output.write_all(words.as_bytes());
        if written.and_then(|()| self.output.write_all(line)).is_err() {
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

    /// Fails until it is mended.
    #[derive(Default)]
    struct Output {
        is_full: bool,
        text: Vec<u8>,
    }

    impl Write for Output {
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
    fn lines_that_cannot_be_written_are_counted_and_the_count_is_logged() {
        let (mut output, lost) = (Output::default(), Arc::default());
        for (is_full, line) in
            [(false, "1\n"), (true, "2\n"), (true, "3\n"), (false, "4\n"), (false, "5\n")]
        {
            output.is_full = is_full;
            let mut lossy = Lossy { output: &mut output, lost: Arc::clone(&lost) };
            lossy.write_all(line.as_bytes()).unwrap();
        }
        let expected = "1\n2 lines of the log were lost: stderr could not be written\n4\n5\n";
        assert_eq!(String::from_utf8(output.text).unwrap(), expected);
    }
}
