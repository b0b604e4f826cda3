//! Lines of the log that do not come from the subscriber.

use ironmesh_catalog::text::escape_line;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A line in the format of the subscriber's JSON.
pub(super) fn json_line(level: &str, target: &str, fields: &Value) -> String {
    let timestamp = format!("{:.6}", Timestamp::now());
    let line =
        json!({ "timestamp": timestamp, "level": level, "fields": fields, "target": target });
    format!("{line}\n")
}

/// A line in the format of the subscriber's text, without colors.
pub(super) fn text_line(
    level: &str,
    target: &str,
    message: &str,
    fields: &[(&'static str, String)],
) -> String {
    let field = |(name, value): &(&'static str, String)| {
        let value = if value.contains(' ') { format!("{value:?}") } else { value.clone() };
        format!(" {name}={}", escape_line(&value))
    };
    let fields = fields.iter().map(field);
    let timestamp = Timestamp::now();
    format!("{timestamp:.6} {level:>5} {target}: {message}{}\n", fields.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_fields_forge_no_line() {
        let fields =
            [("event", "NACK".to_owned()), ("last_reason", "a\nERROR \u{1b}[2J".to_owned())];
        let line = text_line("WARN", "ironmesh_a::b", "a line was repeated", &fields);
        let (_, rest) = line.split_once("Z  WARN ironmesh_a::b: ").unwrap();
        assert!(rest.starts_with("a line was repeated event=NACK last_reason=\"a"), "{line:?}");
        assert_eq!(
            (line.matches('\n').count(), line.matches('\u{1b}').count()),
            (1, 0),
            "{line:?}"
        );
    }
}
