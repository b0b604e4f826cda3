//! The log of commands that run for long, such as `serve`, on stderr.
//!
//! A full disk or a closed pipe never stops the process. The log counts lost lines, and reports the count as
//! soon as stderr is writable again.
//!
//! With JSON, each line is an object in the format of tracing-subscriber: `timestamp`, `level`, `fields` (with `message`)
//! and `target`.

mod fields;
mod level;
mod line;
mod lossy;
mod repeats;

use std::io::{self, Write};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ironmesh_catalog::text::escape_output;
use serde_json::json;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::color;

pub use level::LogFilterHandle;
use line::{json_line, text_line};
use lossy::Lossy;
use repeats::{Repeats, RepeatsLayer, SUMMARY, Summary};

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogOutput {
    /// Lines for people.
    Text,
    /// A JSON object in each line.
    Json,
}

/// Installs the subscriber, with the filter of `RUST_LOG`, or else the default one. The handle replaces it.
pub fn init(format: LogOutput) -> LogFilterHandle {
    let variable = LogFilterHandle::variable();
    let (filter, handle, problem) = LogFilterHandle::new(variable.clone());
    let lost = Arc::<AtomicU64>::default();
    let of_repeats = Lossy { output: io::stderr(), format, lost: Arc::clone(&lost) };
    let writer = move || Lossy { output: io::stderr(), format, lost: Arc::clone(&lost) };
    // Its internal errors would only say, on stderr, that stderr cannot be written.
    let log = tracing_subscriber::fmt::layer().log_internal_errors(false);
    // At the level of debug: how long each reconcile pass, stream and request took.
    let log = log.with_span_events(FmtSpan::CLOSE);
    let subscriber = tracing_subscriber::registry().with(filter).with(count_repeats(of_repeats));
    match format {
        LogOutput::Text => {
            let log = log.with_ansi(color::is_enabled(&io::stderr()));
            let log = log.fmt_fields(fields::escaped_fields()).with_writer(writer);
            subscriber.with(log).init();
        }
        LogOutput::Json => subscriber.with(log.json().with_writer(writer)).init(),
    }
    if let Some(reason) = problem {
        let action = "using the level of the settings";
        tracing::warn!(value = variable, reason, action, "RUST_LOG is invalid");
    }
    handle
}

/// The repeated lines of the process, and the format of their counts.
static REPEATS: OnceLock<(Arc<Repeats>, LogOutput)> = OnceLock::new();

/// How often the periods of repeated lines are examined.
const EXAMINE: Duration = Duration::from_secs(1);

/// The layer that counts repeated lines, and the thread that writes the counts. Without a thread, no line is left out.
fn count_repeats(mut output: Lossy<io::Stderr>) -> Option<RepeatsLayer> {
    let repeats = Arc::<Repeats>::default();
    let (counted, format) = (Arc::clone(&repeats), output.format);
    let write = move || {
        loop {
            std::thread::sleep(EXAMINE);
            write_summaries(&mut output, counted.summaries(repeats::now()), format);
        }
    };
    let thread = std::thread::Builder::new().name("log-repeats".to_owned()).spawn(write);
    thread.ok()?;
    // A process begins one log.
    let _ = REPEATS.set((Arc::clone(&repeats), format));
    Some(RepeatsLayer(repeats))
}

/// Writes the counts of repeated lines whose period is not over. To be called at the end of the process, after its last line.
pub fn finish() {
    if let Some((repeats, format)) = REPEATS.get() {
        let lost = Arc::default();
        let mut output = Lossy { output: io::stderr(), format: *format, lost };
        write_summaries(&mut output, repeats.rest(repeats::now()), *format);
    }
}

fn write_summaries(output: &mut impl Write, summaries: Vec<Summary>, format: LogOutput) {
    for summary in summaries {
        // The writer counts what it cannot write.
        let _ = output.write_all(summary_line(&summary, format).as_bytes());
    }
}

fn summary_line(summary: &Summary, format: LogOutput) -> String {
    let Summary { level, target, fields } = summary;
    match format {
        LogOutput::Text => text_line(level.as_str(), target, SUMMARY, fields),
        LogOutput::Json => {
            let fields = fields.iter().map(|(name, value)| {
                let number = value.parse::<u64>().map(|number| json!(number));
                ((*name).to_owned(), number.unwrap_or_else(|_| json!(value)))
            });
            let message = [("message".to_owned(), json!(SUMMARY))];
            json_line(level.as_str(), target, &message.into_iter().chain(fields).collect())
        }
    }
}

/// Logs why a command failed as a JSON line, regardless of `RUST_LOG`.
pub fn write_failure(event: &str, reason: &str) {
    let fields = json!({ "message": event, "reason": reason });
    let line = json_line("ERROR", "ironmesh", &fields);
    // If stderr cannot be written, the exit code alone reports the failure.
    let _ = io::stderr().write_all(escape_output(&line).as_bytes());
}
