use serde_json::{Value, json};

use super::*;

/// A proxy with the required fields, and those of `more`.
fn proxy(name: &str, more: Value) -> ProxyView {
    let mut all = json!({
        "id": "11112222-0000-4000-8000-000000000001",
        "name": name,
        "services": ["default/bookstore-v1", "shop/cart"],
        "mesh_address": "10.0.0.1:15003",
        "enrolled_at": "2026-01-01T00:00:00Z",
        "claimed_at": null,
        "participation": [],
        "certificate_expires_at": "2027-01-01T00:00:00Z",
        "state": "connected",
        "streams": 1,
        "stream_addresses": [],
        "nacks": [],
        "withheld": [],
        "findings": [],
    });
    let (Value::Object(all_fields), Value::Object(more)) = (&mut all, more) else { panic!() };
    all_fields.extend(more);
    serde_json::from_value(all).unwrap()
}

fn page() -> ProxyPage {
    let before = |seconds: i64| {
        Timestamp::now().checked_sub(jiff::SignedDuration::from_secs(seconds)).unwrap()
    };
    let sync = |state: &str, more: Value| {
        let mut sync = json!({ "state": state, "revision": "0123456789ab" });
        let (Value::Object(fields), Value::Object(more)) = (&mut sync, more) else { panic!() };
        fields.extend(more);
        sync
    };
    let connected = |state: &str, more: Value| {
        json!({
            "envoy_version": "1.40.0",
            "connected_since": before(7300),
            "sync": sync(state, more),
        })
    };
    let proxies = vec![
        proxy("web-1", connected("synced", json!({}))),
        proxy("web-2", connected("updating", json!({ "since": before(3) }))),
        proxy("a-machine-with-a-long-name.example.com", connected("nacked", json!({}))),
        proxy(
            "web-3",
            json!({ "state": "revoked", "streams": 0, "mesh_address": "192.168.100.200:15003" }),
        ),
    ];
    ProxyPage { proxies, matching: 10, next: None }
}

#[test]
fn leave_of_a_proxy_is_below_its_row() {
    let leaving = proxy("web-1", json!({ "leaving_since": "2026-01-01T00:00:00Z" }));
    let page = ProxyPage { proxies: vec![leaving], matching: 1, next: None };
    let text = table(&page, HEADINGS, cells, Some(TERMINAL_WIDTH));
    assert!(text.contains("\n  leaves the mesh since 2026-01-01T00:00:00Z: "), "{text}");
}

#[test]
fn table_fits_eighty_columns_and_counts_hidden_proxies() {
    let text = table(&page(), HEADINGS, cells, Some(TERMINAL_WIDTH));
    assert!(text.lines().all(|line| line.chars().count() <= TERMINAL_WIDTH), "{text}");
    let lines: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], HEADINGS);
    let is = |line: usize, cells: &[&str]| assert_eq!(lines[line], cells, "{text}");
    is(1, &["web-1", "bookstore…", "10.0.0.1", "1.40.0", "2h", "SYNCED", "01234567"]);
    assert_eq!(lines[2][5..7], ["STALE", "3s"]);
    assert!(lines[3][0].starts_with("a-machine") && lines[3][0].ends_with('…'), "{text}");
    is(4, &["web-3", "bookstore…", "192.168.100.200", "-", "revoked", "-", "-"]);
    assert!(text.ends_with("6 more; raise --limit, or filter with --service and --state\n"));
}

#[test]
fn table_with_full_ipv6_addresses_fits_and_shows_their_ends() {
    let mut page = page();
    for (proxy, host) in page.proxies.iter_mut().zip(1..) {
        proxy.record.mesh_address =
            format!("[2001:db8:1234:5678:9abc:def0:1234:567{host}]:15003").parse().unwrap();
    }
    let text = table(&page, HEADINGS, cells, Some(TERMINAL_WIDTH));
    assert!(text.lines().all(|line| line.chars().count() <= TERMINAL_WIDTH), "{text}");
    for host in 1..=4 {
        assert!(text.contains(&format!("4:567{host}  ")), "{text}");
    }
    let wide = table(&page, WIDE_HEADINGS, wide_cells, None);
    assert!(wide.contains("[2001:db8:1234:5678:9abc:def0:1234:5671]:15003"), "{wide}");
}

#[test]
fn wide_table_cuts_nothing() {
    let text = table(&page(), WIDE_HEADINGS, wide_cells, None);
    for whole in [
        "a-machine-with-a-long-name.example.com",
        "11112222-0000-4000-8000-000000000001",
        "default/bookstore-v1,shop/cart",
        "10.0.0.1:15003",
        "0123456789ab",
    ] {
        assert!(text.contains(whole), "{text}");
    }
    assert!(!text.contains('…'), "{text}");
}
