//! Proxies: a table, the details of one, and what both show below a proxy.

mod detail;
mod list;

use std::fmt::Write as _;

use ironmesh_api::{JoinRecordView, NackView, OriginView, ProxyView};
use ironmesh_catalog::text::escape_line;

use crate::cordons::write_cordon;

pub use detail::proxy_text;
pub use list::{hidden, narrow, wide};

/// The state of a proxy for people, by its JSON value.
pub fn state_text(state: &str) -> &str {
    match state {
        "enrollment_expired" => "enrollment expired",
        other => other,
    }
}

/// Appends the revocation of a proxy, if it is revoked.
fn write_revocation(text: &mut String, record: &JoinRecordView) {
    if let Some(revocation) = &record.revoked {
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "  {revocation}");
    }
}

/// Appends since when a proxy leaves the mesh, and its cordon.
fn write_leave(text: &mut String, proxy: &ProxyView) {
    write_cordon(text, proxy);
    if let Some(since) = proxy.leaving_since {
        // (Writing to a string does not fail.)
        let _ =
            writeln!(text, "  leaves the mesh since {since:.0}: callers send it no new requests");
    }
}

/// Appends the NACKs of a proxy, the resources withheld from it, and its findings.
fn write_problems(text: &mut String, proxy: &ProxyView) {
    let mut write = |lines: String| text.push_str(&lines);
    for nack in &proxy.nacks {
        write(nacked(nack));
    }
    for nack in &proxy.withheld {
        write(withheld(nack));
    }
    for finding in &proxy.findings {
        write(format!("  {}[{}]: {}\n", finding.severity, finding.code, finding.message));
    }
}

/// A resource that the proxy NACKs, with Envoy's message.
pub fn nacked(nack: &NackView) -> String {
    let (name, message) = (escape_line(&nack.name), escape_line(nack.message.trim_end()));
    format!("  NACKs {} `{name}`: {message}\n{}", nack.resource_type, fallback(nack))
}

/// A resource that the control plane withholds because other proxies NACK it.
fn withheld(nack: &NackView) -> String {
    let (name, message) = (escape_line(&nack.name), escape_line(nack.message.trim_end()));
    format!(
        "  withheld: {} `{name}`,\n    which other proxies NACK and no proxy has ACKed: {message}\n{}",
        nack.resource_type,
        fallback(nack)
    )
}

/// What the proxy has instead of a NACKed resource, and the policy behind that resource.
fn fallback(nack: &NackView) -> String {
    let mut text = match &*nack.fallback {
        "closed" => "    until policy changes, the proxy denies all calls there\n",
        "narrowed" => {
            "    until policy changes, the proxy allows there only what the earlier policy allowed, too\n"
        },
        _ => "    the proxy keeps the version that it ACKed before, if any\n",
    }
    .to_owned();
    for origin in &nack.policy {
        let OriginView { object, file, line, column } = origin;
        let _ = writeln!(text, "    from {object} ({}:{line}:{column})", escape_line(file));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_nack_text_forges_no_lines_or_terminal_codes() {
        let hostile = "no\u{1b}[2J\n  NACKs nothing\u{202e}\n";
        let nack = NackView {
            resource_type: "Listener".to_owned(),
            name: hostile.to_owned(),
            version: "1".to_owned(),
            message: hostile.to_owned(),
            fallback: "last_good".to_owned(),
            policy: vec![OriginView {
                object: "service `a`".to_owned(),
                file: hostile.to_owned(),
                line: 1,
                column: 1,
            }],
        };
        for (text, lines) in [(nacked(&nack), 3), (withheld(&nack), 4)] {
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
            assert_eq!(text.lines().count(), lines, "{text}");
            assert!(text.contains(": no\\u001b[2J\\u000a  NACKs nothing\\u202e\n"), "{text}");
        }
    }
}
