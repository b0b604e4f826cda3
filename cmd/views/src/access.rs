//! Access as text: a matrix of callers and service ports, and the rules behind it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ironmesh_analysis::difference::CallerGroup;
use ironmesh_analysis::verdict::GrantingRule;
use ironmesh_api::{AccessExtent, AccessPage, CallerView, CallersView, PortAccessView};
use ironmesh_catalog::ServiceAccount;
use ironmesh_catalog::text::escape_line;
use ironmesh_terminal::table::TERMINAL_WIDTH;

/// The width of a column of the matrix, with the space before it.
const COLUMN: usize = 6;

/// The most characters of a caller that the columns make room for.
const CALLER: usize = 32;

/// The whole matrix, in blocks that fit a terminal: the ports of a block, who may call them, and by which rules.
pub fn matrix(page: &AccessPage) -> String {
    if page.ports.is_empty() {
        return "policy defines no service port here\n".to_owned();
    }
    let columns = (TERMINAL_WIDTH - CALLER) / COLUMN;
    let blocks: Vec<_> = page.ports.chunks(columns).map(block).collect();
    blocks.join("\n")
}

fn block(ports: &[PortAccessView]) -> String {
    let mut lines = Vec::new();
    for (port, number) in ports.iter().zip(1..) {
        let PortAccessView { port, protocol, mode, .. } = port;
        lines.push(format!("{number}  {} port {} ({protocol}, {mode})", port.service, port.port));
    }
    let rows = rows(ports);
    let caller_width = rows.keys().map(String::len).max().unwrap_or(0);
    let row = |caller: &str, cells: &[String]| {
        cells.iter().fold(format!("{caller:<caller_width$}"), |mut line, cell| {
            // (Writing to a string does not fail.)
            let _ = write!(line, "{cell:>COLUMN$}");
            line
        })
    };
    lines.push(String::new());
    if rows.is_empty() {
        lines.push("no account may call any of these ports".to_owned());
        return lines.join("\n") + "\n";
    }
    let numbers: Vec<_> = (1..=ports.len()).map(|number| number.to_string()).collect();
    lines.push(row("", &numbers));
    for (caller, cells) in &rows {
        lines.push(row(caller, &cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>()));
    }
    lines.extend(legend(&rows).map(str::to_owned));
    for (port, number) in ports.iter().zip(1..) {
        let reasons = caller_lines(&port.access, &port.mode);
        lines.push(String::new());
        lines.push(format!("{number}  {} port {}", port.port.service, port.port.port));
        lines.extend(reasons.into_iter().map(|line| format!("   {line}")));
    }
    lines.join("\n") + "\n"
}

/// The meaning of cells that are not plain.
fn legend(rows: &BTreeMap<String, Vec<&'static str>>) -> impl Iterator<Item = &'static str> {
    let has = |suffix: char| rows.values().flatten().any(|cell| cell.ends_with(suffix));
    let lines = [
        has('*')
            .then_some("* now every call is allowed (audit mode); strict mode would allow this"),
        has('…').then_some("… further callers are allowed, which the list leaves out"),
    ];
    let lines: Vec<_> = lines.into_iter().flatten().collect();
    let gap = (!lines.is_empty()).then_some("");
    gap.into_iter().chain(lines)
}

/// The cells of each caller with any access to these ports.
fn rows(ports: &[PortAccessView]) -> BTreeMap<String, Vec<&'static str>> {
    let mut rows: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    let mut set = |caller: String, column: usize, cell| {
        let cells = rows.entry(caller).or_insert_with(|| vec!["-"; ports.len()]);
        if let Some(known) = cells.get_mut(column) {
            *known = cell;
        }
    };
    for (column, port) in ports.iter().enumerate() {
        if let Some(group) = &port.access.open_to {
            set(group_text(group), column, "all");
        }
        for caller in &port.access.callers {
            // Beside callers that the mode allows, those of the rules are what strict mode would allow.
            let cell = match (caller.extent, &port.access.open_to) {
                (AccessExtent::All, None) => "all",
                (AccessExtent::Some, None) => "some",
                (AccessExtent::All, Some(_)) => "all*",
                (AccessExtent::Some, Some(_)) => "some*",
            };
            set(caller.account.to_string(), column, cell);
        }
        if port.access.more_callers > 0 {
            set("(more)".to_owned(), column, "…");
        }
    }
    rows
}

fn group_text(group: &CallerGroup) -> String {
    match group {
        CallerGroup::All => "(every account)".to_owned(),
        CallerGroup::Namespace(namespace) => format!("(every account of {namespace})"),
        CallerGroup::Account(account) => account.to_string(),
    }
}

