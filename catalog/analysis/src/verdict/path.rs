//! Path normalization as in Envoy 1.40, before any comparison.
//!
//! Every HTTP filter chain of the mesh normalizes paths, merges slashes and rejects escaped slashes, unless the
//! service keeps them. This module reproduces that exactly.

use std::fmt::Write as _;

use ironmesh_catalog::service::EscapedSlashes;

/// The reason why Envoy answers a path with 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rejected(pub(super) &'static str);

/// What is wrong with `target`, a path with or without a query; none if it is valid.
pub(super) fn problem(target: &str) -> Option<&'static str> {
    let path = without_query(target);
    if !path.starts_with('/') {
        return Some("does not begin with `/`");
    }
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Some("has characters that must be escaped, as `%20` for a space");
    }
    let is_escape = |rest: &str| {
        let digits = rest.get(..2).unwrap_or("");
        digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    if path.split('%').skip(1).any(|rest| !is_escape(rest)) {
        return Some("has a `%` that begins no escape: write `%25`");
    }
    None
}

/// The path of `target` without its query, after one normalization.
pub(super) fn normalized(
    target: &str,
    escaped_slashes: EscapedSlashes,
) -> Result<String, Rejected> {
    if target.contains('#') {
        return Err(Rejected("the path has a fragment (`#`)"));
    }
    let path = without_query(target);
    if has_escaped_slash(path) && escaped_slashes == EscapedSlashes::Reject {
        return Err(Rejected("the path has an escaped slash (`%2f` or `%5c`)"));
    }
    if path.contains("%00") {
        return Err(Rejected("the path has an escaped zero (`%00`)"));
    }
    Ok(with_merged_slashes(&resolved(&strip_dot_segment_parameters(path))))
}

/// Whether a path without its query has an escaped slash or backslash.
pub(super) fn has_escaped_slash(path: &str) -> bool {
    let folded = path.to_ascii_lowercase();
    folded.contains("%2f") || folded.contains("%5c")
}

fn without_query(target: &str) -> &str {
    target.split('?').next().unwrap_or(target)
}

/// `.` and `..` lose their path parameters: `..;x=1` is `..`.
fn strip_dot_segment_parameters(path: &str) -> String {
    let segments = path.split('/').map(|segment| match segment.split_once(';') {
        Some((dots @ ("." | ".."), _)) => dots,
        _ => segment,
    });
    segments.collect::<Vec<_>>().join("/")
}

/// The path with `.` and `..` resolved as in a URL (WHATWG): escaped ones count, `\` is a slash, and an empty
/// segment counts as a segment. Unreserved characters are unescaped, and some others escaped.
fn resolved(path: &str) -> String {
    let path = path.replace('\\', "/");
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let mut kept: Vec<String> = Vec::new();
    for (n, segment) in segments.iter().enumerate() {
        let is_last = n + 1 == segments.len();
        match segment.to_ascii_lowercase().replace("%2e", ".").as_str() {
            "." if is_last => kept.push(String::new()),
            "." => {}
            ".." => {
                kept.pop();
                if is_last {
                    kept.push(String::new());
                }
            }
            _ => kept.push(rewritten(segment)),
        }
    }
    format!("/{}", kept.join("/"))
}

/// A segment with unreserved characters (RFC 3986, section 2.3) unescaped, and characters that are invalid in
/// a path escaped.
fn rewritten(segment: &str) -> String {
    let mut text = String::with_capacity(segment.len());
    let mut rest = segment;
    while let Some(next) = rest.chars().next() {
        let escape = rest.strip_prefix('%').and_then(|rest| rest.get(..2));
        let escaped = escape.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped.map(char::from) {
            Some(c) if c.is_ascii_alphanumeric() || "-._~".contains(c) => {
                text.push(c);
                rest = rest.get(3..).unwrap_or("");
                continue;
            }
            _ if "\"<>^`{|}".contains(next) => {
                // (Writing to a string does not fail.)
                let _ = write!(text, "%{:02X}", u32::from(next));
            }
            _ => text.push(next),
        }
        rest = rest.get(next.len_utf8()..).unwrap_or("");
    }
    text
}

