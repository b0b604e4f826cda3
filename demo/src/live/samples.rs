//! Sample facts for the tests of this module.

use std::path::PathBuf;

use jiff::Zoned;
use jiff::civil::date;
use jiff::tz::TimeZone;

use super::facts::{DemoSetup, Facts, RepeatedCall};
use crate::control_plane::{FindingView, PolicyView};
use crate::program::DemoEnvoyVersion;
use crate::tally::{Count, Outcome};

pub(super) fn noon() -> Zoned {
    date(2026, 11, 21).at(12, 0, 0, 0).to_zoned(TimeZone::UTC).unwrap()
}

pub(super) fn setup() -> DemoSetup {
    DemoSetup {
        policy_folder: PathBuf::from("/tmp/ironmesh-demo-abcdef/policy"),
        admin: "127.42.0.1:15014".parse().unwrap(),
        envoy: DemoEnvoyVersion { major: 1, minor: 40, patch: 0 },
    }
}

pub(super) fn facts() -> Facts {
    let call = |from, to, request| RepeatedCall { from, to, request };
    let count = |ok, denied, last| Count { ok, denied, failed: 0, per_second: 5, last: Some(last) };
    Facts {
        // As many rows as in the demo: the least size of a picture depends on their number.
        rows: vec![
            (call("bookbuyer", "bookstore", "GET /books/N"), count(500, 0, Outcome::Status(200))),
            (call("bookthief", "bookstore", "GET /"), count(50, 0, Outcome::Status(200))),
            (call("bookthief", "bookstore", "GET /books/1"), count(0, 50, Outcome::Status(403))),
            (call("bookthief", "bookwarehouse", "TCP connect"), count(0, 9, Outcome::Refused)),
            (call("bookstore-v1", "bookwarehouse", "TCP sale"), count(450, 0, Outcome::Recorded)),
            (call("bookstore-v2", "bookwarehouse", "TCP sale"), count(50, 0, Outcome::Recorded)),
        ],
        second: Some(0.1),
        policy: PolicyView { revision: Some("4b4a36bdada3".to_owned()), ..PolicyView::default() },
        silent: None,
    }
}

pub(super) fn finding() -> FindingView {
    FindingView {
        code: "IM0201".to_owned(),
        severity: "error".to_owned(),
        message: "no service runs as `bookbyer`".to_owned(),
        file: Some("buyers.toml".to_owned()),
        line: Some(20),
    }
}
