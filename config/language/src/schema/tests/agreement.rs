//! The JSON schema and the loader agree: the test removes every key of every example, and gives it values at
//! and beyond its limits.

use std::collections::BTreeMap;

use toml::Value;

use super::keys::below;
use super::validators;
use crate::schema::{KINDS, Shape};
use crate::{Document, load_documents};

/// A key of the conditions on headers in a descriptor.
macro_rules! concat_condition {
    ($key:literal) => {
        concat!(
            "upstream_traffic_setting.rate_limit.global.http.descriptors[].entries[]",
            ".header_value_match.headers[].",
            $key
        )
    };
}

/// The values that only the loader rejects, by key: the schema cannot express the check.
const LOADER_ALONE: [(&str, &str); 84] = [
    ("service.ports[].name", "required where there are several ports"),
    ("service.ports[].allowed_target_ports", "one port of several; the mesh's own ports"),
    ("service.health", "none of an external service"),
    ("service.health.http", "one of four probes"),
    ("service.health.http.path", "no `#`"),
    ("service.health.http.host", "no user and no path"),
    ("service.health.tcp", "one of four probes"),
    ("service.health.grpc", "one of four probes"),
    ("service.health.command", "one of four probes"),
    ("service.health.port", "a port that the service has"),
    ("service.health.timeout", "at most the interval"),
    ("service.health.interval", "at least the timeout"),
    ("service.external", "an external service has a hostname or a list, and no subsets"),
    ("service.hostname", "of an external service alone; what is no hostname"),
    ("service.resolution", "of an external service alone"),
    ("service.subsets", "none of an external service"),
    ("service.subsets[].name", "another than that of the service"),
    ("service.endpoints.static[].address", "a text that looks like an address and is none"),
    ("service.endpoints.static[].port", "one port of a service with several"),
    ("http_route_group.matches[].path_regex", "what RE2 refuses"),
    ("http_route_group.matches[].headers", "what RE2 refuses"),
    ("traffic_target.namespace", "another than that of the destination"),
    ("traffic_target.destination.namespace", "another than that of the target"),
    ("traffic_target.rules[].kind", "a TCP route with `matches`"),
    ("traffic_target.rules[].matches", "a TCP route with `matches`"),
    ("identity_binding.service_account", "one of three keys, and two not together"),
    ("identity_binding.spiffe_identities", "one of three keys; what is no SPIFFE ID"),
    ("identity_binding.endpoint_labels", "one of three keys, and two not together"),
    ("identity_binding.trusted_providers", "with `endpoint_labels` alone"),
    ("http_route.service", "required with `matches`"),
    ("http_route.matches", "with a service alone"),
    ("http_route.scope", "without a service alone"),
    ("http_route.fault.abort.status", "one of both"),
    ("http_route.fault.abort.grpc_status", "one of both"),
    ("http_route.redirect", "nothing on the way beside it"),
    ("http_route.rewrite.path_prefix", "not with an expression"),
    (
        "http_route.rewrite.path_regex",
        "with what it becomes, and without a prefix; what RE2 refuses",
    ),
    ("http_route.rewrite.substitution", "with an expression alone; groups that there are not"),
    ("http_route.redirect.path", "not with a prefix"),
    ("http_route.redirect.path_prefix", "not with a path"),
    ("retry.retry_policy.retry_on", "a condition that there is not"),
    ("upstream_traffic_setting.connection_settings.http.max_retries", "not with a budget"),
    ("upstream_traffic_setting.connection_settings.http.retry_budget", "not with `max_retries`"),
    ("upstream_traffic_setting.rate_limit.local.http.burst", "not too many with the others"),
    ("upstream_traffic_setting.rate_limit.local.http.requests", "not too many with `burst`"),
    ("upstream_traffic_setting.rate_limit.local.tcp.burst", "not too many with the others"),
    ("upstream_traffic_setting.rate_limit.local.tcp.connections", "not too many with `burst`"),
    ("upstream_traffic_setting.http_routes[].rate_limit.local.http.burst", "not too many"),
    ("upstream_traffic_setting.http_routes[].path_regex", "what RE2 refuses"),
    ("upstream_traffic_setting.rate_limit.global.http.rate_limit_service.host", "what is no host"),
    ("upstream_traffic_setting.rate_limit.global.tcp.rate_limit_service.host", "what is no host"),
    (
        "upstream_traffic_setting.http_routes[].rate_limit.global.descriptors[].entries[].remote_address",
        "one of four",
    ),
    (
        "upstream_traffic_setting.rate_limit.global.http.descriptors[].entries[].remote_address",
        "one of four",
    ),
    (concat_condition!("exact"), "one of six"),
    (concat_condition!("prefix"), "one of six"),
    (concat_condition!("suffix"), "one of six"),
    (concat_condition!("contains"), "one of six"),
    (concat_condition!("regex"), "one of six; what RE2 refuses"),
    (concat_condition!("present"), "one of six"),
    ("ingress_backend.namespace", "a source of kind `Service` is looked up there"),
    ("ingress_backend.backends[].port.protocol", "`http` with `tls`, `https` without"),
    ("ingress_backend.backends[].port.ingress_port", "of `http` alone"),
    ("ingress_backend.backends[].tls", "of `https` alone"),
    ("ingress_backend.backends[].tls.sni_hosts", "what is no hostname"),
    ("ingress_backend.backends[].tls.skip_client_cert_validation", "with principals"),
    ("ingress_backend.sources[].kind", "a name of another kind"),
    ("ingress_backend.sources[].name", "what is none of its kind"),
    ("ingress_backend.sources[].namespace", "of kind `Service` alone"),
    ("telemetry.scope", "none of one service"),
    ("telemetry.service", "none together with a scope"),
    ("telemetry.access_log.format", "what Envoy refuses"),
    ("telemetry.access_log.sink.file", "one of two keys"),
    ("telemetry.access_log.sink.open_telemetry", "one of two keys"),
    ("telemetry.access_log.sink.attributes", "of records for a collector alone"),
    ("telemetry.access_log.sink.open_telemetry.host", "what is no hostname"),
    ("telemetry.access_log.filter.slower_than", "what is no duration"),
    ("telemetry.tracing.open_telemetry.host", "what is no hostname"),
    ("egress.hosts", "requests need them; what is no hostname"),
    ("egress.ip_addresses", "what is no range"),
    ("egress.ports", "matches need a port of HTTP"),
    ("egress.ports[].number", "ports of the mesh"),
    ("egress.ports[].protocol", "requests need hosts, and matches requests"),
    ("egress.matches", "they need requests"),
    ("egress.matches[].kind", "they need requests"),
];

