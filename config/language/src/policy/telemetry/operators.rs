//! The command operators of access logs in Envoy 1.40, and the arguments of each.
//!
//! The list was made by trying every name in that Envoy, and a golden test tries each again
//! (`tests/golden/telemetry.rs`). It leaves out operators that take expressions or reveal data of the machine
//! (`CEL`, `COALESCE`, `COMMON_DURATION`, `ENVIRONMENT`, `FILTER_STATE`).

use std::ops::Range;

use crate::suggest::{closest, did_you_mean};
use crate::table::list;

/// A problem of a part of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OperatorProblem {
    /// The bytes of the part.
    pub(super) part: Range<usize>,
    pub(super) message: String,
    pub(super) help: String,
}

/// The arguments that an operator allows in its brackets, and whether a length may follow them.
#[derive(Debug, Clone, Copy)]
enum Parameter {
    /// No brackets.
    None,
    /// One of these words, or no brackets.
    Word(&'static [&'static str]),
    /// One of these words and a length, or neither.
    WordAndLength(&'static [&'static str]),
    /// A time format, or no brackets.
    Time,
    /// The name of a header, or two with a `?` between them; and a length.
    Header,
    /// Any text.
    Key,
    /// Any text; and a length.
    KeyAndLength,
}

/// The operators with something in their brackets.
const WITH_PARAMETER: [(&str, Parameter); 24] = [
    ("REQ", Parameter::Header),
    ("REQUEST_HEADER", Parameter::Header),
    ("REQ_WITHOUT_QUERY", Parameter::Header),
    ("RESP", Parameter::Header),
    ("RESPONSE_HEADER", Parameter::Header),
    ("RESPONSE_TRAILER", Parameter::Header),
    ("TRAILER", Parameter::Header),
    ("DOWNSTREAM_PEER_CERT_V_END", Parameter::Time),
    ("DOWNSTREAM_PEER_CERT_V_START", Parameter::Time),
    ("EMIT_TIME", Parameter::Time),
    ("EMIT_TIME_LOCAL", Parameter::Time),
    ("START_TIME", Parameter::Time),
    ("START_TIME_LOCAL", Parameter::Time),
    ("UPSTREAM_PEER_CERT_V_END", Parameter::Time),
    ("UPSTREAM_PEER_CERT_V_START", Parameter::Time),
    ("CLUSTER_METADATA", Parameter::Key),
    ("UPSTREAM_METADATA", Parameter::Key),
    ("DYNAMIC_METADATA", Parameter::KeyAndLength),
    ("QUERY_PARAM", Parameter::KeyAndLength),
    ("GRPC_STATUS", Parameter::Word(&["CAMEL_STRING", "SNAKE_STRING", "NUMBER"])),
    ("REQUESTED_SERVER_NAME", Parameter::Word(&["SNI_ONLY", "SNI_FIRST", "HOST_FIRST"])),
    ("RESPONSE_CODE_DETAILS", Parameter::Word(&["ALLOW_WHITESPACES"])),
    ("PATH", Parameter::WordAndLength(&PATH)),
    ("QUERY_PARAMS", Parameter::WordAndLength(&["ORIG", "DECODED"])),
];

/// With its query or without, of the path as it came or as it is now.
const PATH: [&str; 8] =
    ["WQ", "NQ", "WQ:ORIG", "NQ:ORIG", "WQ:PATH", "NQ:PATH", "WQ:ORIG_OR_PATH", "NQ:ORIG_OR_PATH"];

