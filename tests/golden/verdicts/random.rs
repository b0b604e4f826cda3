//! Random policies and requests, the same for the same seed.

use std::fmt::Write as _;
use std::net::SocketAddr;

use ironmesh_analysis::Request;

use crate::regexes::SeededRandom;

/// The number of services at the mesh port.
pub(super) const SERVICES: usize = 10;

/// The accounts of the callers. The last does not see services that are private to `default`.
pub(super) const CALLERS: [&str; 4] = ["default/c0", "default/c1", "default/c2", "far/c3"];

/// The services with splits; later ones are nested in earlier ones.
pub(super) const APEXES: [&str; 3] = ["apex0", "apex1", "apex2"];

/// The external services.
pub(super) const EXTERNAL: [&str; 2] = ["x0", "x1"];

/// The subsets of services: the first of each has an endpoint, the second has none.
pub(super) const PARTS: [&str; 4] = ["s0-here", "s0-gone", "s1-here", "s1-gone"];

/// The labels of a proxy of the former.
pub(super) const LABELS: &str = "{ is = 'here' }";

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
/// Paths that a second sidecar leaves unchanged, so that the number of sidecars does not matter.
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
    "/a%2fb",
    "/books/%2F",
    "/books/1?x=%2F",
    "/books/",
    "/x/b%2eb",
    "/a//../b",
    "/a/%2e%2E/b",
];
/// Paths that the second sidecar reads differently from the first.
const DISGUISED: &[&str] = &["/a/%2e%2e;x/b", "/b/a/.%2e;/c"];
const METHODS: &[&str] = &["GET", "POST", "DELETE"];
const TIERS: &[&str] = &["gold|silver", "gold", ".*", "g.*,s.*", "[a-z]+", "^$", "(?i:GOLD)"];
const TIER_VALUES: &[&str] = &["gold", "silver", "golden", "", "GOLD", "lead,gold"];
const HOSTS: &[&str] = &[
    r"s[0-4]\.default.*",
    "[a-z0-9.]+",
    r"S1\.default",
    ".*internal",
    r"other\.example",
    "s[0-9]",
];