#[test]
fn loader_and_json_schema_agree_on_every_key_and_limit() {
    let [validator, _] = validators();
    let mut tried = 0;
    for kind in KINDS {
        let document: toml::Table = kind.example.parse().unwrap();
        let mut places = ExamplesByKey::new();
        for object in document[kind.kind.key()].as_array().unwrap() {
            find_places(&kind.shape, object, &[], kind.kind.key(), &mut places);
        }
        for (name, (object, path)) in places {
            for value in probes() {
                let mut changed = object.clone();
                change(&mut changed, &path, value.as_ref());
                let document =
                    toml::Table::from_iter([(kind.kind.key().to_owned(), vec![changed].into())]);
                let text = document.to_string();
                let is_accepted = is_accepted(&text);
                let is_valid = validator.is_valid(&serde_json::to_value(document).unwrap());
                let is_of_loader = LOADER_ALONE.iter().any(|(key, _)| name == *key);
                let agree = is_accepted == is_valid || (is_valid && is_of_loader);
                assert!(
                    agree,
                    "`{name}` = {value:?}: taken by the loader: {is_accepted}, valid by the schema: \
                     {is_valid}\n{text}"
                );
                tried += 1;
            }
        }
    }
    assert!(tried > 1000, "only {tried} were tried");
}

