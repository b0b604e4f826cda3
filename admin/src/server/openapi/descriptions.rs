//! The texts of the document, which are doc comments of the code, for readers who do not have the code.

use std::fmt::Write as _;

use ironmesh_api as api;

/// The bounds that doc comments name by a constant, with their values.
const BOUNDS: [(&str, u64); 17] = [
    ("MAX_ACCESS_PAGE", api::MAX_ACCESS_PAGE as u64),
    ("MAX_CALLER_RULES", api::MAX_CALLER_RULES as u64),
    ("MAX_CORDON_LAGGARDS", api::MAX_CORDON_LAGGARDS as u64),
    ("MAX_CREDENTIAL_LIFETIME", api::MAX_CREDENTIAL_LIFETIME),
    ("MAX_ENROLLMENTS", api::MAX_ENROLLMENTS as u64),
    ("MAX_KNOWN_AS", api::MAX_KNOWN_AS as u64),
    ("MAX_LAGGARDS", api::MAX_LAGGARDS as u64),
    ("MAX_OUTDATED", api::MAX_OUTDATED as u64),
    ("MAX_PORT_CALLERS", api::MAX_PORT_CALLERS as u64),
    ("MAX_PROVIDER_SERVICES", api::MAX_PROVIDER_SERVICES as u64),
    ("MAX_PROXY_PAGE", api::MAX_PROXY_PAGE as u64),
    ("MAX_REASON", api::MAX_REASON as u64),
    ("MAX_REVOCATIONS", api::MAX_REVOCATIONS as u64),
    ("MAX_SERVICE_PAGE", api::MAX_SERVICE_PAGE as u64),
    ("MAX_TOKENS", api::MAX_TOKENS as u64),
    ("MAX_TOKEN_TTL", api::MAX_TOKEN_TTL),
    ("MAX_WAIT", api::MAX_WAIT.as_secs() * 1_000),
];

/// A doc comment without links of rustdoc, with the values of bounds instead of their constants.
pub(super) fn for_readers(comment: &str) -> String {
    let mut text = String::new();
    let mut rest = comment;
    while let Some((before, link)) = rest.split_once('[') {
        text += before;
        let Some((label, after)) = link.split_once(']') else {
            text.push('[');
            rest = link;
            continue;
        };
        let target = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        match (target, label.strip_prefix('`').and_then(|label| label.strip_suffix('`'))) {
            // `[label](target)`
            (Some((_, after)), _) => {
                text += label;
                rest = after;
            }
            // `[item]`, an item of the code
            (None, Some(path)) => {
                text += &item(path);
                rest = after;
            }
            // Brackets of the text.
            (None, None) => {
                text.push('[');
                rest = link;
            }
        }
    }
    text + rest
}

/// An item of the code: the value of a bound, or the name of another item.
fn item(path: &str) -> String {
    let name = path.rsplit("::").next().unwrap_or(path);
    let bound = BOUNDS.iter().find(|(constant, _)| *constant == name);
    bound.map_or_else(|| format!("`{name}`"), |(_, value)| with_separators(*value))
}

/// A number in groups of three digits: `7,776,000`.
fn with_separators(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        // (Writing to a string does not fail.)
        let _ = write!(text, "{digit}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_constants_become_text() {
        for (comment, expected) in [
            ("At most [`MAX_TOKENS`], as `[redacted]`.", "At most 1,000, as `[redacted]`."),
            ("One of [`crate::MAX_REASON`] bytes", "One of 500 bytes"),
            ("As in [`crate::a::Question`], [kept](a::Keep::Yes).", "As in `Question`, kept."),
            ("`[2001:db8::1]:1` and [", "`[2001:db8::1]:1` and ["),
        ] {
            assert_eq!(for_readers(comment), expected);
        }
        assert_eq!(with_separators(7_776_000), "7,776,000");
        assert_eq!((with_separators(20), with_separators(100)), ("20".into(), "100".into()));
    }
}
