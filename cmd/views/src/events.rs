//! The lines of `ironmesh events`, except for entries of the journal.

use std::collections::BTreeMap;

use ironmesh_api::{
    ChangedProxies, EventKind, FindingChange, FindingsEvent, LaggedEvent, PolicyEvent,
    ProvidersEvent, ProxiesEvent, ReadinessEvent, ReceivedEvent, ResetEvent,
};
use ironmesh_catalog::text::escape_line;
use ironmesh_catalog::{ObjectRef, ProxyId};
use serde::de::DeserializeOwned;

/// The names of proxies, as far as they are known.
pub type ProxyNames = BTreeMap<ProxyId, String>;

/// The line of an event, in the columns of the journal. Of a kind that this version does not know, it has the content as
/// JSON.
pub fn event_line(event: &ReceivedEvent, names: &ProxyNames) -> String {
    let text = text(event, names).unwrap_or_else(|| event.data.to_string());
    let at = event.at().map_or_else(|| "-".to_owned(), |at| format!("{at:.0}"));
    format!("{at:<20}  {:<13}  {:<11}  {}\n", "-", escape_line(&event.event), escape_line(&text))
}

/// The proxies that the line of an event names.
pub fn named_proxies(event: &ReceivedEvent) -> Vec<ProxyId> {
    if let Some(ProxiesEvent { disconnected, reconnected, synced, .. }) = content(event) {
        let lists = [disconnected, reconnected, synced];
        return lists.into_iter().flat_map(|list| list.ids.into_iter().take(NAMED)).collect();
    }
    let Some(FindingsEvent { changed, cleared, .. }) = content(event) else { return Vec::new() };
    let findings = [changed, cleared].into_iter().flat_map(|list| list.into_iter().take(NAMED));
    let objects = findings.flat_map(|finding| finding.objects);
    let proxies = objects.filter_map(|object| match object {
        ObjectRef::Proxy(id) => Some(id),
        _ => None,
    });
    proxies.take(NAMED * NAMED).collect()
}

fn text(event: &ReceivedEvent, names: &ProxyNames) -> Option<String> {
    let is = |kind: EventKind| event.event == kind.word();
    if is(EventKind::Reset) {
        let ResetEvent { read_again } = content(event)?;
        let is_other_journal = read_again.iter().any(|path| path == "/v1/journal");
        return Some(if is_other_journal { OTHER_JOURNAL } else { BEGIN }.to_owned());
    }
    if is(EventKind::Lagged) {
        let LaggedEvent { message } = content(event)?;
        return Some(message);
    }
    if is(EventKind::Readiness) {
        let ReadinessEvent { ready } = content(event)?;
        return Some(if ready { "ready" } else { "not ready" }.to_owned());
    }
    if is(EventKind::Policy) {
        let PolicyEvent { revision } = content(event)?;
        return Some(format!("active revision: {}", revision.as_deref().unwrap_or("none")));
    }
    if is(EventKind::Findings) {
        return content(event).map(|event| findings(&event, names));
    }
    if is(EventKind::Proxies) {
        return content(event).map(|event| proxies(&event, names));
    }
    if is(EventKind::Providers) {
        let ProvidersEvent { changed } = content(event)?;
        let changed: Vec<_> =
            changed.iter().map(|one| format!("{} {}", one.provider, one.state.as_str())).collect();
        return Some(changed.join(", "));
    }
    None
}

fn content<T: DeserializeOwned>(event: &ReceivedEvent) -> Option<T> {
    serde_json::from_value(event.data.clone()).ok()
}

/// The text of `reset`.
const BEGIN: &str = "all later changes follow; `ironmesh status` and `ironmesh finding list` show the state before them";
const OTHER_JOURNAL: &str = "all later changes follow; the journal is a different one: `ironmesh journal` shows its entries before them";

