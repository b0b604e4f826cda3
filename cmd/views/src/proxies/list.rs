//! The table of proxies, in 80 columns or wide.

use std::fmt::Write as _;

use ironmesh_api::{ProxyPage, ProxyView, SyncState, SyncView};
use ironmesh_catalog::ServiceName;
use ironmesh_catalog::text::escape_line;
use jiff::Timestamp;

use super::{write_leave, write_problems, write_revocation};
use ironmesh_terminal::table::{CutAt, TERMINAL_WIDTH, age, aligned, fit};

const HEADINGS: [&str; 7] =
    ["NAME", "SERVICES", "ADDRESS", "ENVOY", "CONNECTED", "SYNC", "REVISION"];

const WIDE_HEADINGS: [&str; 10] = [
    "NAME",
    "ID",
    "SERVICES",
    "ADDRESS",
    "LOCALITY",
    "ENVOY",
    "CONNECTED",
    "STREAMS",
    "SYNC",
    "REVISION",
];

/// The columns that are cut in turn so that a row fits, with their least widths: services, name and address. The last
/// characters tell addresses of one network apart.
const CUT: [(usize, usize, CutAt); 5] = [
    (1, 10, CutAt::End),
    (0, 12, CutAt::End),
    (2, 15, CutAt::Middle),
    (1, 6, CutAt::End),
    (2, 12, CutAt::Middle),
];

/// The characters of a revision in the narrow table, as many as commands need to find it.
const SHORT_REVISION: usize = 8;

/// The table for a terminal.
pub fn narrow(page: &ProxyPage) -> String {
    table(page, HEADINGS, cells, Some(TERMINAL_WIDTH))
}

/// The table with all columns.
pub fn wide(page: &ProxyPage) -> String {
    table(page, WIDE_HEADINGS, wide_cells, None)
}

/// The table. Below the row of a proxy are its revocation, NACKs and findings.
fn table<const N: usize>(
    page: &ProxyPage,
    headings: [&str; N],
    cells: impl Fn(&ProxyView, Timestamp) -> [String; N],
    width: Option<usize>,
) -> String {
    let now = Timestamp::now();
    let mut rows = vec![headings.map(str::to_owned)];
    rows.extend(page.proxies.iter().map(|proxy| cells(proxy, now)));
    if let Some(width) = width {
        fit(&mut rows, width, &CUT);
    }
    let mut lines = aligned(&rows).into_iter();
    let mut text = lines.next().unwrap_or_default() + "\n";
    for (line, proxy) in lines.zip(&page.proxies) {
        text += &line;
        text.push('\n');
        write_revocation(&mut text, &proxy.record);
        write_leave(&mut text, proxy);
        write_problems(&mut text, proxy);
    }
    // (Writing to a string does not fail.)
    let _ = hidden(page).map(|note| writeln!(text, "{note}"));
    text
}

/// The note about the proxies beyond the limit.
pub fn hidden(page: &ProxyPage) -> Option<String> {
    let hidden = page.matching.saturating_sub(page.proxies.len());
    (hidden > 0)
        .then(|| format!("{hidden} more; raise --limit, or filter with --service and --state"))
}

fn cells(proxy: &ProxyView, now: Timestamp) -> [String; 7] {
    let record = &proxy.record;
    let services = match &record.services[..] {
        [] => String::new(),
        [only] => short_service(only),
        [first, others @ ..] => format!("{} +{}", short_service(first), others.len()),
    };
    [
        record.name.to_string(),
        services,
        record.mesh_address.ip().to_string(),
        envoy_version(proxy),
        connected(proxy, now),
        sync(proxy, now),
        revision(proxy).chars().take(SHORT_REVISION).collect(),
    ]
}

fn wide_cells(proxy: &ProxyView, now: Timestamp) -> [String; 10] {
    let record = &proxy.record;
    let services: Vec<_> = record.services.iter().map(ToString::to_string).collect();
    [
        record.name.to_string(),
        record.id.to_string(),
        services.join(","),
        record.mesh_address.to_string(),
        dash(record.locality.to_string()),
        envoy_version(proxy),
        connected(proxy, now),
        proxy.streams.to_string(),
        sync(proxy, now),
        revision(proxy),
    ]
}

/// A service, without the default namespace.
fn short_service(service: &ServiceName) -> String {
    let text = service.to_string();
    text.strip_prefix("default/").map(str::to_owned).unwrap_or(text)
}

fn envoy_version(proxy: &ProxyView) -> String {
    dash(
        proxy
            .envoy_version
            .as_deref()
            .map(|text| escape_line(text).into_owned())
            .unwrap_or_default(),
    )
}

/// How long the proxy has been connected, or why it is not.
fn connected(proxy: &ProxyView, now: Timestamp) -> String {
    match (&*proxy.state, proxy.connected_since, proxy.disconnected_since) {
        ("connected", Some(since), _) => age(since, now),
        ("connected", None, _) => "yes".to_owned(),
        ("disconnected", _, Some(since)) => format!("no, {}", age(since, now)),
        ("disconnected", ..) => "no".to_owned(),
        ("enrollment_expired", ..) => "expired".to_owned(),
        (state, ..) => state.to_owned(),
    }
}

/// The sync status of a connected proxy, in the words of `istioctl proxy-status`.
fn sync(proxy: &ProxyView, now: Timestamp) -> String {
    let Some(SyncView { state, since, .. }) = &proxy.sync else { return dash(String::new()) };
    let word = match state {
        SyncState::Synced => "SYNCED",
        SyncState::Updating => "STALE",
        SyncState::Nacked => "NACK",
        SyncState::Held => "HELD",
        SyncState::Disconnected | SyncState::Reconnecting => return dash(String::new()),
    };
    match since {
        Some(since) => format!("{word} {}", age(*since, now)),
        None => word.to_owned(),
    }
}

/// The newest revision of policy that the proxy has ACKed.
fn revision(proxy: &ProxyView) -> String {
    dash(proxy.sync.as_ref().and_then(|sync| sync.revision.clone()).unwrap_or_default())
}

fn dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests;
