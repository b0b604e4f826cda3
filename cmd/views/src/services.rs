//! Services as text: a table, and one service in detail.

use ironmesh_api::{
    EndpointCounts, PortView, ServiceDetail, ServicePage, ServicePortDetail, ServiceView,
};
use ironmesh_catalog::text::escape_line;
use ironmesh_terminal::table::{CutAt, TERMINAL_WIDTH, aligned, fit};

use crate::access::caller_lines;

/// The services as a table that fits a terminal.
pub fn table(page: &ServicePage) -> String {
    if page.services.is_empty() {
        return "policy defines no service here\n".to_owned();
    }
    let headings = ["SERVICE", "PORTS", "MODE", "READY", "ENDPOINTS", "NOTE"].map(str::to_owned);
    let mut rows = vec![headings];
    rows.extend(page.services.iter().map(|service| {
        let ports = service.ports.iter().map(|port| format!("{}/{}", port.number, port.protocol));
        let ports: Vec<_> = ports.collect();
        [
            service.service.to_string(),
            if ports.is_empty() { "-".to_owned() } else { ports.join(", ") },
            service.mode.clone(),
            ready(service),
            service.endpoints.known.to_string(),
            note(service),
        ]
    }));
    let cuts = [(5, 12, CutAt::End), (1, 12, CutAt::End), (0, 20, CutAt::Middle)];
    fit(&mut rows, TERMINAL_WIDTH, &cuts);
    aligned(&rows).into_iter().map(|line| line + "\n").collect()
}

/// The addresses that get new calls on the port with the fewest of them.
fn ready(service: &ServiceView) -> String {
    let ready = service.ports.iter().filter_map(|port| port.ready).min();
    ready.map_or_else(|| "-".to_owned(), |ready| ready.to_string())
}