/// A policy with `SERVICES` services `s0`, `s1` and so on, of fewer accounts, some private or with
/// subsets; the clients; external services at `outside`; and nested splits.
pub(super) fn policy(generator: &mut SeededRandom, outside: SocketAddr) -> String {
    let mut text = String::new();
    for caller in CALLERS {
        let (namespace, name) = caller.split_once('/').unwrap();
        writeln!(text, "[[service]]\nnamespace = '{namespace}'\nname = '{name}'").unwrap();
    }
    for n in 0..SERVICES {
        let account = n % (SERVICES / 2);
        writeln!(text, "[[service]]\nname = 's{n}'\nservice_account = 'a{account}'\n{PORT}")
            .unwrap();
        mode_and_visibility(generator, &mut text);
        let parts = PARTS.iter().filter(|part| part.starts_with(&format!("s{n}-")));
        let parts: Vec<_> = parts
            .map(|part| {
                let is = part.split_once('-').unwrap().1;
                format!("{{ name = '{part}', labels = {{ is = '{is}' }} }}")
            })
            .collect();
        if !parts.is_empty() {
            writeln!(text, "subsets = [{}]", parts.join(", ")).unwrap();
        }
    }
    for apex in APEXES {
        writeln!(text, "[[service]]\nname = '{apex}'\n{PORT}").unwrap();
        mode_and_visibility(generator, &mut text);
    }
    for name in EXTERNAL {
        writeln!(text, "[[service]]\nname = '{name}'\nexternal = true\n{PORT}").unwrap();
        mode_and_visibility(generator, &mut text);
        let (address, port) = (outside.ip(), outside.port());
        let endpoint = format!("{{ address = '{address}', port = {port} }}");
        writeln!(text, "[service.endpoints]\nstatic = [{endpoint}]").unwrap();
    }
    splits(generator, &mut text);
    writeln!(text, "[[tcp_route]]\nname = 'r0'").unwrap();
    writeln!(text, "[[tcp_route]]\nname = 'r1'\nmatches = {{ ports = [81] }}").unwrap();
    for group in 0..4 {
        writeln!(text, "[[http_route_group]]\nname = 'g{group}'").unwrap();
        for one in 0..3 {
            writeln!(text, "[[http_route_group.matches]]\nname = 'm{one}'").unwrap();
            condition(generator, &mut text);
        }
    }
    for target in 0..18 {
        let account = match generator.below(SERVICES / 2 + 2) {
            0 => generator.choose(&APEXES).to_owned(),
            1 => generator.choose(&EXTERNAL).to_owned(),
            n => format!("a{}", n - 2),
        };
        let sources = generator.some(1, |generator| {
            let (namespace, name) = generator.choose(&CALLERS).split_once('/').unwrap();
            format!("{{ namespace = '{namespace}', name = '{name}' }}")
        });
        let rules = generator.some(1, |generator| match generator.below(6) {
            0 => format!("{{ kind = 'TCPRoute', name = 'r{}' }}", generator.below(2)),
            1 => format!("{{ kind = 'HTTPRouteGroup', name = 'g{}' }}", generator.below(4)),
            _ => {
                let (group, one) = (generator.below(4), generator.below(3));
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

/// Changes of path, host and header by HTTP routes, and redirects.
const HTTP_ROUTE_SETTINGS: &[&str] = &[
    "rewrite = { path_prefix = { from = '/a', to = '/b' } }",
    "rewrite = { path_prefix = { from = '/a/b', to = '/' } }",
    "rewrite = { path_prefix = { from = '/', to = '/a' } }",
    r"rewrite = { path_regex = '/(a|b)', substitution = '/\1/../A/\1/' }",
    r"rewrite = { path_regex = '/[^/]*$', substitution = '/books/1' }",
    r"rewrite = { path_regex = '/a%2f', substitution = '/a/\0' }",
    r"rewrite = { path_regex = '/(a)?(.*)', substitution = '/\2' }",
    "rewrite = { host = 's1.default' }",
    "rewrite = { host = 'other.example:80', path_prefix = { from = '/b', to = '/a' } }",
    "request_headers = { set = { x-tier = 'gold' } }",
    "request_headers = { add = { X-Tier = 'silver' } }",
    "request_headers = { remove = ['x-tier'] }",
    "redirect = { status = 308, host = 'other.example' }",
];

/// HTTP routes of some services, and of some requests to them.
pub(super) fn http_routes(generator: &mut SeededRandom) -> String {
    let mut text = String::new();
    let services = (0..SERVICES).map(|n| format!("s{n}"));
    let others = APEXES.iter().chain(&EXTERNAL).map(|name| (*name).to_owned());
    for service in services.chain(others) {
        for number in 0..3 {
            if generator.below(3) > 0 {
                continue;
            }
            writeln!(text, "[[http_route]]\nname = '{service}-{number}'\nservice = '{service}'")
                .unwrap();
            // At most one for all requests.
            if number > 0 {
                let (group, one) = (generator.below(4), generator.below(3));
                let group = format!("kind = 'HTTPRouteGroup', name = 'g{group}'");
                writeln!(text, "matches = [{{ {group}, matches = ['m{one}'] }}]").unwrap();
            }
            writeln!(text, "{}", generator.choose(HTTP_ROUTE_SETTINGS)).unwrap();
        }
    }
    text
}

/// A mode and a visibility other than the default.
fn mode_and_visibility(generator: &mut SeededRandom, text: &mut String) {
    match generator.below(12) {
        0 => writeln!(text, "mode = 'permissive'").unwrap(),
        1 => writeln!(text, "mode = 'audit'").unwrap(),
        _ => {}
    }
    if generator.below(4) == 0 {
        writeln!(text, "visibility = 'private'").unwrap();
    }
    if generator.below(3) == 0 {
        writeln!(text, "escaped_slashes = 'keep'").unwrap();
    }
}

/// Splits of each apex: up to two with conditions, and mostly one for all calls.
fn splits(generator: &mut SeededRandom, text: &mut String) {
    for (n, apex) in APEXES.iter().enumerate() {
        let conditional = generator.below(3);
        for number in 0..3 {
            let is_conditional = number < 2;
            if if is_conditional { number >= conditional } else { generator.below(5) == 0 } {
                continue;
            }
            writeln!(text, "[[traffic_split]]\nname = '{apex}-{number}'\nservice = '{apex}'")
                .unwrap();
            if is_conditional {
                let group = format!("kind = 'HTTPRouteGroup', name = 'g{}'", generator.below(4));
                let one = generator.below(3);
                writeln!(text, "matches = [{{ {group}, matches = ['m{one}'] }}]").unwrap();
            }
            let services = (0..SERVICES).map(|n| format!("s{n}"));
            let others = APEXES[n..].iter().chain(&PARTS).map(|name| (*name).to_owned());
            let all: Vec<_> = services.chain(others).filter(|_| generator.below(5) == 0).collect();
            let weighted = all.into_iter().map(|name| (name, generator.below(3)));
            let mut backends: Vec<_> = weighted.collect();
            // At least one backend has a weight; if it is the only one and missing, no application
            // answers.
            backends.push(("nobody".to_owned(), 1));
            let backends: Vec<_> = backends
                .iter()
                .map(|(name, weight)| format!("{{ service = '{name}', weight = {weight} }}"))
                .collect();
            writeln!(text, "backends = [{}]", backends.join(", ")).unwrap();
        }
    }
}

fn condition(generator: &mut SeededRandom, text: &mut String) {
    let kinds = 1 + generator.below(7);
    if kinds & 1 != 0 {
        writeln!(text, "path_regex = '{}'", generator.choose(PATH_EXPRESSIONS)).unwrap();
    }
    if kinds & 2 != 0 {
        writeln!(text, "methods = ['{}']", generator.choose(METHODS)).unwrap();
    }
    if kinds & 4 != 0 {
        let header = match generator.below(6) {
            // Never true: a server's sidecar drops the header.
            1 => format!("x_tier = '{}'", generator.choose(TIERS)),
            0 | 2 => format!("host = '{}'", generator.choose(HOSTS)),
            _ => format!("X-Tier = '{}'", generator.choose(TIERS)),
        };
        writeln!(text, "headers = {{ {header} }}").unwrap();
    }
}

/// A host that names the service, or almost does.
pub(super) fn host(generator: &mut SeededRandom, service: &str) -> String {
    let whole = format!("{service}.default.mesh.internal");
    match generator.below(12) {
        0 => service.to_owned(),
        1 => format!("{service}:80"),
        2 => format!("{}.Default", service.to_uppercase()),
        3 => whole,
        4 => format!("{whole}:80"),
        5 => format!("{service}.default:80"),
        6 => "other.example".to_owned(),
        7 => format!("{service}.default:81"),
        8 => format!("{whole}."),
        _ => format!("{service}.default"),
    }
}

/// A request to `host`.
pub(super) fn request(generator: &mut SeededRandom, host: &str, may_be_disguised: bool) -> Request {
    let mut headers = vec![("host".to_owned(), host.to_owned())];
    for _ in 0..generator.below(3) {
        let name = if generator.below(8) == 0 { "x_tier" } else { "x-tier" };
        headers.push((name.to_owned(), generator.choose(TIER_VALUES).to_owned()));
    }
    let paths = if may_be_disguised && generator.below(8) == 0 { DISGUISED } else { PATHS };
    Request {
        method: generator.choose(METHODS).to_owned(),
        path: generator.choose(paths).to_owned(),
        headers,
    }
}