/// The operators with nothing behind them.
const PLAIN: [&str; 131] = [
    "ACCESS_LOG_TYPE",
    "BYTES_RECEIVED",
    "BYTES_RETRANSMITTED",
    "BYTES_SENT",
    "CONNECTION_ID",
    "CONNECTION_TERMINATION_DETAILS",
    "CUSTOM_FLAGS",
    "DOWNSTREAM_CX_RTT",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "DOWNSTREAM_DETECTED_CLOSE_TYPE",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_LOCAL_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_PORT",
    "DOWNSTREAM_HANDSHAKE_DURATION",
    "DOWNSTREAM_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_HEADER_BYTES_SENT",
    "DOWNSTREAM_LOCAL_ADDRESS",
    "DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_CLOSE_REASON",
    "DOWNSTREAM_LOCAL_DNS_SAN",
    "DOWNSTREAM_LOCAL_EMAIL_SAN",
    "DOWNSTREAM_LOCAL_IP_SAN",
    "DOWNSTREAM_LOCAL_OTHERNAME_SAN",
    "DOWNSTREAM_LOCAL_PORT",
    "DOWNSTREAM_LOCAL_SUBJECT",
    "DOWNSTREAM_LOCAL_URI_SAN",
    "DOWNSTREAM_PEER_CERT",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256",
    "DOWNSTREAM_PEER_CHAIN_SERIALS",
    "DOWNSTREAM_PEER_DNS_SAN",
    "DOWNSTREAM_PEER_EMAIL_SAN",
    "DOWNSTREAM_PEER_FINGERPRINT_1",
    "DOWNSTREAM_PEER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_IP_SAN",
    "DOWNSTREAM_PEER_ISSUER",
    "DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_ISSUER_SERIAL",
    "DOWNSTREAM_PEER_OTHERNAME_SAN",
    "DOWNSTREAM_PEER_SERIAL",
    "DOWNSTREAM_PEER_SUBJECT",
    "DOWNSTREAM_PEER_URI_SAN",
    "DOWNSTREAM_REMOTE_ADDRESS",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_REMOTE_PORT",
    "DOWNSTREAM_TLS_CIPHER",
    "DOWNSTREAM_TLS_GROUP",
    "DOWNSTREAM_TLS_SESSION_ID",
    "DOWNSTREAM_TLS_VERSION",
    "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
    "DOWNSTREAM_WIRE_BYTES_RECEIVED",
    "DOWNSTREAM_WIRE_BYTES_SENT",
    "DURATION",
    "FILTER_CHAIN_NAME",
    "GRPC_STATUS_NUMBER",
    "HOSTNAME",
    "LISTENER_NAME",
    "LOCAL_REPLY_BODY",
    "PACKETS_RETRANSMITTED",
    "PROTOCOL",
    "REQUEST_DURATION",
    "REQUEST_HEADERS_BYTES",
    "REQUEST_TX_DURATION",
    "RESPONSE_CODE",
    "RESPONSE_DURATION",
    "RESPONSE_FLAGS",
    "RESPONSE_FLAGS_LONG",
    "RESPONSE_HEADERS_BYTES",
    "RESPONSE_TRAILERS_BYTES",
    "RESPONSE_TX_DURATION",
    "ROUNDTRIP_DURATION",
    "ROUTE_NAME",
    "ROUTE_RESOLUTION_COUNT",
    "ROUTE_RESOLUTION_TIME_US",
    "SPAN_ID",
    "STREAM_ID",
    "TLS_JA3_FINGERPRINT",
    "TLS_JA4_FINGERPRINT",
    "TRACE_ID",
    "UNIQUE_ID",
    "UPSTREAM_CLUSTER",
    "UPSTREAM_CLUSTER_RAW",
    "UPSTREAM_CONNECTION_ID",
    "UPSTREAM_CONNECTION_IDS_ATTEMPTED",
    "UPSTREAM_CONNECTION_POOL_READY_DURATION",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "UPSTREAM_DETECTED_CLOSE_TYPE",
    "UPSTREAM_HEADER_BYTES_RECEIVED",
    "UPSTREAM_HEADER_BYTES_SENT",
    "UPSTREAM_HOST",
    "UPSTREAM_HOSTS_ATTEMPTED",
    "UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME",
    "UPSTREAM_HOST_NAMES_ATTEMPTED",
    "UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME_WITHOUT_PORT",
    "UPSTREAM_LOCAL_ADDRESS",
    "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_LOCAL_CLOSE_REASON",
    "UPSTREAM_LOCAL_DNS_SAN",
    "UPSTREAM_LOCAL_IP_SAN",
    "UPSTREAM_LOCAL_PORT",
    "UPSTREAM_LOCAL_URI_SAN",
    "UPSTREAM_PEER_CERT",
    "UPSTREAM_PEER_DNS_SAN",
    "UPSTREAM_PEER_IP_SAN",
    "UPSTREAM_PEER_ISSUER",
    "UPSTREAM_PEER_SUBJECT",
    "UPSTREAM_PEER_URI_SAN",
    "UPSTREAM_PROTOCOL",
    "UPSTREAM_REMOTE_ADDRESS",
    "UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID",
    "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_REMOTE_PORT",
    "UPSTREAM_REQUEST_ATTEMPT_COUNT",
    "UPSTREAM_SERVER_NAME",
    "UPSTREAM_TLS_CIPHER",
    "UPSTREAM_TLS_GROUP",
    "UPSTREAM_TLS_SESSION_ID",
    "UPSTREAM_TLS_VERSION",
    "UPSTREAM_TRANSPORT_FAILURE_REASON",
    "UPSTREAM_WIRE_BYTES_RECEIVED",
    "UPSTREAM_WIRE_BYTES_SENT",
    "VIRTUAL_CLUSTER_NAME",
];

const HOW_TO_WRITE: &str = "write an operator as in `%RESPONSE_CODE%` or `%REQ(USER-AGENT)%`, and a percent \
                            sign as `%%`";

