//! The text of a rejected query or body, for people: serde's errors name Rust's types and its own terms.

use axum::extract::rejection::{JsonRejection, QueryRejection};

use super::ApiError;

/// The document that describes all requests.
const DOCUMENT: &str = "`/v1/openapi.json` describes the request";

/// How the errors of serde begin that have a path before them.
const STARTS: [&str; 6] = [
    "missing field ",
    "duplicate field ",
    "unknown field ",
    "unknown variant ",
    "invalid type: ",
    "invalid value: ",
];

/// The error of a body.
pub(super) fn of_body(rejected: &JsonRejection) -> ApiError {
    let message = match rejected {
        JsonRejection::JsonDataError(error) => {
            format!("the body is not valid: {}; {DOCUMENT}", text(&cause(error), "key"))
        }
        JsonRejection::JsonSyntaxError(error) => format!("the body is not JSON: {}", cause(error)),
        JsonRejection::MissingJsonContentType(_) => {
            "the body must be JSON: send it with `Content-Type: application/json`".to_owned()
        }
        other => other.body_text(),
    };
    ApiError::Http { status: rejected.status(), message }
}

/// The error of a query.
pub(super) fn of_query(rejected: &QueryRejection) -> ApiError {
    let message =
        format!("the query is not valid: {}; {DOCUMENT}", text(&cause(rejected), "parameter"));
    ApiError::Http { status: rejected.status(), message }
}

/// The error of a question in the query.
pub(super) fn of_question(error: &serde_json::Error) -> ApiError {
    let message = if error.is_data() {
        format!("`question` is not valid: {}; {DOCUMENT}", text(&error.to_string(), "key"))
    } else {
        format!("`question` is not JSON: {error}")
    };
    ApiError::BadRequest(message)
}

/// The text of the first cause.
fn cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The text of an error of serde about a value; `place` is what its fields are here.
fn text(error: &str, place: &str) -> String {
    // The position is that of the end of an object, mostly: the name says more.
    let error = match error.rsplit_once(" at line ") {
        Some((error, position)) if position.contains(" column ") => error,
        _ => error,
    };
    // A body has the path of the value before the error, which names an unknown or a missing key itself.
    let (path, error) = match error.split_once(": ") {
        Some((path, rest)) if STARTS.iter().any(|start| rest.starts_with(start)) => (path, rest),
        _ => ("", error),
    };
    let quoted = |text: &str| text.split('`').nth(1).map(str::to_owned);
    let known = |text: &str| {
        let names: Vec<_> =
            text.split('`').skip(3).step_by(2).map(|name| format!("`{name}`")).collect();
        if names.is_empty() { String::new() } else { format!(", of {}", names.join(", ")) }
    };
    let is = |start: &str| error.starts_with(start).then(|| quoted(error)).flatten();
    if let Some(name) = is("missing field ") {
        return format!("the {place} `{name}` is missing");
    }
    if let Some(name) = is("duplicate field ") {
        return format!("the {place} `{name}` occurs twice");
    }
    if let Some(name) = is("unknown field ") {
        return format!("there is no {place} `{name}`{}", known(error));
    }
    if let Some(name) = is("unknown variant ") {
        return format!("there is no value `{name}`{}", known(error));
    }
    let Some((found, expected)) = error.split_once(", expected ") else { return error.to_owned() };
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" | "NonZeroU16" | "NonZeroU32" => {
            "a whole number from 0"
        }
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other if other.starts_with("enum ") => "one of its values",
        other => other,
    };
    let found =
        match found.trim_start_matches("invalid type: ").trim_start_matches("invalid value: ") {
            "sequence" => "a list",
            "map" => "an object",
            "unit value" => "null",
            other => other,
        };
    let place = if path.is_empty() { String::new() } else { format!("`{path}`: ") };
    format!("{place}found {found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its errors are read")]
    struct Request {
        count: u32,
        #[serde(default)]
        kind: Kind,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        #[default]
        Owner,
        User,
    }

    #[test]
    fn errors_of_serde_become_plain() {
        for (json, expected) in [
            ("{}", "the key `count` is missing"),
            ("{\"count\": 1, \"x\": 2}", "there is no key `x`, of `count`, `kind`"),
            ("{\"count\": 1, \"count\": 1}", "the key `count` occurs twice"),
            ("{\"count\": 1, \"kind\": \"x\"}", "there is no value `x`, of `owner`, `user`"),
            ("{\"count\": -1}", "found integer `-1`, expected a whole number from 0"),
            ("{\"count\": null}", "found null, expected a whole number from 0"),
            ("{\"count\": []}", "found a list, expected a whole number from 0"),
            ("3", "found integer `3`, expected an object"),
        ] {
            let error = serde_json::from_str::<Request>(json).unwrap_err();
            assert_eq!(text(&error.to_string(), "key"), expected, "{json}: {error}");
        }
        for (error, expected) in [
            ("x: unknown field `x`, expected `count`", "there is no key `x`, of `count`"),
            (
                "a.b: invalid type: null, expected u64",
                "`a.b`: found null, expected a whole number from 0",
            ),
            ("level: `loud` is no level", "level: `loud` is no level"),
        ] {
            assert_eq!(text(error, "key"), expected);
        }
    }
}
