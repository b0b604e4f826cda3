//! Tokens of machines: a table, in 80 columns or wide.

use ironmesh_api::{TokenList, TokenView};
use jiff::Timestamp;

use ironmesh_terminal::table::{CutAt, TERMINAL_WIDTH, age, aligned, fit, relative};

const HEADINGS: [&str; 6] = ["ID", "STATE", "SERVICES", "ADDRESS", "EXPIRES", "USED FROM"];

const WIDE_HEADINGS: [&str; 8] =
    ["ID", "STATE", "SERVICES", "ADDRESS", "CREATED", "EXPIRES", "USED FROM", "PROXY"];

/// The columns that are cut in turn so that a row fits, with their least widths: services, range, and address of the use.
const CUT: [(usize, usize, CutAt); 4] =
    [(2, 12, CutAt::End), (3, 12, CutAt::Middle), (5, 17, CutAt::Middle), (2, 8, CutAt::End)];

/// The table for a terminal, as lines.
pub fn narrow(list: &TokenList, now: Timestamp) -> Vec<String> {
    table(list, HEADINGS, cells, Some(TERMINAL_WIDTH), now)
}

/// The table with all columns, as lines.
pub fn wide(list: &TokenList, now: Timestamp) -> Vec<String> {
    table(list, WIDE_HEADINGS, wide_cells, None, now)
}

/// The table. Below the row of a token are its revocation and its misuse.
fn table<const N: usize>(
    list: &TokenList,
    headings: [&str; N],
    cells: impl Fn(&TokenView, Timestamp) -> [String; N],
    width: Option<usize>,
    now: Timestamp,
) -> Vec<String> {
    let mut rows = vec![headings.map(str::to_owned)];
    rows.extend(list.tokens.iter().map(|token| cells(token, now)));
    if let Some(width) = width {
        fit(&mut rows, width, &CUT);
    }
    let mut rows = aligned(&rows).into_iter();
    let mut lines: Vec<_> = rows.next().into_iter().collect();
    for (row, token) in rows.zip(&list.tokens) {
        lines.push(row);
        lines.extend(token.revoked.as_ref().map(|revocation| format!("  {revocation}")));
        lines.extend(token.misused.as_ref().map(|misused| {
            let (from, at) = (misused.from, misused.at);
            format!("  presented again, with another key, by {from} on {at:.0}")
        }));
    }
    lines
}

fn cells(token: &TokenView, now: Timestamp) -> [String; 6] {
    let [id, state, services, address, _, expires, used_from, _] = wide_cells(token, now);
    [id, state, services, address, expires, used_from]
}

fn wide_cells(token: &TokenView, now: Timestamp) -> [String; 8] {
    let services: Vec<_> = token.services.iter().map(ToString::to_string).collect();
    let address = token.addresses.map_or_else(|| "any".to_owned(), |range| range.to_string());
    let dash = || "-".to_owned();
    let used = token.used.as_ref();
    let used_from = |at, from| format!("{from}, {} ago", age(at, now));
    [
        token.id.to_string(),
        token.state.clone(),
        services.join(","),
        address,
        age(token.created_at, now),
        relative(token.expires_at, now),
        used.map_or_else(dash, |used| used_from(used.at, used.from.ip())),
        used.map_or_else(dash, |used| {
            used.name.as_ref().map_or_else(|| used.proxy.to_string(), ToString::to_string)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use ironmesh_api::TokenUseView;
    use jiff::SignedDuration;

    use super::*;

    fn tokens(now: Timestamp) -> TokenList {
        let token = |id: &str, state: &str| TokenView {
            id: id.parse().unwrap(),
            state: state.to_owned(),
            services: vec!["shop/bookstore".parse().unwrap()],
            addresses: Some("10.0.0.0/24".parse().unwrap()),
            created_at: now - SignedDuration::from_mins(5),
            expires_at: now + SignedDuration::from_mins(10),
            used: None,
            misused: None,
            revoked: None,
        };
        let used = TokenUseView {
            at: now - SignedDuration::from_mins(2),
            from: "10.0.0.5:51334".parse().unwrap(),
            proxy: "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap(),
            name: Some("bookstore-1".parse().unwrap()),
        };
        let used = TokenView { used: Some(used), ..token("5f0c9a1be2d34e67", "used") };
        TokenList { tokens: vec![used, token("00000000000000aa", "unused")] }
    }

    #[test]
    fn table_shows_range_expiry_and_use_in_80_columns() {
        let now = Timestamp::UNIX_EPOCH;
        let expected = [
            "ID                STATE   SERVICES        ADDRESS      EXPIRES  USED FROM",
            "5f0c9a1be2d34e67  used    shop/bookstore  10.0.0.0/24  in 10m   10.0.0.5, 2m ago",
            "00000000000000aa  unused  shop/bookstore  10.0.0.0/24  in 10m   -",
        ];
        let mut list = tokens(now);
        assert_eq!(table(&list, HEADINGS, cells, Some(TERMINAL_WIDTH), now), expected);
        for token in &mut list.tokens {
            token.addresses = Some("2001:db8:1111:2222:3333:4444:5555:0/112".parse().unwrap());
            if let Some(used) = &mut token.used {
                used.from = "[2001:db8:1111:2222:3333:4444:5555:6666]:51334".parse().unwrap();
            }
        }
        let narrow = table(&list, HEADINGS, cells, Some(TERMINAL_WIDTH), now);
        assert!(narrow.iter().all(|line| line.chars().count() <= 80), "{narrow:#?}");
        let wide = table(&list, WIDE_HEADINGS, wide_cells, None, now);
        for part in ["5555:0/112", "5555:6666, 2m ago", "bookstore-1"] {
            assert!(wide[1].contains(part), "no {part:?} in {wide:#?}");
        }
    }
}