/// An example of each operator that Envoy accepts.
pub(super) fn examples() -> impl Iterator<Item = String> {
    let with = WITH_PARAMETER.into_iter().map(|(name, takes)| match takes {
        Parameter::None => format!("%{name}%"),
        Parameter::Word(words) | Parameter::WordAndLength(words) => {
            format!("%{name}({})%", words.first().unwrap_or(&""))
        }
        Parameter::Time => format!("%{name}(%Y-%m-%d)%"),
        Parameter::Header => format!("%{name}(X-NAME?USER-AGENT):80%"),
        Parameter::Key => format!("%{name}(name)%"),
        Parameter::KeyAndLength => format!("%{name}(name):80%"),
    });
    PLAIN.into_iter().map(|name| format!("%{name}%")).chain(with)
}

/// The problems of the operators of `text`, in order.
pub(super) fn check(text: &str) -> Vec<OperatorProblem> {
    let mut wrong = Vec::new();
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('%')) {
        let start = at + found;
        let rest = text.get(start + 1..).unwrap_or("");
        if rest.starts_with('%') {
            at = start + 2;
            continue;
        }
        if let Some((operator, length)) = Operator::parse(rest) {
            at = start + 1 + length;
            let problem = operator.problem();
            wrong.extend(problem.map(|(message, help)| OperatorProblem {
                part: start..at,
                message,
                help,
            }));
        } else {
            at = start + 1;
            wrong.push(OperatorProblem {
                part: start..at,
                message: "no command operator begins at this `%`".to_owned(),
                help: HOW_TO_WRITE.to_owned(),
            });
        }
    }
    wrong
}

/// `NAME`, `NAME(parameter)` or `NAME(parameter):length`, between two percent signs.
#[derive(Debug)]
struct Operator<'a> {
    name: &'a str,
    parameter: Option<&'a str>,
    has_length: bool,
}

impl<'a> Operator<'a> {
    /// Parses the text after a percent sign; the returned length includes the second percent sign.
    fn parse(text: &'a str) -> Option<(Self, usize)> {
        let is_of_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let (name, mut rest) = text.split_at(text.find(|c| !is_of_name(c))?);
        let mut parameter = None;
        if let Some(inner) = rest.strip_prefix('(') {
            let (inside, behind) = inner.split_once(')')?;
            parameter = Some(inside).filter(|inside| !inside.is_empty());
            rest = behind;
        }
        let mut has_length = false;
        if let Some(inner) = rest.strip_prefix(':') {
            let (digits, behind) = inner.split_at(inner.find(|c: char| !c.is_ascii_digit())?);
            digits.parse::<u32>().ok()?;
            has_length = true;
            rest = behind;
        }
        rest = rest.strip_prefix('%')?;
        let operator = Self { name, parameter, has_length };
        (!name.is_empty()).then_some((operator, text.len() - rest.len()))
    }

    /// The problem that Envoy would report, and the advice.
    fn problem(&self) -> Option<(String, String)> {
        let Self { name, parameter, has_length } = *self;
        let Some(takes) = Parameter::of(name) else {
            let known = PLAIN.into_iter().chain(WITH_PARAMETER.map(|(known, _)| known));
            let help = closest(name, known).map_or_else(
                || "docs/reference/policy/access_log_operators.md lists the operators".to_owned(),
                |near| did_you_mean(&format!("%{near}%")),
            );
            return Some((format!("there is no command operator `%{name}%`"), help));
        };
        if has_length && !takes.has_length() {
            let message = format!("`%{name}%` takes no length");
            return Some((message, "take the `:` and the number out".to_owned()));
        }
        let is_valid = match parameter {
            None => takes.may_be_left_out(),
            Some(parameter) => takes.takes(parameter),
        };
        if is_valid {
            return None;
        }
        let what = match parameter {
            None => format!("`%{name}%` needs something in brackets"),
            Some(parameter) => format!("`%{name}%` does not take `{parameter}`"),
        };
        Some((what, takes.advice(name)))
    }
}

impl Parameter {
    /// The arguments of an operator, if it exists.
    fn of(name: &str) -> Option<Self> {
        if PLAIN.contains(&name) {
            return Some(Self::None);
        }
        WITH_PARAMETER.iter().find(|(known, _)| *known == name).map(|(_, takes)| *takes)
    }

    fn has_length(self) -> bool {
        matches!(self, Self::WordAndLength(_) | Self::Header | Self::KeyAndLength)
    }

    fn may_be_left_out(self) -> bool {
        !matches!(self, Self::Header | Self::Key | Self::KeyAndLength)
    }

    fn takes(self, parameter: &str) -> bool {
        match self {
            Self::None => false,
            Self::Word(words) | Self::WordAndLength(words) => words.contains(&parameter),
            Self::Time => !has_end_of_line(parameter),
            Self::Header => {
                let mut names = parameter.splitn(2, '?');
                names.all(is_header)
            }
            Self::Key | Self::KeyAndLength => true,
        }
    }

