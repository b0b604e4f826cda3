//! The table of `ironmesh cert list`, in 80 columns or wide.

use ironmesh_api::CertificateView;
use jiff::Timestamp;

use ironmesh_terminal::table::{CutAt, TERMINAL_WIDTH, age, aligned, fit, relative};

const HEADINGS: [&str; 9] =
    ["KIND", "NAME", "STATE", "AGE", "EXPIRES", "USED BY", "RENEWAL", "SERIAL", "SUBJECT"];

/// The columns that are cut in turn so that a row fits, with their least widths: use and name. The names of authorities
/// end with what tells them apart.
const CUT: [(usize, usize, CutAt); 4] =
    [(5, 22, CutAt::End), (1, 16, CutAt::Middle), (5, 12, CutAt::End), (1, 10, CutAt::Middle)];

/// The table for a terminal: the first six columns.
pub fn narrow(certificates: &[CertificateView], now: Timestamp) -> String {
    let rows = rows(certificates, now).into_iter();
    let rows = rows.map(|[kind, name, state, age, expires, used_by, ..]| {
        [kind, name, state, age, expires, used_by]
    });
    let mut rows: Vec<_> = rows.collect();
    fit(&mut rows, TERMINAL_WIDTH, &CUT);
    aligned(&rows).join("\n") + "\n"
}

/// The table with all columns.
pub fn wide(certificates: &[CertificateView], now: Timestamp) -> String {
    aligned(&rows(certificates, now)).join("\n") + "\n"
}

fn rows(certificates: &[CertificateView], now: Timestamp) -> Vec<[String; 9]> {
    let dash = || "-".to_owned();
    let row = |one: &CertificateView| {
        [
            one.kind.to_string(),
            one.name.clone(),
            one.state_text(),
            one.issued_at.map_or_else(dash, |at| age(at, now)),
            relative(one.not_after, now),
            one.used_by.to_string(),
            one.renew_at.map_or_else(dash, |at| relative(at, now)),
            one.serial.clone().unwrap_or_else(dash),
            one.subject.clone(),
        ]
    };
    let headings = [HEADINGS.map(str::to_owned)];
    headings.into_iter().chain(certificates.iter().map(row)).collect()
}
