//! `[[upstream_traffic_setting]]`.

use std::time::Duration;

use ironmesh_catalog::{RetryLimit, UpstreamSettings};

use super::*;

/// Policy with these settings, a service `store` with an HTTP and a TCP port, and a client.
fn with(settings: &str) -> String {
    format!(
        "[[service]]\nname = \"store\"\nports = [{{ name = \"web\", port = 80, protocol = \"http\" }}, \
         {{ name = \"sql\", port = 3306, protocol = \"tcp\" }}]\n\
         [[service]]\nname = \"client\"\n{settings}"
    )
}

/// Policy with an upstream traffic setting of the store that has these keys.
fn of_the_store(text: &str) -> String {
    with(&format!("[[upstream_traffic_setting]]\nname = \"s\"\nservice = \"store\"\n{text}\n"))
}

#[test]
fn most_specific_object_wins_for_each_setting_as_a_whole() {
    let specification = specification(&with(
        r#"
[[upstream_traffic_setting]]
name = "mesh"
scope = "mesh"
connection_settings.tcp.max_connections = 1
connection_settings.http.max_requests = 1
outlier_detection.consecutive_5xx = 1

[[upstream_traffic_setting]]
name = "namespace"
connection_settings.tcp.connect_timeout = "2ms"
connection_settings.http.max_requests = 2

[[upstream_traffic_setting]]
name = "store"
service = "store"
connection_settings.http.retry_budget.percent = 3
"#,
    ));
    let settings = UpstreamSettings::of(&specification);
    let store = specification.services.values().find(|one| one.name.name.as_str() == "store");
    let store = store.unwrap();
    let tcp = settings.tcp(store).unwrap();
    assert_eq!((tcp.max_connections, tcp.connect_timeout), (None, Some(Duration::from_millis(2))));
    let http = settings.http(store).unwrap();
    let budget = RetryLimit::Budget { percent: 3, min_concurrency: None };
    assert_eq!((http.max_requests, http.retries), (None, Some(budget)));
    assert_eq!(settings.outlier_detection(store).unwrap().consecutive_5xx, Some(1));
    let said: Vec<_> = settings.effective(store).into_iter().map(|one| one.by.object).collect();
    assert_eq!(said.len(), 6);
    assert_eq!(said[0], "upstream traffic setting `default/namespace`");
}

#[test]
fn invalid_numbers_are_reported_at_their_location() {
    for (text, reported) in [
        ("connection_settings.tcp.max_connections = 0", "to 4294967295: `0` (p.toml:9:43)"),
        (
            "connection_settings.tcp.max_connections = 4294967296",
            "`max_connections` must be from 1",
        ),
        ("connection_settings.tcp.connect_timeout = \"0s\"", "must be from 1ms to 60m: `0s`"),
        ("connection_settings.tcp.connect_timeout = \"-1s\"", "must be a duration: `-1s`"),
        ("connection_settings.http.max_retries = -1", "must be from 0 to 4294967295: `-1`"),
        ("connection_settings.http.retry_budget.percent = 101", "must be from 1 to 100: `101`"),
        ("outlier_detection = { consecutive_5xx = 0 }", "must be from 1 to 4294967295: `0`"),
        (
            "outlier_detection = { interval = \"1s\" }",
            "error[IM0103]: `outlier_detection` is empty",
        ),
        (
            "outlier_detection = { consecutive_5xx = 1, max_ejection_percent = 200 }",
            "must be from 1 to 100: `200`",
        ),
        ("connection_settings = {}", "error[IM0103]: `connection_settings` is empty"),
        ("connection_settings.http = {}", "error[IM0103]: `http` is empty"),
        ("", "error[IM0103]: an upstream traffic setting needs a setting"),
        (
            "connection_settings.http = { max_retries = 1, retry_budget = { percent = 1 } }",
            "`retry_budget` and `max_retries` are two limits of the same retries",
        ),
        (
            "scope = \"mesh\"\nconnection_settings.tcp.max_connections = 1",
            "error[IM0105]: `scope` has no meaning for an object of one service",
        ),
    ] {
        let found = finding(&of_the_store(text));
        assert!(found.contains(reported), "{text}: {found}");
    }
}

#[test]
fn duplicate_settings_of_one_level_are_reported() {
    let two = |first: &str, second: &str| {
        let one = |name: &str, text: &str| {
            format!("[[upstream_traffic_setting]]\nname = \"{name}\"\n{text}\n")
        };
        findings(&with(&format!("{}{}", one("a", first), one("b", second))))
    };
    let http = "connection_settings.http.max_requests = 1";
    let tcp = "connection_settings.tcp.max_connections = 1";
    for level in ["service = \"store\"", "scope = \"namespace\"", "", "scope = \"mesh\""] {
        let reported = two(&format!("{level}\n{http}"), &format!("{level}\n{http}"));
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert!(
            reported[0].contains("error[IM0611]: `connection_settings.http` of"),
            "{reported:?}"
        );
        assert_eq!(two(&format!("{level}\n{http}"), &format!("{level}\n{tcp}")), [""; 0]);
    }
    assert_eq!(two(&format!("scope = \"mesh\"\n{http}"), http), [""; 0]);
}

