use ironmesh_api::{ProblemView, ProxyWithoutEndpoint, ReportedHealth};
use ironmesh_catalog::{Labels, Locality, Provider, ProxyId};

use super::*;

fn then() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn row(address: &str, provider: Provider, status: &str) -> EndpointRow {
    EndpointRow {
        address: address.parse().unwrap(),
        port: None,
        provider,
        instance: None,
        health: ReportedHealth::Healthy,
        health_source: None,
        application: None,
        locality: Locality::default(),
        weight: 1,
        labels: Labels::default(),
        proxy: None,
        proxy_name: None,
        leaving_since: None,
        cordon: None,
        dialled_at: None,
        status: status.to_owned(),
        reason: None,
        since: None,
        flapping: false,
    }
}

/// A list with an example of each field and state.
pub(in crate::endpoints) fn list() -> EndpointList {
    let stale = StaleView { since: then(), reason: "no agent answers".to_owned() };
    let until = Some("2026-01-01T00:01:00Z".parse().unwrap());
    let source = SourceView {
        provider: Provider::Consul,
        learned_at: Some(then()),
        index: Some(7),
        authoritative: true,
        stale: None,
        held: Some(HeldView { since: then(), until, before: 4, left: 1 }),
        problems: vec![ProblemView {
            instance: "node/till-9".to_owned(),
            reason: "`till.example` is no IP address".to_owned(),
        }],
    };
    let id = ProxyId("6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap());
    let part = |text: &str| text.into();
    let participant = EndpointRow {
        port: Some(8080),
        locality: Locality { region: part("eu"), zone: part("a"), sub_zone: part("") },
        weight: 2,
        proxy: Some(id),
        dialled_at: Some("10.0.0.5:15003".parse().unwrap()),
        since: Some(then()),
        ..row("10.0.0.5", Provider::Consul, "participant")
    };
    let flapping = EndpointRow {
        port: Some(8080),
        health: ReportedHealth::Unhealthy,
        flapping: true,
        reason: Some("its proxy has not ACKed port 80 yet".to_owned()),
        ..row("fd00::6", Provider::Consul, "not_acked")
    };
    EndpointList {
        providers: vec![
            ProviderView { provider: Provider::Consul, synced: true, stale: Some(stale) },
            ProviderView { provider: Provider::Registered, synced: true, stale: None },
        ],
        services: vec![
            ServiceEndpoints {
                service: "shop/till".parse().unwrap(),
                drained: false,
                sources: vec![source],
                endpoints: vec![
                    participant,
                    flapping,
                    row("10.0.0.7", Provider::Static, "no_proxy"),
                ],
                conflicts: vec![ConflictView {
                    address: [10, 0, 0, 7].into(),
                    port: None,
                    used: Provider::Static,
                    ignored: Provider::Consul,
                }],
                without_endpoint: vec![ProxyWithoutEndpoint {
                    id,
                    name: "store-1".parse().unwrap(),
                    mesh_address: "10.0.0.9:15003".parse().unwrap(),
                }],
            },
            ServiceEndpoints {
                service: "vault".parse().unwrap(),
                drained: true,
                sources: Vec::new(),
                endpoints: Vec::new(),
                conflicts: Vec::new(),
                without_endpoint: Vec::new(),
            },
        ],
    }
}

#[test]
fn endpoint_of_a_leaving_proxy_shows_since_when() {
    let row = EndpointRow {
        health: ReportedHealth::Draining,
        dialled_at: Some("10.0.0.5:15003".parse().unwrap()),
        leaving_since: Some(then()),
        ..row("10.0.0.5", Provider::Consul, "participant")
    };
    let expected = "participant at 10.0.0.5:15003, its proxy leaves since 2026-01-01T00:00:00Z";
    assert_eq!((&*row.health_text(), &*endpoint_status(&row)), ("draining", expected));
}

#[test]
fn table_shows_problems_first_and_fits_column_widths() {
    let now = "2026-01-01T02:59:59Z".parse().unwrap();
    let expected = "\
consul is stale since 2026-01-01T00:00:00Z: no agent answers

shop/till
  consul lost 3 of 4 endpoints at 2026-01-01T00:00:00Z; the removal is held back until 2026-01-01T00:01:00Z
    to accept the removal: `ironmesh endpoints accept shop/till`
  consul: `node/till-9` cannot be used: `till.example` is no IP address
  ADDRESS         PROVIDER  HEALTH    LOCALITY  WEIGHT  AGE  STATUS
  10.0.0.5:8080   consul    healthy   eu/a      2       2h   participant at 10.0.0.5:15003
  [fd00::6]:8080  consul    flapping  -         1       -    not ACKed: its proxy has not ACKed port 80 yet
  10.0.0.7        static    healthy   -         1       -    no proxy
  proxy store-1 at 10.0.0.9:15003 has no endpoint
  10.0.0.7: static and consul contradict each other; static is used

default/vault, drained: its endpoints get no traffic
  no endpoints
";
    assert_eq!(text(&list(), now), expected);
    assert_eq!(text(&EndpointList::default(), now), "policy defines no service\n");
}

#[test]
fn held_removal_without_deadline_names_its_condition() {
    let held = HeldView { since: then(), until: None, before: 2, left: 0 };
    let text = "lost 2 of 2 endpoints at 2026-01-01T00:00:00Z; the removal is held back until an authoritative answer confirms it";
    assert_eq!(held_removal(&held), text);
}

#[test]
fn age_is_shown_in_its_largest_unit() {
    for (later, words) in [
        ("2026-01-01T00:00:00Z", "0s"),
        ("2026-01-01T00:00:59.9Z", "59s"),
        ("2026-01-01T00:01:00Z", "1m"),
        ("2026-01-01T23:59:59Z", "23h"),
        ("2026-02-01T00:00:00Z", "31d"),
        // A clock that was set back.
        ("2025-12-31T00:00:00Z", "0s"),
    ] {
        assert_eq!(age(then(), later.parse().unwrap()), words, "{later}");
    }
}

#[test]
fn every_json_key_of_endpoints_is_documented() {
    fn keys(value: &serde_json::Value, into: &mut std::collections::BTreeSet<String>) {
        match value {
            serde_json::Value::Array(items) => items.iter().for_each(|item| keys(item, into)),
            serde_json::Value::Object(fields) => {
                into.extend(fields.keys().cloned());
                fields.values().for_each(|value| keys(value, into));
            }
            _ => {}
        }
    }
    let page =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/json.md");
    let page = fs_err::read_to_string(page).unwrap();
    let (_, page) = page.split_once("\n## Endpoints\n").unwrap();
    let mut found = std::collections::BTreeSet::new();
    keys(&serde_json::to_value(list()).unwrap(), &mut found);
    assert!(found.len() > 30, "{found:?}");
    let missing: Vec<_> = found.iter().filter(|key| !page.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/json.md does not have: {missing:?}");
}

#[test]
fn hostile_provider_text_forges_no_rows_or_terminal_codes() {
    let hostile = "x\u{1b}[2J\n10.0.0.9:80\u{202e}";
    let mut list = list();
    let lines = text(&list, then()).lines().count();
    let service = &mut list.services[0];
    service.sources[0].problems[0].instance = hostile.to_owned();
    service.endpoints[0].locality.region = hostile.into();
    let text = text(&list, then());
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    assert_eq!(text.lines().count(), lines, "{text}");
    assert!(text.matches("x\\u001b[2J\\u000a10.0.0.9:80\\u202e").count() == 2, "{text}");
}
