//! The destinations of access log entries and of traces.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ironmesh_catalog::{Collector, Hostname, LogSink, Name};

use super::format;
use crate::codes;
use crate::table::{FindingReported, Table, Value};

/// The most characters of the name of a file, and of an attribute.
const FILE_NAME: usize = 128;
const ATTRIBUTE: usize = 255;

/// The most attributes of a record.
const MOST_ATTRIBUTES: usize = 64;

/// What an optional key sets, and its spot.
type Read<'a, T> = Result<Option<(T, Value<'a>)>, FindingReported>;

/// Reads a sink: the word `stdout`, or a table.
pub(super) fn read(value: Value<'_>) -> Result<LogSink, FindingReported> {
    if !value.is_table() {
        return value.word("sink", &[("stdout", ())]).map(|()| LogSink::Stdout);
    }
    let mut table = value.table("a sink of an access log")?;
    let file = table.optional("file", |value| Ok((read_file(value)?, value)));
    let collector = table.optional("open_telemetry", read_collector);
    let attributes = table.optional("attributes", |value| Ok((read_attributes(value)?, value)));
    let sink = which(&table, file, collector, attributes);
    table.finish();
    sink
}

/// The one sink that is named.
fn which<'a>(
    table: &Table<'_>,
    file: Read<'a, Arc<str>>,
    collector: Result<Option<Collector>, FindingReported>,
    attributes: Read<'a, BTreeMap<Arc<str>, Arc<str>>>,
) -> Result<LogSink, FindingReported> {
    match (file?, collector?, attributes?) {
        (None, None, _) => Err(table.missing("file")),
        (Some((_, file)), Some(_), _) => {
            let message = "an access log goes to a file or to a collector, not to both";
            let finding = file.error(codes::INVALID_VALUE, message).label("and to a collector");
            Err(file.report(finding.help("remove `file`, or `open_telemetry`")))
        }
        (Some(_), None, Some((_, attributes))) => {
            let message = "`attributes` are those of records that go to a collector";
            let finding = attributes.error(codes::INVALID_VALUE, message).label("goes to a file");
            Err(attributes.report(finding.help("put them into `format`, as JSON")))
        }
        (Some((file, _)), None, None) => Ok(LogSink::File(file)),
        (None, Some(collector), attributes) => {
            let attributes = attributes.map(|(attributes, _)| attributes).unwrap_or_default();
            Ok(LogSink::OpenTelemetry { collector, attributes })
        }
    }
}

/// Reads the name of a file. A path would let policy write any file of every machine, so each machine's
/// bootstrap names the folder of the file.
fn read_file(value: Value<'_>) -> Result<Arc<str>, FindingReported> {
    let written = value.string()?;
    if is_file_name(written) {
        return Ok(written.into());
    }
    let message = "the `file` of an access log is a name and not a path".to_owned();
    let finding = value.error(codes::LOG_FILE, message).label("no name of a file");
    let last = written.rsplit('/').next().filter(|last| is_file_name(last)).unwrap_or("access.log");
    Err(value.report(finding.help(format!(
        "write `file = \"{last}\"`, in letters, digits, `.`, `-` and `_`: each proxy writes it in the \
         folder that its own bootstrap allows (`ironmesh proxy bootstrap --access-log-dir DIR`)"
    ))))
}

fn is_file_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !text.starts_with('.') && (1..=FILE_NAME).contains(&text.len()) && text.chars().all(is_plain)
}

fn read_attributes(value: Value<'_>) -> Result<BTreeMap<Arc<str>, Arc<str>>, FindingReported> {
    let table = value.table("attributes of records")?;
    let entries: Vec<_> = table.entries().collect();
    if entries.is_empty() {
        let finding = value.error(codes::EMPTY_LIST, "`attributes` is empty").label("empty");
        return Err(value.report(finding.help("leave it out for none")));
    }
    if entries.len() > MOST_ATTRIBUTES {
        let message = format!("a record has at most {MOST_ATTRIBUTES} attributes");
        return Err(value.report(value.error(codes::TOO_LARGE, message).label("too many")));
    }
    let read = entries.into_iter().map(|(_, value)| {
        let name = value.key();
        if name.is_empty() || name.chars().count() > ATTRIBUTE || name.contains(char::is_control) {
            let message = format!(
                "the name of an attribute must be 1 to {ATTRIBUTE} characters without control \
                 characters"
            );
            return Err(value.report(value.error(codes::INVALID_VALUE, message).label("is not")));
        }
        Ok((Arc::from(name), format::read_text(value)?))
    });
    let read: Vec<Result<_, FindingReported>> = read.collect();
    read.into_iter().collect()
}

/// Reads a collector: `{ host, port }`.
pub(super) fn read_collector(value: Value<'_>) -> Result<Collector, FindingReported> {
    let mut table = value.table("a collector")?;
    let host = table.required("host", read_host);
    let port = table.optional("port", Value::port);
    table.finish();
    Ok(Collector { host: host?, port: port?.unwrap_or(Collector::PORT) })
}

fn read_host(value: Value<'_>) -> Result<Arc<str>, FindingReported> {
    let text = value.string()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_string().into());
    }
    if let Some(name) = Hostname::new(text).ok().filter(|name| !name.is_wildcard()) {
        return Ok(name.as_str().into());
    }
    if let Ok(name) = Name::new(text) {
        return Ok(name.as_str().into());
    }
    let message = format!("`host` must be an IP address or a hostname: `{text}`");
    let finding = value.error(codes::INVALID_VALUE, message).label("neither");
    Err(value
        .report(finding.help("write it as in `otel.example.com`; the port is a key of its own")))
}