#[test]
fn setting_without_effect_is_a_warning() {
    let of = |service: &str, text: &str| {
        let setting =
            format!("[[upstream_traffic_setting]]\nname = \"s\"\nservice = \"{service}\"");
        finding(&with(&format!(
            "{setting}\n{text}\n[[service]]\nname = \"sql\"\n\
             ports = [{{ port = 3306, protocol = \"tcp\" }}]\n[[service]]\nname = \"web\"\n\
             external = true\nhostname = \"*.example.com\"\nresolution = \"passthrough\"\n\
             ports = [{{ port = 80, protocol = \"http\" }}]\n"
        )))
    };
    let reported = of("client", "connection_settings.tcp.max_connections = 1");
    assert!(
        reported.contains("warning[IM0612]: the setting has no effect on service `client`"),
        "{reported}"
    );
    let reported = of("sql", "connection_settings.http.max_requests = 1");
    assert!(
        reported.contains("`connection_settings.http` has no effect on service `sql`"),
        "{reported}"
    );
    let reported = of("web", "outlier_detection.consecutive_5xx = 1");
    assert!(reported.contains("`outlier_detection` has no effect on service `web`"), "{reported}");
    let reported = of("web", "locality.prefer_local = \"zone\"");
    assert!(
        reported.contains("`locality` has no effect on service `web`: it is outside"),
        "{reported}"
    );
    let reported = of("stroe", "outlier_detection.consecutive_5xx = 1");
    assert!(reported.contains("error[IM0201]: there is no service `stroe`"), "{reported}");
}

#[test]
fn invalid_localities_are_reported() {
    let failover =
        |text: &str| format!("locality = {{ prefer_local = \"zone\", failover = [{text}] }}");
    let shares = |text: &str| format!("locality.distribute = [{{ to = [{text}] }}]");
    let share =
        |place: &str, weight: u32| format!("{{ locality = \"{place}\", weight = {weight} }}");
    let two = |one: String, other: String| shares(&format!("{one}, {other}"));
    for (text, reported) in [
        ("locality = {}".to_owned(), "error[IM0103]: `locality` is empty"),
        ("locality.prefer_local = \"rack\"".to_owned(), "there is no nearness `rack`"),
        (
            "locality.failover = [{ to = [\"eu\"] }]".to_owned(),
            "error[IM0103]: `failover` has no start",
        ),
        (failover(""), "error[IM0304]: `failover` is empty"),
        (failover("{ to = [] }"), "error[IM0304]: `to` is empty"),
        (failover("{ from = \"eu\" }"), "error[IM0103]: a failover needs `to`"),
        (
            failover("{ from = \"eu\", to = [\"us\", \"eu\"] }"),
            "error[IM0105]: `eu` fails over to itself",
        ),
        (failover("{ to = [\"us\", \"us\"] }"), "error[IM0202]: `us` is named twice"),
        (failover("{ to = [\"us\", \"us/1\"] }"), "`us/1` is in `us`, which comes before"),
        (failover("{ to = [\"eu/*\"] }"), "error[IM0105]: `to` may have no spaces, no `*`"),
        (failover("{ to = [\"eu/\"] }"), "`to` has nothing behind its last `/`: `eu/`"),
        (failover("{ from = \"a/b/c/d\", to = [\"eu\"] }"), "`from` has more than a region"),
        (
            failover("{ from = \"eu\", to = [\"us\"] }, { from = \"eu\", to = [\"ap\"] }"),
            "error[IM0202]: `failover` is set twice for `eu`",
        ),
        (
            failover("{ to = [\"us\"] }, { to = [\"ap\"] }"),
            "`failover` is set twice for all others",
        ),
        (shares(&share("eu", 99)), "error[IM0301]: the weights of a distribution are 99 together"),
        (two(share("eu", 50), share("eu", 50)), "error[IM0202]: `eu` is named twice"),
        (two(share("eu/1", 50), share("eu", 50)), "`eu` and `eu/1` have places in common"),
        (shares(&share("eu", 101)), "`weight` must be from 1 to 100: `101`"),
        (shares(&share("", 100)), "`locality` has nothing behind its last `/`: ``"),
    ] {
        let found = finding(&of_the_store(&text));
        assert!(found.contains(reported), "{text}: {found}");
    }
    // The order prefers one region part, and then the rest of the region.
    let ordered = failover("{ to = [\"us/1\", \"us\"] }, { from = \"eu/1\", to = [\"eu\"] }");
    assert_eq!(findings(&of_the_store(&ordered)), [""; 0]);
}