fn note(service: &ServiceView) -> String {
    let external = service.external.as_ref().map(|external| match &external.hostname {
        Some(hostname) => format!("external: {hostname}"),
        None => "external".to_owned(),
    });
    let subset = service.subset_of.as_ref().map(|whole| format!("subset of {whole}"));
    let words = [
        service.drained.then(|| "drained".to_owned()),
        external,
        subset,
        service.split.then(|| "split".to_owned()),
        (service.visibility == "private").then(|| "private".to_owned()),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// One service, with the routing and the callers of each port.
pub fn detail(detail: &ServiceDetail) -> String {
    let ServiceDetail { service, subsets, access } = detail;
    let subsets: Vec<_> = subsets.iter().map(ToString::to_string).collect();
    let mut facts = vec![
        ("account", service.account.to_string()),
        ("hostname", service.hostname.clone()),
        ("mode", service.mode.clone()),
        ("visibility", service.visibility.clone()),
        ("endpoints", counts(&service.endpoints)),
        ("note", note(service)),
        ("subsets", subsets.join(", ")),
    ];
    facts.push(("defined at", service.spot.to_string()));
    let mut lines = vec![service.service.to_string()];
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
    lines.extend(facts.map(|(name, value)| format!("  {name:<12}{value}")));
    if access.is_empty() {
        lines.push("  no ports: it only calls others".to_owned());
    }
    for port in access {
        let view = service.ports.iter().find(|view| view.number == port.number);
        lines.push(String::new());
        lines.extend(view.map(port_headline));
        lines.extend(port_lines(port, &service.mode).into_iter().map(|line| format!("  {line}")));
    }
    lines.iter().map(|line| escape_line(line).into_owned() + "\n").collect()
}

fn counts(endpoints: &EndpointCounts) -> String {
    let EndpointCounts { known, by_status } = endpoints;
    let states: Vec<_> = by_status
        .iter()
        .map(|(status, count)| format!("{count} {}", status.replace('_', " ")))
        .collect();
    if states.is_empty() { known.to_string() } else { format!("{known} ({})", states.join(", ")) }
}

fn port_headline(port: &PortView) -> String {
    let PortView { number, name, protocol, target, ready } = port;
    let ready = match ready {
        Some(1) => ", 1 address gets calls".to_owned(),
        Some(count) => format!(", {count} addresses get calls"),
        None => String::new(),
    };
    format!("port {number} ({name}, {protocol}) to application port {target}{ready}")
}

fn port_lines(port: &ServicePortDetail, mode: &str) -> Vec<String> {
    let ServicePortDetail { number: _, splits, branches, callers } = port;
    let mut lines: Vec<_> = splits.iter().map(|split| format!("split by {split}")).collect();
    if !splits.is_empty() {
        lines.extend(branches.iter().map(|branch| {
            let conditions: Vec<_> =
                branch.conditions.iter().map(|one| one.traffic.to_string()).collect();
            if conditions.is_empty() {
                format!("  {branch}")
            } else {
                format!("  {}: {branch}", conditions.join(" and "))
            }
        }));
    }
    lines.push("callers".to_owned());
    lines.extend(caller_lines(callers, mode).into_iter().map(|line| format!("  {line}")));
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ironmesh_analysis::routing::{SplitBranch, WeightedService};
    use ironmesh_api::CallersView;
    use ironmesh_catalog::{Cited, Spot};

    use super::*;

    fn cart() -> ServiceView {
        ServiceView {
            service: "shop/cart".parse().unwrap(),
            account: "shop/cart".parse().unwrap(),
            hostname: "cart.shop.mesh.internal".to_owned(),
            mode: "strict".to_owned(),
            visibility: "private".to_owned(),
            drained: false,
            subset_of: None,
            external: None,
            split: true,
            ports: vec![PortView {
                number: 80,
                name: "web".parse().unwrap(),
                protocol: "http".to_owned(),
                target: 8080,
                ready: Some(2),
            }],
            endpoints: EndpointCounts {
                known: 3,
                by_status: BTreeMap::from([
                    ("no_proxy".to_owned(), 1),
                    ("participant".to_owned(), 2),
                ]),
            },
            spot: Spot::new(&"p.toml".into(), "", 0..0),
        }
    }

    #[test]
    fn table_has_ports_readiness_and_notes() {
        let client = ServiceView {
            service: "shop/job".parse().unwrap(),
            ports: Vec::new(),
            visibility: "public".to_owned(),
            split: false,
            drained: true,
            ..cart()
        };
        let page = ServicePage { services: vec![cart(), client], matching: 2, next: None };
        let expected = "\
SERVICE    PORTS    MODE    READY  ENDPOINTS  NOTE
shop/cart  80/http  strict  2      3          split, private
shop/job   -        strict  -      3          drained
";
        assert_eq!(table(&page), expected);
    }

    #[test]
    fn detail_has_routing_and_callers_of_each_port() {
        let share =
            |service: &str, weight| WeightedService { service: service.parse().unwrap(), weight };
        let shares = vec![share("shop/a", 9), share("shop/b", 1)];
        let port = ServicePortDetail {
            number: 80,
            splits: vec![Cited {
                object: "traffic split `shop/cart`".to_owned(),
                spot: Spot::new(&"p.toml".into(), "", 0..0),
            }],
            branches: vec![SplitBranch { conditions: Vec::new(), shares }],
            callers: CallersView { open_to: None, callers: Vec::new(), more_callers: 0 },
        };
        let shown = ServiceDetail { service: cart(), subsets: Vec::new(), access: vec![port] };
        let expected = "\
shop/cart
  account     shop/cart
  hostname    cart.shop.mesh.internal
  mode        strict
  visibility  private
  endpoints   3 (1 no proxy, 2 participant)
  note        split, private
  defined at  p.toml:1:1

port 80 (web, http) to application port 8080, 2 addresses get calls
  split by traffic split `shop/cart` (p.toml:1:1)
    90 % shop/a, 10 % shop/b
  callers
    no account may call
";
        assert_eq!(detail(&shown), expected);
    }
}