/// The callers of a port, a line for each rule.
pub(crate) fn caller_lines(access: &CallersView, mode: &str) -> Vec<String> {
    let CallersView { open_to, callers, more_callers } = access;
    let mut lines = Vec::new();
    if let Some(group) = open_to {
        lines.push(format!("{group} may call ({mode} mode)"));
        if !callers.is_empty() {
            lines.push("strict mode would allow only:".to_owned());
        }
    }
    for CallerView { account, extent: _, rules, more_rules } in callers {
        lines.extend(rules.iter().map(|rule| rule_line(account, rule)));
        if *more_rules > 0 {
            lines.push(format!("{account}: {more_rules} more rules"));
        }
    }
    if *more_callers > 0 {
        lines.push(format!(
            "and {more_callers} more callers: ask for one with `ironmesh policy explain`"
        ));
    }
    if lines.is_empty() {
        lines.push("no account may call".to_owned());
    }
    lines
}

fn rule_line(account: &ServiceAccount, rule: &GrantingRule) -> String {
    let GrantingRule { target, rule: _, traffic } = rule;
    escape_line(&format!("{account}: {traffic}, by {target}")).into_owned()
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::{AllowedTraffic, Cited, Spot};

    use super::*;

    fn caller(account: &str, traffic: AllowedTraffic) -> CallerView {
        let spot = Spot::new(&"p.toml".into(), "", 0..0);
        let cited = |object: &str| Cited { object: object.to_owned(), spot: spot.clone() };
        CallerView {
            account: account.parse().unwrap(),
            extent: match traffic {
                AllowedTraffic::EveryRequest | AllowedTraffic::Connections => AccessExtent::All,
                AllowedTraffic::Requests { .. } => AccessExtent::Some,
            },
            rules: vec![GrantingRule {
                target: cited("traffic target `shop/web`"),
                rule: cited("match `items`"),
                traffic,
            }],
            more_rules: 0,
        }
    }

    fn port(port: &str, mode: &str, access: CallersView) -> PortAccessView {
        PortAccessView {
            port: port.parse().unwrap(),
            account: "shop/any".parse().unwrap(),
            protocol: "http".to_owned(),
            mode: mode.to_owned(),
            access,
        }
    }

    #[test]
    fn matrix_marks_what_only_strict_mode_would_limit() {
        let access = CallersView {
            open_to: Some(CallerGroup::All),
            callers: vec![caller("shop/web", AllowedTraffic::EveryRequest)],
            more_callers: 2,
        };
        let page = AccessPage {
            ports: vec![port("shop/cart|80", "audit", access)],
            matching: 1,
            next: None,
        };
        let expected = "
(every account)   all
(more)              …
shop/web         all*

* now every call is allowed (audit mode); strict mode would allow this
… further callers are allowed, which the list leaves out

1  shop/cart port 80
   every account of the mesh may call (audit mode)
   strict mode would allow only:
";
        let text = matrix(&page);
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn matrix_has_a_column_for_each_port_and_the_rules_of_each_caller() {
        let some = AllowedTraffic::Requests {
            methods: vec!["GET".into()],
            path: Some("/items".into()),
            headers: BTreeMap::new(),
        };
        let strict = CallersView {
            open_to: None,
            callers: vec![
                caller("shop/till", some),
                caller("shop/web", AllowedTraffic::EveryRequest),
            ],
            more_callers: 0,
        };
        let open =
            CallersView { open_to: Some(CallerGroup::All), callers: Vec::new(), more_callers: 0 };
        let closed = CallersView { open_to: None, callers: Vec::new(), more_callers: 0 };
        let page = AccessPage {
            ports: vec![
                port("shop/cart|80", "strict", strict),
                port("shop/site|80", "permissive", open),
                port("shop/vault|80", "strict", closed),
            ],
            matching: 3,
            next: None,
        };
        let expected = "\
1  shop/cart port 80 (http, strict)
2  shop/site port 80 (http, permissive)
3  shop/vault port 80 (http, strict)

                    1     2     3
(every account)     -   all     -
shop/till        some     -     -
shop/web          all     -     -

1  shop/cart port 80
   shop/till: GET on `/items`, by traffic target `shop/web` (p.toml:1:1)
   shop/web: every request, by traffic target `shop/web` (p.toml:1:1)

2  shop/site port 80
   every account of the mesh may call (permissive mode)

3  shop/vault port 80
   no account may call
";
        assert_eq!(matrix(&page), expected);
        assert_eq!(matrix(&AccessPage::default()), "policy defines no service port here\n");
    }
}
