//! The bodies of error answers, and what to do about them. Pure.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::StatusCode;
use serde_json::Value;

use super::error::RequestError;
use super::http::HttpResponse;
use super::survey::MissingRight;

/// The characters of an error text that are kept.
const MAX_WORDS: usize = 400;
/// The clock skew that an error mentions.
const CLOCK: Duration = Duration::from_secs(300);
/// The wait after throttling without a `Retry-After` header.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(30);
/// The longest wait after throttling.
const LONGEST: Duration = Duration::from_secs(3600);

/// The code and text of an error answer.
#[derive(Debug, Default)]
pub(super) struct ErrorBody {
    pub(super) code: String,
    pub(super) text: String,
}

impl ErrorBody {
    /// Reads the body of the Resource Manager (`{"error": {"code", "message"}}`) or of the token
    /// service (`{"error", "error_description"}`).
    pub(super) fn read(body: &[u8]) -> Self {
        let short = |text: &str| {
            let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
            line.chars().take(MAX_WORDS).collect::<String>()
        };
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            let text = short(&String::from_utf8_lossy(body));
            return Self { code: String::new(), text };
        };
        let word = |value: &Value, key: &str| {
            value.get(key).and_then(Value::as_str).map(short).unwrap_or_default()
        };
        match value.get("error") {
            Some(error @ Value::Object(_)) => {
                Self { code: word(error, "code"), text: word(error, "message") }
            }
            _ => Self { code: word(&value, "error"), text: word(&value, "error_description") },
        }
    }

    /// Whether the error is about a concurrent operation, and not about throttling.
    pub(super) fn is_about_another(&self, answer: &HttpResponse) -> bool {
        const WORD: &str = "RetryableErrorDueToAnotherOperation";
        self.code == WORD || String::from_utf8_lossy(&answer.body).contains(WORD)
    }

    /// Returns the missing right that the text names; otherwise that which the call requires.
    pub(super) fn missing(
        &self,
        status: StatusCode,
        action: &str,
        scope: &str,
    ) -> Option<MissingRight> {
        if status != StatusCode::FORBIDDEN {
            return None;
        }
        let quoted = |after: &str| {
            let (_, rest) = self.text.split_once(after)?;
            let (word, _) = rest.split_once('\'')?;
            (!word.is_empty()).then(|| word.to_owned())
        };
        let action = quoted("perform action '").unwrap_or_else(|| action.to_owned());
        let scope = quoted("over scope '").unwrap_or_else(|| scope.to_owned());
        Some(MissingRight { action, scope })
    }

    /// Returns the error with advice. `clock` is the local time.
    pub(super) fn error(
        self,
        answer: &HttpResponse,
        action: &str,
        scope: &str,
        clock: Timestamp,
    ) -> RequestError {
        let status = answer.status;
        let advice = match (status, self.missing(status, action, scope)) {
            (_, Some(MissingRight { action, scope })) => format!(
                "; grant the credential the action `{action}` on `{scope}`, for example by the role Reader"
            ),
            (StatusCode::UNAUTHORIZED, _) => off(answer, clock).unwrap_or_else(|| {
                "; check that the tenant and the cloud are those of the subscription".to_owned()
            }),
            (StatusCode::NOT_FOUND, _) if self.code == "ResourceGroupNotFound" => {
                "; fix `resource_group`".to_owned()
            }
            (StatusCode::NOT_FOUND, _) if self.code == "SubscriptionNotFound" => {
                "; fix `subscription`, or grant the credential read access to it".to_owned()
            }
            (StatusCode::TOO_MANY_REQUESTS, _) => {
                format!("; the next request follows in {} s", wait(answer).as_secs())
            }
            _ => String::new(),
        };
        RequestError::Status { status, code: self.code, text: self.text, advice }
    }
}

/// Returns the wait after throttling. Earlier requests would prolong it.
pub(super) fn wait(answer: &HttpResponse) -> Duration {
    answer.retry_after().unwrap_or(DEFAULT_RETRY_AFTER).min(LONGEST)
}

/// Returns advice if the local clock differs from the date of the answer.
fn off(answer: &HttpResponse, clock: Timestamp) -> Option<String> {
    let date = jiff::fmt::rfc2822::parse(answer.header("Date")?).ok()?;
    let off = clock.duration_since(date.timestamp());
    (off.unsigned_abs() > CLOCK).then(|| {
        let way = if off.is_negative() { "behind" } else { "ahead" };
        let minutes = off.unsigned_abs().as_secs() / 60;
        format!("; the clock of this machine is {minutes} minutes {way} of Azure's: set it")
    })
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &str)], body: &str) -> HttpResponse {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        HttpResponse { status, headers: map, body: body.as_bytes().to_vec() }
    }

    fn message_of(answer: &HttpResponse) -> String {
        let now = "2026-11-22T12:00:00Z".parse().unwrap();
        ErrorBody::read(&answer.body).error(answer, "A/read", "/subscriptions/s", now).to_string()
    }

    #[test]
    fn error_names_the_missing_permission() {
        let body = r#"{"error":{"code":"AuthorizationFailed","message":"The client 'a' with object id 'b' does not have authorization to perform action 'Microsoft.Compute/virtualMachineScaleSets/read' over scope '/subscriptions/s/resourceGroups/g' or the scope is invalid."}}"#;
        let refused = answer(403, &[], body);
        let missing = ErrorBody::read(&refused.body).missing(refused.status, "x", "y").unwrap();
        assert_eq!(missing.action, "Microsoft.Compute/virtualMachineScaleSets/read");
        assert_eq!(missing.scope, "/subscriptions/s/resourceGroups/g");
        let message = message_of(&refused);
        assert!(
            message.contains("the action `Microsoft.Compute/virtualMachineScaleSets/read` on"),
            "{message}"
        );
        // If the text names no action, the error names that of the call.
        let message = message_of(&answer(403, &[], "no"));
        assert!(message.contains("the action `A/read` on `/subscriptions/s`"), "{message}");
    }

    #[test]
    fn unauthorized_error_names_clock_skew() {
        let date = ("Date", "Sun, 22 Nov 2026 11:00:00 GMT");
        let message = message_of(&answer(401, &[date], "{}"));
        assert!(message.contains("60 minutes ahead"), "{message}");
        let date = ("Date", "Sun, 22 Nov 2026 12:00:10 GMT");
        let message = message_of(&answer(401, &[date], "{}"));
        assert!(message.contains("the tenant"), "{message}");
    }

    #[test]
    fn retry_after_is_honored_up_to_a_bound() {
        assert_eq!(wait(&answer(429, &[("Retry-After", "17")], "")).as_secs(), 17);
        assert_eq!(wait(&answer(429, &[("Retry-After", "1000000")], "")), LONGEST);
        assert_eq!(wait(&answer(429, &[("Retry-After", "soon")], "")), DEFAULT_RETRY_AFTER);
        let other = answer(429, &[], r#"{"error":{"code":"RetryableErrorDueToAnotherOperation"}}"#);
        assert!(ErrorBody::read(&other.body).is_about_another(&other));
    }
}