#[derive(Debug, Clone)]
enum Step {
    Key(&'static str),
    Item(usize),
}

/// What a key is called → the first object of the example that has a place for it, and which that is.
type ExamplesByKey = BTreeMap<String, (Value, Vec<Step>)>;

fn find_places(
    shape: &'static Shape,
    object: &Value,
    path: &[Step],
    name: &str,
    places: &mut ExamplesByKey,
) {
    // And a key that there is not.
    for key in shape.keys.iter().map(|key| key.name).chain(["zzz"]) {
        let path = [path, &[Step::Key(key)]].concat();
        places.entry(format!("{name}.{key}")).or_insert_with(|| (object.clone(), path));
    }
    let table = at(object, path);
    for key in shape.keys {
        let (Some(inner), Some(value)) = (below(&key.form), table.get(key.name)) else { continue };
        let (name, step) = (format!("{name}.{}", key.name), Step::Key(key.name));
        let items = value.as_array().map_or(0, Vec::len);
        for number in 0..items {
            let path = [path, &[step.clone(), Step::Item(number)]].concat();
            find_places(inner, object, &path, &format!("{name}[]"), places);
        }
        if value.is_table() {
            find_places(inner, object, &[path, &[step]].concat(), &name, places);
        }
    }
}

fn at<'a>(object: &'a Value, path: &[Step]) -> &'a Value {
    path.iter().fold(object, |value, step| match step {
        Step::Key(key) => &value[*key],
        Step::Item(number) => &value[*number],
    })
}

/// What a key is changed into; `None` takes it out.
fn probes() -> Vec<Option<Value>> {
    let long_name = "a".repeat(64);
    let [longer, longest] = [257, 4097].map(|length| "a".repeat(length));
    let texts = ["", "a", "A", "-a", "*", "strict", "http", "::1", "a\nb", &long_name];
    let texts = texts.into_iter().chain([&*longer, &longest]);
    let numbers = [-1_i64, 0, 1, 65_535, 65_536, 4_294_967_295, 4_294_967_296];
    let tables = ["", "a = 'b'", "a = 1", "'a b' = 'c'", "a = ''"];
    let texts = texts.map(Value::from);
    let numbers = numbers.into_iter().map(Value::from);
    let tables = tables.into_iter().map(|text| Value::Table(text.parse().unwrap()));
    let others = [Value::Boolean(true), Value::Float(1.5)];
    let single: Vec<Value> = texts.chain(numbers).chain(tables).chain(others).collect();
    let lists = ["[]", "['a']", "['A']", "['GET']", "[0]", "[1]", "[65535]", "[65536]", "[{}]"];
    let lists = lists.into_iter().map(|text| text.parse().unwrap());
    [None].into_iter().chain(single.into_iter().chain(lists).map(Some)).collect()
}

fn change(object: &mut Value, path: &[Step], value: Option<&Value>) {
    let (last, before) = path.split_last().unwrap();
    let table = before.iter().fold(object, |value, step| match step {
        Step::Key(key) => &mut value[*key],
        Step::Item(number) => &mut value[*number],
    });
    let Step::Key(key) = last else { panic!("{path:?} ends in an item") };
    let table = table.as_table_mut().unwrap();
    match value {
        Some(value) => table.insert((*key).to_owned(), value.clone()),
        None => table.remove(*key),
    };
}

/// Whether the loader finds the document well-formed; missing references do not count.
fn is_accepted(text: &str) -> bool {
    let loaded = load_documents([Document::new("p.toml", text)]);
    // Keys, types, values and names; weights that are out of range, expressions, and empty lists.
    let of_shape = |code| (101..=106).contains(&code) || [302, 304, 662].contains(&code);
    !loaded.findings.iter().any(|finding| {
        let out_of_range = finding.code.0 == 301 && finding.message.contains("must be from");
        finding.is_error() && (of_shape(finding.code.0) || out_of_range)
    })
}
