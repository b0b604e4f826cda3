//! Changes of requests and responses: headers, path, host and redirects.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use regex::bytes::RegexBuilder;

/// Changes of headers. The names are in lower case, and each occurs in one of the three.
///
/// Invariant: there is at least one change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderChanges {
    /// Headers that get this value alone.
    pub set: BTreeMap<Arc<str>, Arc<str>>,
    /// Headers that get this value in addition.
    pub add: BTreeMap<Arc<str>, Arc<str>>,
    /// Headers that are removed.
    pub remove: BTreeSet<Arc<str>>,
}

impl fmt::Display for HeaderChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { set, add, remove } = self;
        let set = set.iter().map(|(name, value)| format!("{name} = `{value}`"));
        let add = add.iter().map(|(name, value)| format!("{name} also `{value}`"));
        let remove = remove.iter().map(|name| format!("no {name}"));
        f.write_str(&set.chain(add).chain(remove).collect::<Vec<_>>().join("; "))
    }
}

/// The rewrite of requests in the caller's sidecar.
///
/// Invariant: at least one of both is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    /// The new path. The query stays.
    pub path: Option<PathChange>,
    /// The new host, with or without a port.
    pub host: Option<Arc<str>>,
}

impl fmt::Display for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, host } = self;
        let path = path.as_ref().map(|path| format!("path {path}"));
        let host = host.as_ref().map(|host| format!("host `{host}`"));
        f.write_str(&path.into_iter().chain(host).collect::<Vec<_>>().join("; "))
    }
}

/// The change of a path without its query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathChange {
    /// Replaces the whole path.
    Whole(Arc<str>),
    /// Replaces the leading segments. Neither ends in a slash; the empty text means no segment.
    Prefix {
        /// The segments to replace.
        from: Arc<str>,
        /// The new segments.
        to: Arc<str>,
    },
    /// Replaces what an expression matches at the start.
    Regex {
        /// The expression.
        expression: Arc<str>,
        /// The replacement. `\1` is the match of the first group, `\0` the whole match, `\\` a backslash.
        substitution: Arc<str>,
    },
}

impl PathChange {
    /// The expression for the replaced part. It matches at most once in a path.
    pub fn expression(&self) -> String {
        match self {
            Self::Whole(_) => "^(?s:.*)".to_owned(),
            Self::Prefix { from, to } if to.is_empty() => {
                format!("^{}(?:/|$)", regex::escape(from))
            }
            Self::Prefix { from, .. } => format!("^{}(/|$)", regex::escape(from)),
            Self::Regex { expression, .. } => format!("^(?:{expression})"),
        }
    }

    /// The replacement in RE2's syntax: `\1` is the match of the first group.
    pub fn substitution(&self) -> String {
        match self {
            Self::Whole(path) => path.replace('\\', r"\\"),
            // Paths begin with a slash, whatever follows.
            Self::Prefix { to, .. } if to.is_empty() => "/".to_owned(),
            Self::Prefix { to, .. } => format!(r"{}\1", to.replace('\\', r"\\")),
            Self::Regex { substitution, .. } => substitution.to_string(),
        }
    }

    /// The changed `path`, which has no query.
    pub fn applied(&self, path: &str) -> String {
        let expression = RegexBuilder::new(&self.expression()).unicode(false).build().ok();
        let found = expression.as_ref().and_then(|one| one.captures(path.as_bytes()));
        let Some(found) = found else { return path.to_owned() };
        let group = |number| found.get(number).map_or(&b""[..], |group| group.as_bytes());
        let mut made = Vec::new();
        let substitution = self.substitution();
        let mut bytes = substitution.bytes();
        while let Some(byte) = bytes.next() {
            match (byte, if byte == b'\\' { bytes.next() } else { None }) {
                (_, Some(digit)) if digit.is_ascii_digit() => {
                    made.extend_from_slice(group(usize::from(digit - b'0')));
                }
                (_, Some(other)) => made.push(other),
                (byte, None) => made.push(byte),
            }
        }
        let end = found.get(0).map_or(0, |whole| whole.end());
        made.extend_from_slice(path.as_bytes().get(end..).unwrap_or_default());
        String::from_utf8_lossy(&made).into_owned()
    }
}

