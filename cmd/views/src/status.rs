//! The status of the mesh: its problems first, then a summary.

mod handshakes;
mod policy;
mod silenced;
mod stale;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ironmesh_api::{AuditView, DeniedView, FindingView, OthersView, ProxyView, Readiness};
use ironmesh_catalog::{ServiceName, ServicePort, codes};
use jiff::Timestamp;

use crate::cordons;
use crate::findings::{details, headline, silence_text};
use crate::proxies::state_text;
use silenced::Silenced;

/// The most proxies, or addresses, that one message names.
const NAMED: usize = 5;

/// The problems of the mesh, and what is worth a note.
#[derive(Debug)]
pub struct Status {
    /// The problems, most urgent first. Each is a sentence, followed by lines that say what to do.
    pub wrong: Vec<String>,
    /// What is no problem yet, or none at all.
    pub notes: Vec<String>,
    /// The findings that silences take out of the problems.
    silenced: Silenced,
}

impl Status {
    /// Finds what is wrong. `findings` are all active ones, whose silences count, and `connection` is the problem of the
    /// connection to the control plane, if it has one.
    pub fn new(
        readiness: &Readiness,
        proxies: &[ProxyView],
        audit: &AuditView,
        findings: &[FindingView],
        connection: Option<String>,
        now: Timestamp,
    ) -> Self {
        let silenced = Silenced::among(findings);
        let mut wrong = wrong(readiness, proxies, audit, &silenced);
        wrong.extend(connection);
        let is_shown = |proxy: &&ProxyView| !silenced.hides(codes::PROXY_STALE, proxy.record.id);
        let (stale, becoming_stale) = stale::stale(proxies.iter().filter(is_shown), now);
        wrong.extend(stale);
        let (cut_off, failed) = handshakes::failed(&readiness.handshakes, proxies, &silenced);
        wrong.extend(cut_off);
        let is_note =
            |finding: &&FindingView| finding.code == codes::PLAINTEXT_PROVIDER.to_string();
        let shown = readiness.findings.iter().filter(|finding| !finding.is_hidden());
        let noted = shown.filter(is_note).map(finding_text);
        let notes = policy::rolled_back(&readiness.policy)
            .into_iter()
            .chain(cordons::note(proxies))
            .chain(reconnecting(proxies))
            .chain(becoming_stale)
            .chain(noted)
            .chain(failed)
            .collect();
        Self { wrong, notes, silenced }
    }

    /// The problems first, then a summary.
    pub fn text(&self, readiness: &Readiness, proxies: &[ProxyView]) -> String {
        text(self, readiness, proxies)
    }
}

/// The problems, most urgent first. Each is a sentence, followed by lines that say what to do.
fn wrong(
    readiness: &Readiness,
    proxies: &[ProxyView],
    audit: &AuditView,
    silenced: &Silenced,
) -> Vec<String> {
    let mut wrong = Vec::new();
    if !readiness.ready {
        wrong.push(format!(
            "the control plane is not ready and serves no xDS; it waits for:\n{}{}",
            readiness.waiting_for.join("\n"),
            silenced.of_outage(codes::NOT_READY)
        ));
    }
    let policy = &readiness.policy;
    if !silenced.hides_code(codes::POLICY_NOT_ACTIVE) {
        wrong.extend(policy::wrong(policy));
    }
    let of_mesh = readiness.findings.iter().chain(&policy.findings);
    wrong.extend(of_mesh.filter(|finding| is_wrong(finding)).map(finding_text));
    // Operators switch drained machines off on purpose, and their callers have left.
    let is_disconnected = |proxy: &&ProxyView| {
        proxy.is_disconnected() && !silenced.hides(codes::PROXY_DISCONNECTED, proxy.record.id)
    };
    let disconnected: Vec<_> = proxies.iter().filter(is_disconnected).collect();
    if !disconnected.is_empty() {
        wrong.push(disconnected_proxies(&disconnected));
    }
    let is_nacking = |proxy: &&ProxyView| {
        !proxy.nacks.is_empty() && !silenced.hides(codes::RESOURCES_NACKED, proxy.record.id)
    };
    for proxy in proxies.iter().filter(is_nacking) {
        wrong.push(format!(
            "proxy {} NACKs {}\n`ironmesh proxy list` shows each NACK with its reason",
            proxy.record.name,
            counted(length(&proxy.nacks), "resource", "resources")
        ));
    }
    let of_proxies = proxies.iter().flat_map(|proxy| &proxy.findings);
    // (Those about copied certificates are findings of the mesh, too.)
    let is_new =
        |finding: &&FindingView| finding.is_error() && !readiness.findings.contains(finding);
    let shown = of_proxies.filter(|finding| !finding.is_hidden());
    wrong.extend(shown.filter(is_new).map(finding_text));
    let is_shown = |service: &ServiceName, port: u16| {
        let port = ServicePort::new(service.clone(), port);
        !silenced.hides(codes::STRICT_WOULD_DENY, &port)
    };
    let denied = audit.denied.iter().filter(|denied| is_shown(&denied.service, denied.port));
    wrong.extend(denied.map(would_be_denied));
    let others = audit.others.iter().filter(|others| is_shown(&others.service, others.port));
    wrong.extend(others.map(|others| {
        let OthersView { service, port, count, .. } = others;
        let calls = counted(*count, "call", "calls");
        format!(
            "strict would deny {calls} of further callers on `{service}|{port}`; the audit list is full, so they are \
             not named"
        )
    }));
    wrong
}

