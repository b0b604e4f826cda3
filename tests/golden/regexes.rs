//! Every regular expression that the loader accepts, Envoy accepts: random ones, ones at the size
//! limit, and ones at the border of the language. Envoy would NACK a port's routes because of one
//! bad expression, and keep the previous grants.

pub(crate) mod random;

use std::fmt::Write as _;
use std::path::Path;

use fs_err as fs;
use ironmesh_config_language::{Document, load_documents};
use ironmesh_tests::programs::require_envoy;
use ironmesh_xds_compile::Compiled;
use serde_json::json;

pub(crate) use self::random::SeededRandom;
use crate::case::Case;
use crate::certificates::RealCertificates;
use crate::{envoy, rendering};

/// The position of an expression. The compiler adds different text around each.
#[derive(Debug, Clone, Copy)]
enum RegexPosition {
    Path,
    Header,
    Host,
}

const POSITIONS: [RegexPosition; 3] =
    [RegexPosition::Path, RegexPosition::Header, RegexPosition::Host];

/// RE2 compiles these to more than one would expect: common prefixes of loops, loops factored out
/// of an alternation, loops over empty matches, loops over any character.
const LARGE_PATTERNS: [&str; 5] = [
    r"(?:[\-\s0-9a-z]{1,})*?",
    "(?:c(?:a)+?|c)+",
    r"(?:\b??)+?",
    r"(?:[0-9\D]*|/)",
    "(?i:a)|(?i:c)|e",
];

#[test]
fn envoy_accepts_the_largest_expressions_the_loader_accepts() {
    let Some(program) = require_envoy() else { return };
    let mut generator = SeededRandom(0x1207);
    let mut largest = Vec::new();
    let mut hard = LARGE_PATTERNS.iter().flat_map(|hard| [hard; 3]);
    while largest.len() < 180 {
        let depth = 1 + largest.len() % 5;
        let expression =
            hard.next().map_or_else(|| generator.expression(depth), |hard| (*hard).to_owned());
        let position = POSITIONS[largest.len() % 3];
        let repeated = |count: u32| format!("a(?:{expression}){{{count}}}");
        if !is_accepted(position, &repeated(1)) {
            continue;
        }
        // The loader rejects every size above one that it rejects.
        let (mut good, mut bad) = (1, 1001);
        while bad - good > 1 {
            let middle = u32::midpoint(good, bad);
            *(if is_accepted(position, &repeated(middle)) { &mut good } else { &mut bad }) = middle;
        }
        largest.push((position, repeated(good)));
    }
    let mut sizes: Vec<_> =
        largest.chunks(60).flat_map(|some| sizes_in_envoy(&program, some)).collect();
    sizes.sort_unstable();
    // Some cannot grow, such as `\b`. The others come close to Envoy's limit.
    let half = sizes[sizes.len() / 2];
    assert!(half > 700, "half of the largest have at most {half} instructions: {sizes:?}");
}

#[test]
fn envoy_accepts_every_expression_the_loader_accepts() {
    let Some(program) = require_envoy() else { return };
    let mut generator = SeededRandom(0xD1A1);
    let mut accepted = Vec::new();
    for number in 0..6000 {
        let (position, text) = (POSITIONS[number % 3], generator.scribble());
        if is_accepted(position, &text) {
            accepted.push((position, text));
        }
    }
    assert!(accepted.len() > 1000, "only {} are expressions", accepted.len());
    for some in accepted.chunks(400) {
        sizes_in_envoy(&program, some);
    }
}

/// In a nested split, the expression is compared with the path and its query, in the form that the
/// loader rewrites, unless that would be too large.
#[test]
fn envoy_accepts_path_conditions_of_nested_splits() {
    let Some(program) = require_envoy() else { return };
    let mut generator = SeededRandom(0x5B11);
    let mut paths: Vec<String> = LARGE_PATTERNS.map(str::to_owned).to_vec();
    let mut rewritten = 0;
    while paths.len() < 400 {
        let count = 1 + paths.len() / 2;
        let expression = if paths.len().is_multiple_of(3) {
            generator.scribble()
        } else {
            format!("(?:{}){{{count}}}", generator.expression(1 + paths.len() % 5))
        };
        if is_accepted(RegexPosition::Path, &expression) {
            paths.push(expression);
        }
    }
    for some in paths.chunks(200) {
        let all: Vec<_> = some.iter().map(|path| (RegexPosition::Path, path.clone())).collect();
        let policy = format!("{POLICY}\n{NESTED_SPLIT}\n{}", group(&all));
        let compiled = compiled(&policy, BUYER);
        // The condition on disguised paths is inverted, and comes first.
        let header = r#"{"name":":path","stringMatch""#;
        let resources = compiled.resources.iter().map(|one| one.to_json().to_string());
        rewritten += resources.map(|text| text.matches(header).count()).sum::<usize>();
        let bootstrap = rendering::bootstrap(&compiled, &RealCertificates::new());
        envoy::validate(&program, &bootstrap).unwrap_or_else(|rejection| panic!("{rejection}"));
    }
    assert!(rewritten > 200, "only {rewritten} conditions on paths with queries");
}

