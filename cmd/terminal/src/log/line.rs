//! Lines of the log that do not come from the subscriber.

use jiff::Timestamp;
use serde_json::{Value, json};

/// A line in the format of the subscriber's JSON.
pub(super) fn json_line(level: &str, target: &str, fields: &Value) -> String {
    let timestamp = format!("{:.6}", Timestamp::now());
    let line =
        json!({ "timestamp": timestamp, "level": level, "fields": fields, "target": target });
    format!("{line}\n")
}
