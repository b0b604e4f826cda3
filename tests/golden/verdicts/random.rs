//! Policies and requests by chance, the same for the same seed.

use std::fmt::Write as _;

use ironmesh_catalog::Request;

use crate::regexes::Chance;

/// How many services there are to call, and how many accounts to call them.
pub(super) const SERVICES: usize = 10;
pub(super) const CALLERS: usize = 4;

/// The service whose calls a split sends to others.
pub(super) const APEX: &str = "apex";

const PATH_EXPRESSIONS: &[&str] = &[
    "/a",
    "/a$",
    "/a/.*",
    "/(a|b)$",
    "/[^/]*$",
    "/a.*b$",
    "(?i:/A)",
    "/b",
    "/.*",
    "/$",
    "/a[^/]*/b",
    r"/books/\d+",
    "/a|/b/c",
    r"/a\.b",
    "/a%20b",
    "/[[:upper:]]",
    "/.{3}$",
];
/// What a sidecar does not change when it reads it once more, so that it is no matter how many do.
const PATHS: &[&str] = &[
    "/",
    "/a",
    "/a/b",
    "/ab",
    "/b",
    "/b/c",
    "/a/../b",
    "//a//b",
    "/a%2fb",
    "/%41",
    "/a/..;x/b",
    "/a/b/..%3bx",
    "/b?x=/a",
    "/A",
    "/a/",
    "/a.b",
    "/a%20b",
    "/books/12;edition=2",
    "/a/./b",
    "/%61/b",
    "/c?/../a",
    "/a%5Cb",
    "/books/",
    "/x/b%2eb",
    "/a//../b",
    "/a/%2e%2E/b",
];
/// What the second sidecar reads otherwise than the first.
const DISGUISED: &[&str] = &["/a/%2e%2e;x/b", "/b/a/.%2e;/c"];
const METHODS: &[&str] = &["GET", "POST", "DELETE"];
const TIERS: &[&str] = &["gold|silver", "gold", ".*", "g.*,s.*", "[a-z]+", "^$", "(?i:GOLD)"];
const TIER_VALUES: &[&str] = &["gold", "silver", "golden", "", "GOLD", "lead,gold"];
const HOSTS: &[&str] = &[r"s[0-4]\.default.*", "[a-z0-9.]+", r"S1\.default", ".*internal"];

/// A policy: `SERVICES` services named `s0`, `s1` and so on, of fewer accounts; the clients `c0`, `c1` and
/// so on; and a service with a split.
pub(super) fn policy(chance: &mut Chance) -> String {
    let mut text = String::new();
    for n in 0..CALLERS {
        writeln!(text, "[[service]]\nname = 'c{n}'").unwrap();
    }
    for n in 0..SERVICES {
        let account = n % (SERVICES / 2);
        let mode = if chance.below(8) == 0 { "mode = 'permissive'\n" } else { "" };
        writeln!(text, "[[service]]\nname = 's{n}'\nservice_account = 'a{account}'\n{mode}{PORT}")
            .unwrap();
    }
    writeln!(text, "[[service]]\nname = '{APEX}'\n{PORT}").unwrap();
    let mut backends: Vec<_> =
        (0..SERVICES).filter(|_| chance.below(4) == 0).map(|n| (format!("s{n}"), n % 3)).collect();
    backends.push((APEX.to_owned(), 1));
    let backends = backends.iter();
    let backends: Vec<_> = backends
        .map(|(service, weight)| format!("{{ service = '{service}', weight = {weight} }}"))
        .collect();
    let split = backends.join(", ");
    writeln!(text, "[[traffic_split]]\nname = 's'\nservice = '{APEX}'\nbackends = [{split}]")
        .unwrap();
    writeln!(text, "[[tcp_route]]\nname = 'r0'").unwrap();
    writeln!(text, "[[tcp_route]]\nname = 'r1'\nmatches = {{ ports = [81] }}").unwrap();
    for group in 0..4 {
        writeln!(text, "[[http_route_group]]\nname = 'g{group}'").unwrap();
        for one in 0..3 {
            writeln!(text, "[[http_route_group.matches]]\nname = 'm{one}'").unwrap();
            condition(chance, &mut text);
        }
    }
    for target in 0..14 {
        let account = match chance.below(SERVICES / 2 + 1) {
            0 => APEX.to_owned(),
            n => format!("a{}", n - 1),
        };
        let sources = chance.some(1, |chance| format!("{{ name = 'c{}' }}", chance.below(CALLERS)));
        let rules = chance.some(1, |chance| match chance.below(6) {
            0 => format!("{{ kind = 'TCPRoute', name = 'r{}' }}", chance.below(2)),
            1 => format!("{{ kind = 'HTTPRouteGroup', name = 'g{}' }}", chance.below(4)),
            _ => {
                let (group, one) = (chance.below(4), chance.below(3));
                format!("{{ kind = 'HTTPRouteGroup', name = 'g{group}', matches = ['m{one}'] }}")
            }
        });
        let distinct = |mut all: Vec<String>| {
            all.sort();
            all.dedup();
            all.join(", ")
        };
        let (sources, rules) = (distinct(sources), distinct(rules));
        writeln!(
            text,
            "[[traffic_target]]\nname = 't{target}'\ndestination = {{ name = '{account}' }}\nsources = [{sources}]\nrules = [{rules}]"
        )
        .unwrap();
    }
    text
}

const PORT: &str = "ports = [{ port = 80, protocol = 'http', target_port = 8080 }]";

fn condition(chance: &mut Chance, text: &mut String) {
    let kinds = 1 + chance.below(7);
    if kinds & 1 != 0 {
        writeln!(text, "path_regex = '{}'", chance.one_of(PATH_EXPRESSIONS)).unwrap();
    }
    if kinds & 2 != 0 {
        writeln!(text, "methods = ['{}']", chance.one_of(METHODS)).unwrap();
    }
    if kinds & 4 != 0 {
        let header = match chance.below(3) {
            0 => format!("host = '{}'", chance.one_of(HOSTS)),
            _ => format!("X-Tier = '{}'", chance.one_of(TIERS)),
        };
        writeln!(text, "headers = {{ {header} }}").unwrap();
    }
}

/// A request to `host`.
pub(super) fn request(chance: &mut Chance, host: &str, may_be_disguised: bool) -> Request {
    let mut headers = vec![("host".to_owned(), host.to_owned())];
    for _ in 0..chance.below(3) {
        headers.push(("x-tier".to_owned(), chance.one_of(TIER_VALUES).to_owned()));
    }
    let paths = if may_be_disguised && chance.below(8) == 0 { DISGUISED } else { PATHS };
    Request {
        method: chance.one_of(METHODS).to_owned(),
        path: chance.one_of(paths).to_owned(),
        headers,
    }
}
