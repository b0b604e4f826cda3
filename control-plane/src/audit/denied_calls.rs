//! The denied calls of one caller to one service port.

use std::collections::BTreeMap;

use ironmesh_api::{DeniedRequest, DeniedView};
use ironmesh_xds_wire::{LoggedCall, LoggedRequest};
use jiff::{SignedDuration, Timestamp};

use super::CallPair;

/// How long a denial is kept after it was reported last.
pub(super) const RETENTION: SignedDuration = SignedDuration::from_hours(24);

/// The most kinds of requests that are distinguished for one caller.
pub(super) const MAX_KINDS: usize = 8;

/// The part of a path that distinguishes kinds, in segments and in bytes; and the bytes of an example.
const SEGMENTS: usize = 2;
const KIND_LENGTH: usize = 64;
const EXAMPLE_LENGTH: usize = 256;

/// The denied calls of one caller.
#[derive(Debug, Clone)]
pub(super) struct DeniedCalls {
    pub(super) count: u64,
    first: Timestamp,
    pub(super) last: Timestamp,
    /// The kinds of requests, by method and beginning of the path; none for TCP.
    kinds: BTreeMap<(String, String), Kind>,
}

/// Requests of one method, with paths that begin alike.
#[derive(Debug, Clone)]
struct Kind {
    example: String,
    count: u64,
    first: Timestamp,
    last: Timestamp,
}

impl DeniedCalls {
    /// The calls of one message.
    pub(super) fn of(calls: &[&LoggedCall], at: Timestamp) -> Self {
        let mut seen = Self { count: 0, first: at, last: at, kinds: BTreeMap::new() };
        for call in calls {
            seen.count += 1;
            if let Some(request) = &call.request {
                seen.add_request(request, at);
            }
        }
        seen
    }

    /// Adds calls that were reported later.
    pub(super) fn add(&mut self, later: Self) {
        self.count += later.count;
        self.last = self.last.max(later.last);
        for (key, kind) in later.kinds {
            if let Some(known) = self.kinds.get_mut(&key) {
                known.count += kind.count;
                known.last = known.last.max(kind.last);
                known.example = kind.example;
            } else if self.kinds.len() < MAX_KINDS {
                self.kinds.insert(key, kind);
            }
        }
    }

    pub(super) fn is_of_http(&self) -> bool {
        !self.kinds.is_empty()
    }

    fn add_request(&mut self, request: &LoggedRequest, at: Timestamp) {
        let path = request.path.split('?').next().unwrap_or_default();
        let key = (request.method.unwrap_or("OTHER").to_owned(), beginning(path));
        // The total includes the others.
        if self.kinds.len() >= MAX_KINDS && !self.kinds.contains_key(&key) {
            return;
        }
        let new = || Kind { example: String::new(), count: 0, first: at, last: at };
        let kind = self.kinds.entry(key).or_insert_with(new);
        kind.count += 1;
        kind.last = kind.last.max(at);
        kind.example = printable(path, EXAMPLE_LENGTH);
    }

    /// Forgets kinds that were not reported for long. Returns whether the whole entry is that old.
    pub(super) fn forget_old(&mut self, now: Timestamp) -> bool {
        self.kinds.retain(|_, kind| now.duration_since(kind.last) < RETENTION);
        now.duration_since(self.last) >= RETENTION
    }

    /// The view for the admin API.
    pub(super) fn view(&self, (caller, port): &CallPair) -> DeniedView {
        let requests = self.kinds.iter().map(|((method, beginning), kind)| DeniedRequest {
            method: method.clone(),
            path: beginning.clone(),
            example: kind.example.clone(),
            count: kind.count,
            first_seen: kind.first,
            last_seen: kind.last,
        });
        DeniedView {
            caller: caller.clone(),
            service: port.service.clone(),
            port: port.port,
            count: self.count,
            first_seen: self.first,
            last_seen: self.last,
            requests: requests.collect(),
        }
    }
}

/// The part of a path that distinguishes kinds: later segments often are identifiers, each of its own.
fn beginning(path: &str) -> String {
    let mut ends = path.match_indices('/').map(|(at, _)| at).skip(SEGMENTS);
    let cut = ends.next().map_or(path, |end| path.get(..=end).unwrap_or(path));
    printable(cut, KIND_LENGTH)
}

/// At most `length` bytes of a text, without control characters, which a terminal would obey.
fn printable(text: &str, length: usize) -> String {
    let end = (0..=length).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text.get(..end).unwrap_or_default().replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_truncated_after_its_second_segment() {
        for (path, expected) in [
            ("/", "/"),
            ("/books", "/books"),
            ("/books/1", "/books/1"),
            ("/books/1/pages/2", "/books/1/"),
            ("/a\u{1b}[31m/b", "/a?[31m/b"),
            ("*", "*"),
        ] {
            assert_eq!(beginning(path), expected);
        }
        assert_eq!(beginning(&"/ü".repeat(100)).len(), "/ü/ü/".len());
        assert_eq!(beginning(&format!("/{}", "ü".repeat(100))).len(), KIND_LENGTH - 1);
    }
}
