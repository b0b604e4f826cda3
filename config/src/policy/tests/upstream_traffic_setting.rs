use std::time::Duration;

use ironmesh_catalog::{RetryLimit, UpstreamSettings};

use super::*;

/// Settings beside a service `store`, with HTTP and TCP, and a client without ports.
fn with(settings: &str) -> String {
    format!(
        "[[service]]\nname = \"store\"\nports = [{{ name = \"web\", port = 80, protocol = \"http\" }}, \
         {{ name = \"sql\", port = 3306, protocol = \"tcp\" }}]\n\
         [[service]]\nname = \"client\"\n{settings}"
    )
}

/// A setting of the store that says this.
fn of_the_store(text: &str) -> String {
    with(&format!("[[upstream_traffic_setting]]\nname = \"s\"\nservice = \"store\"\n{text}\n"))
}

#[test]
fn of_each_setting_the_nearest_object_is_heard_as_a_whole() {
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
    let said: Vec<_> = settings.said(store).into_iter().map(|one| one.by.object).collect();
    assert_eq!(said.len(), 6);
    assert_eq!(said[0], "upstream traffic setting `default/namespace`");
}

#[test]
fn numbers_that_mean_nothing_are_told_where_they_are() {
    for (text, told) in [
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
            "error[IM0105]: `scope` is said of an object that is about one service",
        ),
    ] {
        let found = finding(&of_the_store(text));
        assert!(found.contains(told), "{text}: {found}");
    }
}

#[test]
fn two_that_say_the_same_of_the_same_are_told_with_both_places() {
    let two = |first: &str, second: &str| {
        let one = |name: &str, text: &str| {
            format!("[[upstream_traffic_setting]]\nname = \"{name}\"\n{text}\n")
        };
        findings(&with(&format!("{}{}", one("a", first), one("b", second))))
    };
    let http = "connection_settings.http.max_requests = 1";
    let tcp = "connection_settings.tcp.max_connections = 1";
    for level in ["service = \"store\"", "scope = \"namespace\"", "", "scope = \"mesh\""] {
        let told = two(&format!("{level}\n{http}"), &format!("{level}\n{http}"));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("error[IM0611]: `connection_settings.http` of"), "{told:?}");
        assert_eq!(two(&format!("{level}\n{http}"), &format!("{level}\n{tcp}")), [""; 0]);
    }
    assert_eq!(two(&format!("scope = \"mesh\"\n{http}"), http), [""; 0]);
}

#[test]
fn a_setting_that_does_nothing_is_a_warning() {
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
    let told = of("client", "connection_settings.tcp.max_connections = 1");
    assert!(
        told.contains("warning[IM0612]: what it says does nothing of service `client`"),
        "{told}"
    );
    let told = of("sql", "connection_settings.http.max_requests = 1");
    assert!(told.contains("`connection_settings.http` does nothing of service `sql`"), "{told}");
    let told = of("web", "outlier_detection.consecutive_5xx = 1");
    assert!(told.contains("`outlier_detection` does nothing of service `web`"), "{told}");
    let told = of("stroe", "outlier_detection.consecutive_5xx = 1");
    assert!(told.contains("error[IM0201]: there is no service `stroe`"), "{told}");
}