    fn advice(self, name: &str) -> String {
        match self {
            Self::None => format!("write `%{name}%`"),
            Self::Word(words) | Self::WordAndLength(words) => format!("it takes {}", list(words)),
            Self::Time => {
                "a time is written without ends of lines, as in `%Y-%m-%d %H:%M:%S`".to_owned()
            }
            Self::Header => format!(
                "name a header as in `%{name}(USER-AGENT)%`, or two of which the second is used where the first is missing: `%{name}(X-NAME?USER-AGENT)%`"
            ),
            Self::Key | Self::KeyAndLength => {
                format!("write the parameter in brackets, as in `%{name}(name)%`")
            }
        }
    }
}

fn is_header(name: &str) -> bool {
    let name = name.strip_prefix(':').unwrap_or(name);
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Whether a time format would write a line break, which Envoy rejects: by `%n` with any flags, width or
/// modifier.
fn has_end_of_line(time: &str) -> bool {
    let conversions = time.split('%').skip(1);
    let is_end = |conversion: &str| {
        conversion
            .trim_start_matches(|c: char| "-_0^#EO".contains(c) || c.is_ascii_digit())
            .starts_with('n')
    };
    time.contains('\n') || conversions.into_iter().any(is_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        let line = |wrong: OperatorProblem| {
            format!("{} at {}: {}", wrong.message, wrong.part.start, &text[wrong.part.clone()])
        };
        check(text).into_iter().map(line).collect()
    }

    #[test]
    fn log_format_valid_in_envoy_is_accepted() {
        for text in [
            "",
            "no operator",
            "100%% of %DURATION%%% and %BYTES_SENT%",
            "%REQ(:METHOD)% %REQ(X-A?:PATH):10% %RESP(a_b.c)% %TRAILER(x)%",
            "%START_TIME% %START_TIME(%Y-%m-%dT%H:%M:%S.%3fZ)% %EMIT_TIME(%s)%",
            "%PATH% %PATH(NQ)% %PATH(WQ:ORIG):20% %QUERY_PARAMS(DECODED)%",
            "%GRPC_STATUS% %GRPC_STATUS(NUMBER)% %RESPONSE_CODE_DETAILS(ALLOW_WHITESPACES)%",
            "%DYNAMIC_METADATA(a:b c):4% %CLUSTER_METADATA(a:b)% %DURATION()%",
        ] {
            assert!(messages(text).is_empty(), "{text}: {:?}", messages(text));
        }
    }

    #[test]
    fn log_format_invalid_in_envoy_is_reported_with_its_position() {
        for (text, reported) in [
            ("a %NOPE% b", "there is no command operator `%NOPE%` at 2: %NOPE%"),
            ("%CEL(true)%", "there is no command operator `%CEL%` at 0: %CEL(true)%"),
            ("5 % of it", "no command operator begins at this `%` at 2: %"),
            ("%PROTOCOL", "no command operator begins at this `%` at 0: %"),
            ("%req(a)%", "no command operator begins at this `%` at 0: %"),
            ("%%%", "no command operator begins at this `%` at 2: %"),
            ("%REQ%", "`%REQ%` needs something in brackets at 0: %REQ%"),
            ("%REQ()%", "`%REQ%` needs something in brackets at 0: %REQ()%"),
            ("%REQ(a?b?c)%", "`%REQ%` does not take `a?b?c` at 0: %REQ(a?b?c)%"),
            ("%REQ(a b)%", "`%REQ%` does not take `a b` at 0: %REQ(a b)%"),
            ("%DURATION(x)%", "`%DURATION%` does not take `x` at 0: %DURATION(x)%"),
            ("%DURATION:3%", "`%DURATION%` takes no length at 0: %DURATION:3%"),
            ("%START_TIME(%Y%n)%", "`%START_TIME%` does not take `%Y%n` at 0: %START_TIME(%Y%n)%"),
            ("%START_TIME(%_1n)%", "`%START_TIME%` does not take `%_1n` at 0: %START_TIME(%_1n)%"),
            ("%PATH(XQ)%", "`%PATH%` does not take `XQ` at 0: %PATH(XQ)%"),
        ] {
            let findings = messages(text);
            assert_eq!(findings.first().map(String::as_str), Some(reported), "{findings:?}");
        }
        assert_eq!(messages("%A% %B% %DURATION%").len(), 2);
    }

    #[test]
    fn misspelled_operator_gets_a_suggestion() {
        let help = check("%RESPONSE_COED%").remove(0).help;
        assert_eq!(help, "did you mean `%RESPONSE_CODE%`?");
    }
}