fn with_merged_slashes(path: &str) -> String {
    if !path.contains("//") {
        return path.to_owned();
    }
    let segments: Vec<_> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let end = if path.ends_with('/') { "/" } else { "" };
    // (Of `//` Envoy leaves `//`.)
    format!("/{}{end}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // What Envoy 1.40 made of each.
    #[test]
    fn normalized_path_equals_that_of_envoy() {
        for (path, expected) in [
            ("/", "/"),
            ("/a/../b", "/b"),
            ("/../b", "/b"),
            ("/a/./b", "/a/b"),
            ("/a/.", "/a/"),
            ("/a/..", "/"),
            ("/a/../../..", "/"),
            ("/a/...//b", "/a/.../b"),
            ("/.a/..b/", "/.a/..b/"),
            ("//a//b", "/a/b"),
            ("/a//../b", "/a/b"),
            ("/a/b//../", "/a/b/"),
            ("/a//", "/a/"),
            ("//", "//"),
            ("/a/..//../x", "/x"),
            ("/a?x=//y/../z", "/a"),
            ("/?a", "/"),
            ("/a/.?q", "/a/"),
            ("/a/%2e%2e/c", "/c"),
            ("/a/.%2E/c", "/c"),
            ("/a/%2e", "/a/"),
            ("/%2E/b", "/b"),
            ("/a/%2E%2e;/c", "/a/..;/c"),
            ("/a/b/..;x=1/c", "/a/c"),
            ("/a/b/..;", "/a/"),
            ("/a/b/.;x%2e/c", "/a/b/c"),
            ("/a/b/..;a/../c", "/c"),
            ("/a/b/..;x\\c", "/a/"),
            ("/a/b;x/..", "/a/"),
            ("/a/b/..%3bx/c", "/a/b/..%3bx/c"),
            ("/a\\..\\b", "/b"),
            ("/%252e%252e/x", "/%252e%252e/x"),
            ("/a%41%7ez%20%3B", "/aA~z%20%3B"),
            ("/a|b{c}\"<>^`", "/a%7Cb%7Bc%7D%22%3C%3E%5E%60"),
        ] {
            assert_eq!(normalized(path, EscapedSlashes::Reject).as_deref(), Ok(expected), "{path}");
            assert_eq!(problem(path), None, "{path}");
        }
        for rejected in ["/a%2fb", "/a%5Cb", "/a;%2f", "/a?x#y", "/a%00"] {
            assert!(normalized(rejected, EscapedSlashes::Reject).is_err(), "{rejected}");
        }
        let with_query = normalized("/a?%2f", EscapedSlashes::Reject);
        assert!(with_query.is_ok(), "a query may say what it likes");
    }

    // What Envoy 1.40 made of each.
    #[test]
    fn kept_escaped_slash_is_not_a_path_separator() {
        for (path, expected) in [
            ("/a%2Fb", "/a%2Fb"),
            ("/a%5cb/../c", "/c"),
            ("/a/..%2fb", "/a/..%2fb"),
            ("/a%2f/../b", "/b"),
            ("/a/%2e%2e%2Fb", "/a/..%2Fb"),
        ] {
            assert_eq!(normalized(path, EscapedSlashes::Keep).as_deref(), Ok(expected), "{path}");
        }
        assert!(normalized("/a%00", EscapedSlashes::Keep).is_err());
    }

    #[test]
    fn invalid_path_is_reported_as_a_problem() {
        for bad in ["", "a", "*", "http://a/b", "/a b", "/a%", "/a%2", "/a%zz", "/\u{e9}", "?a"] {
            assert!(problem(bad).is_some(), "{bad}");
        }
    }
}