/// Whether a finding is a problem that no silence hides.
fn is_wrong(finding: &FindingView) -> bool {
    finding.is_problem() && !finding.is_hidden()
}

fn finding_text(finding: &FindingView) -> String {
    let mut text = headline(finding);
    if let (Some(file), Some(line)) = (&finding.place.file, finding.place.line) {
        let _ = write!(text, "\nat {file}:{line}");
    }
    if let Some(help) = &finding.help {
        let _ = write!(text, "\n{help}");
    }
    if let Some(silence) = &finding.silenced {
        let _ = write!(text, "\n{}; an outage stays a problem", silence_text(silence));
    }
    text
}

/// The problem text for a caller that strict mode would deny.
fn would_be_denied(denied: &DeniedView) -> String {
    let DeniedView { caller, service, port, count, .. } = denied;
    let is_tcp = denied.requests.is_empty();
    let what = if is_tcp {
        counted(*count, "connection", "connections")
    } else {
        counted(*count, "request", "requests")
    };
    let last = denied.last_seen;
    let mut text = format!(
        "strict would deny `{caller}` on `{service}|{port}`: {what}, the last at {last:.0}"
    );
    for request in &denied.requests {
        let _ = write!(text, "\n{} {} ({})", request.method, request.example, request.count);
    }
    let kind = if is_tcp { "TCPRoute" } else { "HTTPRouteGroup" };
    let _ = write!(
        text,
        "\nto allow it, add a traffic target with the source `{caller}` and a rule of kind `{kind}`"
    );
    text
}

/// The problem text for proxies without an xDS stream: address, time of the loss, and whether callers still use
/// them.
fn disconnected_proxies(proxies: &[&ProxyView]) -> String {
    let mut text = counted(length(proxies), "proxy is disconnected", "proxies are disconnected");
    for proxy in proxies.iter().take(NAMED) {
        let services: Vec<_> = proxy.record.services.iter().map(ToString::to_string).collect();
        let (name, address) = (&proxy.record.name, proxy.record.mesh_address);
        let _ = write!(text, "\n{name} ({}) at {address}", services.join(", "));
        if let Some(since) = proxy.disconnected_since {
            let _ = write!(text, " since {since:.0}");
        }
        text.push_str(if proxy.called { ": still receives calls" } else { ": receives no calls" });
    }
    if proxies.len() > NAMED {
        let _ = write!(text, "\nand {} more", proxies.len() - NAMED);
    }
    text.push_str(
        "\ncheck its machine and its Envoy; revoke a proxy that will not return (`ironmesh proxy revoke`)",
    );
    text
}

/// The note about proxies that may still reconnect after a start of the control plane.
fn reconnecting(proxies: &[ProxyView]) -> Option<String> {
    let count = proxies.iter().filter(|proxy| proxy.state == "reconnecting").count();
    let all = u64::try_from(count).unwrap_or(u64::MAX);
    let proxies = counted(all, "proxy", "proxies");
    (count > 0).then(|| {
        format!(
            "waiting for {proxies} to reconnect: the control plane started less than a minute ago"
        )
    })
}

/// The number of proxies in each state, by the state's JSON value.
pub fn by_state(proxies: &[ProxyView]) -> BTreeMap<&str, usize> {
    let mut states = BTreeMap::new();
    for proxy in proxies {
        *states.entry(&*proxy.state).or_default() += 1;
    }
    states
}

fn text(status: &Status, readiness: &Readiness, proxies: &[ProxyView]) -> String {
    let Status { wrong, notes, silenced } = status;
    let mut text = String::new();
    let wrong = wrong.iter().map(|one| ("wrong", one));
    for (word, one) in wrong.chain(notes.iter().map(|one| ("note", one))) {
        let mut lines = one.lines();
        let _ = writeln!(text, "{word}: {}", lines.next().unwrap_or_default());
        for line in lines {
            let _ = writeln!(text, "{:1$}  {line}", "", word.len());
        }
    }
    let warnings = readiness.findings.iter().chain(&readiness.policy.findings);
    for warning in warnings.filter(|finding| !finding.is_problem() && !finding.is_hidden()) {
        let _ = writeln!(text, "{}", headline(warning));
        for line in details(warning) {
            let _ = writeln!(text, "  {line}");
        }
    }
    text.push_str(&silenced.lines());
    if !text.is_empty() {
        text.push('\n');
    }
    let state = if readiness.ready { "ready" } else { "not ready" };
    let _ = writeln!(text, "control plane  {state}");
    let peers = readiness.peers.iter().map(|peer| format!("{} ({})", peer.host, peer.version));
    if !readiness.peers.is_empty() {
        let _ = writeln!(text, "peers          {}", peers.collect::<Vec<_>>().join(", "));
    }
    let policy = &readiness.policy;
    let revision = policy.revision.as_deref().unwrap_or("none");
    let from = if policy.rolled_back.is_none() {
        format!("from `{}`", policy.source)
    } else {
        format!("instead of the content of `{}`", policy.source)
    };
    let _ = writeln!(text, "policy         revision {revision}, {from}");
    let states: Vec<_> = by_state(proxies)
        .iter()
        .map(|(state, count)| format!("{count} {}", state_text(state)))
        .collect();
    let states = if states.is_empty() { "none".to_owned() } else { states.join(", ") };
    let _ = writeln!(text, "proxies        {states}");
    text.push_str(&silenced.summary());
    text
}

fn counted(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

fn length<T>(list: &[T]) -> u64 {
    u64::try_from(list.len()).unwrap_or(u64::MAX)
}