#[test]
fn tcp_rate_limit_descriptors_accept_only_plain_values() {
    let queries = |text: &str| {
        format!(
            "rate_limit.global.tcp = {{ rate_limit_service = {{ host = \"10.0.0.9\", port = 80 }}, \
             domain = \"d\"{text} }}"
        )
    };
    let entry = |entry: &str| queries(&format!(", descriptors = [{{ entries = [{entry}] }}]"));
    for (text, reported) in [
        ("rate_limit.global = {}".to_owned(), "error[IM0103]: `global` is empty"),
        (queries(""), "error[IM0103]: `rate_limit.global.tcp` needs `descriptors`"),
        (queries(", descriptors = []"), "error[IM0304]: `descriptors` is empty"),
        (entry(""), "error[IM0304]: `entries` is empty"),
        (entry("{ key = \"k\" }"), "error[IM0103]: an entry of connections needs `value`"),
        (
            entry("{ key = \"k\", value = \"%X%\" }"),
            "the value of an entry has no `%` in it: `%X%`",
        ),
        (entry("{ generic_key = { value = \"v\" } }"), "has no key `generic_key`"),
    ] {
        let found = findings(&of_the_store(&text)).join("\n");
        assert!(found.contains(reported), "{text}: {found}");
    }
    let good = entry("{ key = \"k\", value = \"v\" }, { key = \"l\", value = \"w\" }");
    let specification = specification(&of_the_store(&good));
    let store = specification.services.values().find(|one| one.name.name.as_str() == "store");
    let said = UpstreamSettings::of(&specification).effective(store.unwrap());
    let said: Vec<_> = said.iter().map(|one| format!("{} = {}", one.key, one.value)).collect();
    assert_eq!(
        said,
        [
            "rate_limit.global.tcp = quota of 10.0.0.9:80 for domain `d` (allowed without an answer in 20ms), by (k=v l=w)"
        ]
    );
}

#[test]
fn locality_settings_are_described_in_words() {
    let specification = specification(&of_the_store(
        "[upstream_traffic_setting.locality]\nprefer_local = \"sub_zone\"\n\
         failover = [{ from = \"eu\", to = [\"us\", \"ap/1\"] }, { to = [\"eu\"] }]\n\
         distribute = [{ to = [{ locality = \"eu\", weight = 90 }, { locality = \"us\", weight = 10 }] }]",
    ));
    let store = specification.services.values().find(|one| one.name.name.as_str() == "store");
    let said = UpstreamSettings::of(&specification).effective(store.unwrap());
    let said: Vec<_> = said.iter().map(|one| format!("{} = {}", one.key, one.value)).collect();
    assert_eq!(
        said,
        [
            "locality.prefer_local = sub_zone",
            "locality.failover = from eu to us, then ap/1",
            "locality.failover = to eu",
            "locality.distribute = 90 % to eu, 10 % to us",
        ]
    );
}

#[test]
fn invalid_rate_limits_are_reported() {
    let http = |text: &str| format!("rate_limit.local.http = {{ {text} }}");
    let rate = "requests = 1, unit = \"second\"";
    let with_header =
        |header: &str| http(&format!("{rate}, response_headers_to_add = [{{ {header} }}]"));
    let route = format!("{{ path_regex = \"/a\", rate_limit.local.http = {{ {rate} }} }}");
    for (text, reported) in [
        (http("requests = 1"), "error[IM0103]: `rate_limit.local.http` needs `unit`"),
        (http("unit = \"second\""), "error[IM0103]: `rate_limit.local.http` needs `requests`"),
        (http("requests = 0, unit = \"second\""), "`requests` must be from 1 to"),
        (http("requests = 1, unit = \"day\""), "error[IM0105]: there is no unit `day`"),
        (
            http("requests = 4294967295, unit = \"hour\", burst = 1"),
            "`requests` and `burst` are more than 4294967295 together",
        ),
        (
            http(&format!("{rate}, response_status_code = 200")),
            "`response_status_code` must be from 400 to 599: `200`",
        ),
        (
            http(&format!("{rate}, response_status_code = 418")),
            "Envoy limits no rate with a status of 418",
        ),
        (
            http(&format!("{rate}, response_status_code = 512")),
            "Envoy limits no rate with a status of 512",
        ),
        (with_header("name = \":status\", value = \"x\""), "`:status` cannot be set on a response"),
        (with_header("name = \"Host\", value = \"x\""), "`host` cannot be set on a response"),
        (with_header("name = \"a\", value = \"x\\r\\ny: z\""), "without control characters"),
        ("rate_limit = {}".to_owned(), "error[IM0103]: `rate_limit` is empty"),
        ("rate_limit.local = {}".to_owned(), "error[IM0103]: `local` is empty"),
        ("http_routes = []".to_owned(), "error[IM0304]: `http_routes` is empty"),
        (
            format!("http_routes = [{route}, {route}]"),
            "error[IM0202]: the route `/a` is given twice",
        ),
        (format!("http_routes = [{}]", route.replace("/a", "/(")), "error[IM0302]"),
    ] {
        let found = finding(&of_the_store(&text));
        assert!(found.contains(reported), "{text}: {found}");
    }
}