fn findings(event: &FindingsEvent, known: &ProxyNames) -> String {
    let FindingsEvent { errors, warnings, silenced, .. } = event;
    let mut parts = vec![format!("errors {errors}, warnings {warnings}, silenced {silenced}")];
    let mut add = |word: &str, list: &[FindingChange], count: usize| {
        let names = list.iter().map(|finding| {
            let objects = finding.objects.iter().map(|object| match object {
                ObjectRef::Proxy(id) => format!("proxy:{}", name(*id, known)),
                other => other.to_string(),
            });
            std::iter::once(finding.code.clone()).chain(objects).collect::<Vec<_>>().join(" ")
        });
        parts.extend((count > 0).then(|| few(word, names, count)));
    };
    add("active", &event.changed, event.changed_count);
    add("cleared", &event.cleared, event.cleared_count);
    parts.join("; ")
}

/// The name of a proxy; its id if the name is not known.
fn name(id: ProxyId, known: &ProxyNames) -> String {
    known.get(&id).cloned().unwrap_or_else(|| id.to_string())
}

fn proxies(event: &ProxiesEvent, known: &ProxyNames) -> String {
    let list = |word: &str, proxies: &ChangedProxies| {
        let ids = proxies.ids.iter().map(|&id| name(id, known));
        (proxies.count > 0).then(|| few(word, ids, proxies.count))
    };
    let lists = [
        list("disconnected", &event.disconnected),
        list("reconnected", &event.reconnected),
        list("synced", &event.synced),
    ];
    let mut parts: Vec<_> = lists.into_iter().flatten().collect();
    parts.push(format!("updating {}", event.updating));
    parts.join("; ")
}

/// How many names a line has.
const NAMED: usize = 3;

fn few(word: &str, names: impl Iterator<Item = String>, count: usize) -> String {
    let named: Vec<_> = names.take(NAMED).collect();
    let more = count.saturating_sub(named.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{word}: {}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "0a1b2c3d-0000-4000-8000-000000000001";

    fn line(event: &str, data: serde_json::Value) -> String {
        let event = ReceivedEvent { id: None, event: event.to_owned(), data };
        let names = named_proxies(&event).into_iter().map(|id| (id, "store-1".to_owned()));
        event_line(&event, &names.collect())
    }

    #[test]
    fn each_kind_has_a_line() {
        let start = "-                     -              ";
        assert_eq!(
            line("readiness", json!({"at": "2026-11-23T12:00:00.5Z", "ready": true})),
            "2026-11-23T12:00:00Z  -              readiness    ready\n"
        );
        let policy = line("policy", json!({"revision": "1a"}));
        assert_eq!(policy, format!("{start}policy       active revision: 1a\n"));
        let changed = json!([{"provider": "consul", "state": "stale"}]);
        let providers = line("providers", json!({ "changed": changed }));
        assert_eq!(providers, format!("{start}providers    consul stale\n"));
        let none = json!({"count": 0, "ids": []});
        let five = json!({"count": 5, "ids": [ID]});
        let proxies =
            json!({"disconnected": five, "reconnected": none, "synced": none, "updating": 2});
        assert_eq!(
            line("proxies", proxies),
            format!("{start}proxies      disconnected: store-1 and 4 more; updating 2\n")
        );
        let finding = json!({
            "code": "IM0726", "severity": "error", "objects": [format!("proxy:{ID}")], "silenced": false,
        });
        let findings = json!({
            "errors": 1, "warnings": 0, "silenced": 0, "changed": [finding], "changed_count": 1,
            "cleared": [], "cleared_count": 0,
        });
        assert_eq!(
            line("findings", findings),
            format!(
                "{start}findings     errors 1, warnings 0, silenced 0; active: IM0726 proxy:store-1\n"
            )
        );
        for (path, words) in
            [("/readyz", "`ironmesh status`"), ("/v1/journal", "`ironmesh journal`")]
        {
            let text = line("reset", json!({ "read_again": [path] }));
            assert!(text.contains("all later changes follow") && text.contains(words), "{text}");
        }
        let unknown = line("x", json!({"a": "\n\u{1b}"}));
        assert_eq!(unknown, format!("{start}x            {{\"a\":\"\\n\\u001b\"}}\n"));
    }
}
