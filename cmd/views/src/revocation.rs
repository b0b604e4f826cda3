//! Revocations as text for people.

use std::fmt::Write as _;

use ironmesh_catalog::ServicePort;
use ironmesh_catalog::text::escape_line;

use ironmesh_api::{ReachView, Revoked, RevokedProxies};

/// The most service ports that one line names.
const NAMED: usize = 10;

/// The result of a revocation, or its prediction.
pub fn revocation_text(revoked: &RevokedProxies) -> String {
    let RevokedProxies { dry_run, proxies, without_endpoint } = revoked;
    let mut text = String::new();
    for proxy in proxies {
        write_proxy(&mut text, proxy, *dry_run);
    }
    if !without_endpoint.is_empty() {
        let have = if *dry_run { "would have" } else { "have" };
        let ports = named(without_endpoint.iter());
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "warning: these ports {have} no other endpoint: {ports}");
    }
    if *dry_run {
        text.push_str("nothing was changed\n");
    }
    text
}

fn write_proxy(text: &mut String, proxy: &Revoked, dry_run: bool) {
    let Revoked { id, name, revocation, is_old, streams, mesh_address, endpoints, reach } = proxy;
    let result = match revocation {
        Some(revocation) if *is_old => format!("was already {revocation}"),
        Some(revocation) => format!("was {revocation}"),
        None => "would be revoked".to_owned(),
    };
    let mut line = |words: &str| {
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "{}", escape_line(words));
    };
    line(&format!("proxy {name} ({id}) {result}"));
    let end = if dry_run { "would end" } else { "ended" };
    match streams {
        0 => {}
        1 => line(&format!("  1 xDS stream {end}")),
        many => line(&format!("  {many} xDS streams {end}")),
    }
    if let Some(address) = mesh_address.filter(|_| !endpoints.is_empty()) {
        let lose = if dry_run { "would no longer dial" } else { "no longer dial" };
        line(&format!("  callers {lose} {address}: {}", named(endpoints.iter())));
    }
    text.push_str(&reach_text(reach, true));
}

/// Until when a revoked proxy could still call which ports: a line for each time. If an operator revoked it, peers refuse
/// it as soon as they have received that.
pub fn reach_text(reach: &[ReachView], is_refused: bool) -> String {
    let servers = if is_refused { "servers without a control-plane stream" } else { "servers" };
    let line = |ReachView { until, ports }: &ReachView| {
        let ports = named(ports.iter());
        format!("  {servers} accept its service certificate until {until:.0}: {ports}\n")
    };
    let first = match (reach.is_empty(), is_refused) {
        (true, _) => "",
        (false, true) => {
            "  connected servers refuse its service certificates, shared ones after at most 15 s\n"
        }
        (false, false) => "  it left the mesh by itself: to let servers refuse it, revoke it\n",
    };
    reach.iter().map(line).fold(first.to_owned(), |text, line| text + &line)
}

fn named<'a>(ports: impl ExactSizeIterator<Item = &'a ServicePort>) -> String {
    let more = ports.len().saturating_sub(NAMED);
    let named: Vec<_> = ports.take(NAMED).map(ToString::to_string).collect();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(text: &str) -> ServicePort {
        let (service, port) = text.split_once('|').unwrap();
        ServicePort::new(service.parse().unwrap(), port.parse().unwrap())
    }

    #[test]
    fn prediction_and_result_name_streams_ports_and_certificates() {
        let ports = (1..=12).map(|n| port(&format!("shop/a|{n}")));
        let proxy = Revoked {
            id: "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap(),
            name: "till-1".parse().unwrap(),
            revocation: None,
            is_old: false,
            streams: 2,
            mesh_address: Some("10.0.0.1:15003".parse().unwrap()),
            endpoints: vec![port("shop/till|80")],
            reach: vec![ReachView {
                until: "2026-01-02T00:00:00Z".parse().unwrap(),
                ports: ports.collect(),
            }],
        };
        let revoked = RevokedProxies {
            dry_run: true,
            proxies: vec![proxy],
            without_endpoint: vec![port("shop/till|80")],
        };
        let expected = "\
proxy till-1 (6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f) would be revoked
  2 xDS streams would end
  callers would no longer dial 10.0.0.1:15003: shop/till|80
  connected servers refuse its service certificates, shared ones after at most 15 s
  servers without a control-plane stream accept its service certificate until 2026-01-02T00:00:00Z: shop/a|1, shop/a|2, shop/a|3, shop/a|4, shop/a|5, shop/a|6, shop/a|7, shop/a|8, shop/a|9, shop/a|10 and 2 more
warning: these ports would have no other endpoint: shop/till|80
nothing was changed
";
        assert_eq!(revocation_text(&revoked), expected);
        let done = RevokedProxies { dry_run: false, ..revoked };
        let text = revocation_text(&done);
        assert!(text.contains("  2 xDS streams ended\n  callers no longer dial "), "{text}");
        assert!(
            text.ends_with("warning: these ports have no other endpoint: shop/till|80\n"),
            "{text}"
        );
    }
}