/// The resources of the first of these proxies.
fn compiled(policy: &str, proxies: &str) -> Compiled {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("policy")).unwrap();
    fs::write(folder.path().join("policy/policy.toml"), policy).unwrap();
    fs::write(folder.path().join("proxies.toml"), proxies).unwrap();
    Case::load(folder.path().to_owned()).compile().remove(0).compiled
}

/// Whether a policy with this expression has no errors.
fn is_accepted(position: RegexPosition, expression: &str) -> bool {
    let policy = group(&[(position, expression.to_owned())]);
    load_documents([Document::new("policy.toml", policy)]).specification.is_some()
}

/// An HTTP route group with these expressions.
fn group(expressions: &[(RegexPosition, String)]) -> String {
    let mut group = "[[http_route_group]]\nname = 'all'\n".to_owned();
    for (number, (position, expression)) in expressions.iter().enumerate() {
        let expression = toml::Value::String(expression.clone());
        let condition = match position {
            RegexPosition::Path => format!("path_regex = {expression}"),
            RegexPosition::Header => format!("headers.x-tier = {expression}"),
            RegexPosition::Host => format!("headers.host = {expression}"),
        };
        writeln!(group, "[[http_route_group.matches]]\nname = 'm{number}'\n{condition}").unwrap();
    }
    group
}

/// The sizes that Envoy reports, in any order. It must accept all expressions in their compiled
/// form.
fn sizes_in_envoy(program: &Path, expressions: &[(RegexPosition, String)]) -> Vec<u32> {
    let compiled = compiled(&format!("{POLICY}\n{}", group(expressions)), PROXIES);
    let mut bootstrap = rendering::bootstrap(&compiled, &RealCertificates::new());
    let limits = &mut bootstrap["layered_runtime"]["layers"][0]["static_layer"]["re2"];
    limits["max_program_size"]["warn_level"] = json!(0);
    let output =
        envoy::validate(program, &bootstrap).unwrap_or_else(|rejection| panic!("{rejection}"));
    let reports: Vec<_> = output.split(" RE2 program size of ").collect();
    let sizes = reports.windows(2).filter(|pair| !pair[0].ends_with(COMPILER_SUFFIX));
    let sizes: Vec<_> =
        sizes.map(|pair| pair[1].split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(sizes.len(), expressions.len(), "Envoy reports the size of each: {output}");
    sizes
}

/// The suffix that the compiler adds to each expression on paths.
const COMPILER_SUFFIX: &str = "(?:(?:/|%2[fF]|%5[cC])(?s:.*))?'";

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 80, protocol = "http" }]

[[service]]
name = "buyer"

[[traffic_target]]
name = "all"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

const PROXIES: &str = r#"
[[proxy]]
label = "store"
id = "00000000-0000-4000-8000-000000000001"
services = ["store"]
mesh_address = "127.0.1.11:15003"
"#;

/// A split of all calls that the group `all` matches, nested in one of some paths.
const NESTED_SPLIT: &str = r#"
[[service]]
name = "shelf"
service_account = "store"
ports = [{ name = "web", port = 80, protocol = "http" }]

[[traffic_split]]
name = "store"
service = "store"
matches = [{ kind = "HTTPRouteGroup", name = "outer" }]
backends = [{ service = "shelf", weight = 1 }]

[[traffic_split]]
name = "shelf"
service = "shelf"
matches = [{ kind = "HTTPRouteGroup", name = "all" }]
backends = [{ service = "store-gone", weight = 1 }]

[[http_route_group]]
name = "outer"
matches = [{ name = "outer", path_regex = "/shelf" }]
"#;

const BUYER: &str = r#"
[[proxy]]
label = "buyer"
id = "00000000-0000-4000-8000-000000000002"
services = ["buyer"]
mesh_address = "127.0.1.12:15003"
"#;
