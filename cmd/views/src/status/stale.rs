//! Proxies that are connected and have not ACKed everything for long.

use std::fmt::Write as _;

use ironmesh_api::ProxyView;
use jiff::{SignedDuration, Timestamp};

use super::{NAMED, counted, length};
use ironmesh_terminal::table::age;

/// From this age on, a stale proxy is a note: an ACK takes milliseconds, and a rollout order holds for 15 s at most.
const NOTED: SignedDuration = SignedDuration::from_secs(20);

/// The problem and the note about stale proxies.
pub(super) fn stale<'a>(
    proxies: impl Iterator<Item = &'a ProxyView>,
    now: Timestamp,
) -> (Option<String>, Option<String>) {
    let aged: Vec<_> = proxies
        .filter_map(|proxy| Some((proxy, proxy.unacked_since()?)))
        .filter(|(_, since)| now.duration_since(*since) >= NOTED)
        .collect();
    let is_wrong = |since: &Timestamp| now.duration_since(*since) >= ProxyView::STALE_AFTER;
    let (wrong, noted): (Vec<_>, Vec<_>) = aged.into_iter().partition(|(_, since)| is_wrong(since));
    (text(&wrong, now), text(&noted, now))
}

fn text(stale: &[(&ProxyView, Timestamp)], now: Timestamp) -> Option<String> {
    if stale.is_empty() {
        return None;
    }
    let mut text = format!(
        "{} not ACKed everything",
        counted(length(stale), "connected proxy has", "connected proxies have")
    );
    for (proxy, since) in stale.iter().take(NAMED) {
        let acked = proxy.sync.as_ref().and_then(|sync| sync.revision.as_deref());
        let acked = acked.map(|revision| format!(", ACKed revision {revision}"));
        let (name, age) = (&proxy.record.name, age(*since, now));
        // (Writing to a string does not fail.)
        let _ = write!(text, "\n{name} for {age}{}", acked.unwrap_or_default());
    }
    if let Some(more) = stale.len().checked_sub(NAMED).filter(|more| *more > 0) {
        let _ = write!(text, "\nand {more} more");
    }
    text += "\n`ironmesh proxy show NAME` shows what was pushed to it and when; its Envoy may hang";
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn proxy(name: &str, state: &str, seconds: i64, now: Timestamp) -> ProxyView {
        let since = now.checked_sub(SignedDuration::from_secs(seconds)).unwrap();
        serde_json::from_value(json!({
            "id": "11112222-0000-4000-8000-000000000001",
            "name": name,
            "services": ["default/web"],
            "mesh_address": "10.0.0.1:15003",
            "enrolled_at": "2026-01-01T00:00:00Z",
            "certificate_expires_at": "2027-01-01T00:00:00Z",
            "claimed_at": null,
            "participation": [],
            "state": "connected",
            "streams": 1,
            "stream_addresses": [],
            "nacks": [],
            "withheld": [],
            "findings": [],
            "sync": { "state": state, "since": since, "revision": "0123456789ab" },
        }))
        .unwrap()
    }

    #[test]
    fn stale_proxy_is_a_note_and_then_a_problem() {
        let now = "2026-11-23T12:00:00Z".parse().unwrap();
        let proxies = [
            proxy("new", "updating", 3, now),
            proxy("slow", "updating", 30, now),
            proxy("hung", "updating", 300, now),
            proxy("nacks", "nacked", 300, now),
        ];
        let (wrong, noted) = stale(proxies.iter(), now);
        let wrong = wrong.unwrap();
        assert!(wrong.starts_with("1 connected proxy has not ACKed everything\nhung for 5m, ACKed revision 0123456789ab\n"), "{wrong}");
        let noted = noted.unwrap();
        assert!(noted.contains("\nslow for 30s") && !noted.contains("new"), "{noted}");
        assert_eq!(stale(proxies[..1].iter(), now), (None, None));
    }
}