impl fmt::Display for PathChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = |text: &Arc<str>| if text.is_empty() { "/".into() } else { Arc::clone(text) };
        match self {
            Self::Whole(path) => write!(f, "`{path}`"),
            Self::Prefix { from, to } => write!(f, "`{}` → `{}`", slash(from), slash(to)),
            Self::Regex { expression, substitution } => {
                write!(f, "`{expression}` → `{substitution}`")
            }
        }
    }
}

/// A redirect, which the caller's sidecar answers.
///
/// Invariant: at least one part of the target is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The status of the response, of [`Redirect::STATUSES`].
    pub status: u16,
    /// The new scheme, `http` or `https`.
    pub scheme: Option<&'static str>,
    /// The new host, without a port.
    pub host: Option<Arc<str>>,
    /// The new port.
    pub port: Option<u16>,
    /// The new path.
    pub path: Option<PathChange>,
}

impl Redirect {
    /// The valid statuses.
    pub const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];

    /// The valid schemes.
    pub const SCHEMES: [&str; 2] = ["http", "https"];
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, scheme, host, port, path } = self;
        let to = [
            scheme.map(|scheme| format!("scheme `{scheme}`")),
            host.as_ref().map(|host| format!("host `{host}`")),
            port.map(|port| format!("port {port}")),
            path.as_ref().map(|path| format!("path {path}")),
        ];
        write!(f, "{status} to {}", to.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(from: &str, to: &str) -> PathChange {
        PathChange::Prefix { from: from.into(), to: to.into() }
    }

    fn regex(expression: &str, substitution: &str) -> PathChange {
        PathChange::Regex { expression: expression.into(), substitution: substitution.into() }
    }

    #[test]
    fn prefix_rewrite_matches_whole_path_segments() {
        for (change, path, made) in [
            (prefix("/a", "/b"), "/a", "/b"),
            (prefix("/a", "/b"), "/a/", "/b/"),
            (prefix("/a", "/b"), "/a/x/a", "/b/x/a"),
            (prefix("/a", "/b"), "/ab", "/ab"),
            (prefix("/a", "/b"), "/x/a", "/x/a"),
            (prefix("/a", ""), "/a", "/"),
            (prefix("/a", ""), "/a/", "/"),
            (prefix("/a", ""), "/a/x", "/x"),
            (prefix("", "/b"), "/", "/b/"),
            (prefix("", "/b"), "/x", "/b/x"),
            (prefix("/a.c", r"/1\1"), "/a.c/x", r"/1\1/x"),
            (prefix("/a.c", "/b"), "/abc", "/abc"),
        ] {
            assert_eq!(change.applied(path), made, "{change} of {path}");
        }
    }

    #[test]
    fn regex_rewrite_replaces_once_at_the_beginning_of_the_path() {
        for (change, path, made) in [
            (regex("/v1/", "/v2/"), "/v1/v1/x", "/v2/v1/x"),
            (regex("/v1/", "/v2/"), "/x/v1/", "/x/v1/"),
            (regex("/([^/]+)/v([0-9])", r"/\2/\1"), "/shop/v1/x", "/1/shop/x"),
            (regex("/a|/b", "/c"), "/b/x", "/c/x"),
            (regex("/(a)?(b)?", r"/\1-\2"), "/bx", "/-bx"),
            (regex("", "/v1"), "/x", "/v1/x"),
            (regex("/a", r"/\\\0"), "/a/x", r"/\/a/x"),
        ] {
            assert_eq!(change.applied(path), made, "{change} of {path}");
        }
        assert_eq!(PathChange::Whole("/x".into()).applied("/a/b"), "/x");
    }
}
