//! The lines of `ironmesh events`, except for entries of the journal.

use ironmesh_api::{
    ChangedProxies, EventKind, FindingChange, FindingsEvent, LaggedEvent, PolicyEvent,
    ProvidersEvent, ProxiesEvent, ReadinessEvent, ReceivedEvent, ResetEvent,
};
use ironmesh_catalog::text::escape_line;
use serde::de::DeserializeOwned;

/// The line of an event. Of a kind that this version does not know, it has the content as JSON.
pub fn event_line(event: &ReceivedEvent) -> String {
    let text = text(event).unwrap_or_else(|| event.data.to_string());
    format!("{:<9}  {}\n", escape_line(&event.event), escape_line(&text))
}

fn text(event: &ReceivedEvent) -> Option<String> {
    let is = |kind: EventKind| event.event == kind.word();
    if is(EventKind::Reset) {
        let ResetEvent { read_again } = content(event)?;
        return Some(format!("changes follow; what was observed before: {}", read_again.join(" ")));
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
        return content(event).map(|event| findings(&event));
    }
    if is(EventKind::Proxies) {
        return content(event).map(|event| proxies(&event));
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

fn findings(event: &FindingsEvent) -> String {
    let FindingsEvent { errors, warnings, silenced, .. } = event;
    let mut parts = vec![format!("errors {errors}, warnings {warnings}, silenced {silenced}")];
    let mut add = |word: &str, list: &[FindingChange], count: usize| {
        let names = list.iter().map(|finding| {
            let objects = finding.objects.iter().map(ToString::to_string);
            std::iter::once(finding.code.clone()).chain(objects).collect::<Vec<_>>().join(" ")
        });
        parts.extend((count > 0).then(|| few(word, names, count)));
    };
    add("active", &event.changed, event.changed_count);
    add("cleared", &event.cleared, event.cleared_count);
    parts.join("; ")
}

fn proxies(event: &ProxiesEvent) -> String {
    let list = |word: &str, proxies: &ChangedProxies| {
        let ids = proxies.ids.iter().map(ToString::to_string);
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

    fn line(event: &str, data: serde_json::Value) -> String {
        event_line(&ReceivedEvent { id: None, event: event.to_owned(), data })
    }

    #[test]
    fn each_kind_has_a_line() {
        assert_eq!(line("readiness", json!({"ready": true})), "readiness  ready\n");
        assert_eq!(line("policy", json!({"revision": "1a"})), "policy     active revision: 1a\n");
        let changed = json!([{"provider": "consul", "state": "stale"}]);
        assert_eq!(line("providers", json!({ "changed": changed })), "providers  consul stale\n");
        let id = "0a1b2c3d-0000-4000-8000-000000000001";
        let none = json!({"count": 0, "ids": []});
        let five = json!({"count": 5, "ids": [id]});
        let proxies =
            json!({"disconnected": five, "reconnected": none, "synced": none, "updating": 2});
        assert_eq!(
            line("proxies", proxies),
            format!("proxies    disconnected: {id} and 4 more; updating 2\n")
        );
        let finding = json!({
            "code": "IM0726", "severity": "error", "objects": [format!("proxy:{id}")], "silenced": false,
        });
        let findings = json!({
            "errors": 1, "warnings": 0, "silenced": 0, "changed": [finding], "changed_count": 1,
            "cleared": [], "cleared_count": 0,
        });
        assert_eq!(
            line("findings", findings),
            format!("findings   errors 1, warnings 0, silenced 0; active: IM0726 proxy:{id}\n")
        );
        let unknown = line("x", json!({"a": "\n\u{1b}"}));
        assert_eq!(unknown, "x          {\"a\":\"\\n\\u001b\"}\n");
    }
}
