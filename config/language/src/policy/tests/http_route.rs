//! `[[http_route]]` and `[[retry]]`: scopes, timeouts, retries and faults.

use std::time::Duration;

use ironmesh_catalog::http_routes::{HttpRoutes, Treatment};
use ironmesh_catalog::{HttpRoute, Level, Reach, Retries};

use super::*;

/// Policy with services `a` and `b`, a caller, a route group and `text`.
fn with_services(text: &str) -> String {
    let text = format!(
        "{text}\n[[service]]\nname = \"buyer\"\n[[http_route_group]]\nname = \"g\"\n\
         matches = [{{ name = \"m\", path_regex = \"/m\" }}, {{ name = \"n\" }}]\n\
         [[tcp_route]]\nname = \"all\"\n[[traffic_target]]\nname = \"t\"\n\
         destination = {{ name = \"a\" }}\nsources = [{{ name = \"buyer\" }}]\n\
         rules = [{{ kind = \"HTTPRouteGroup\", name = \"g\", matches = [\"n\"] }}]\n"
    );
    with_service("a", &text)
}

/// An HTTP route of that name, with these keys.
fn route(name: &str, keys: &str) -> String {
    format!("[[http_route]]\nname = \"{name}\"\n{keys}\n")
}

const SEARCH: &str =
    "service = \"a\"\nmatches = [{ kind = \"HTTPRouteGroup\", name = \"g\", matches = [\"m\"] }]";

#[test]
fn http_route_scope_is_read_and_the_most_specific_route_wins() {
    let text = [
        route("all", "scope = \"mesh\"\ntimeout = \"1m\""),
        route("here", "retries = { num_retries = 0 }"),
        route("of-a", "service = \"a\"\ntimeout = \"0s\"\nsources = [{ name = \"buyer\" }]"),
        route("some", &format!("{SEARCH}\ntimeout = \"1500ms\"")),
    ];
    let specification = specification(&with_services(&text.concat()));
    let reach: Vec<_> = specification.http_routes.values().map(|one| one.reach.clone()).collect();
    let service = "a".parse().unwrap();
    let here = Level::Namespace("default".parse().unwrap());
    let levels = [Level::Mesh, here, Level::Service(service)];
    assert_eq!(reach[..3], levels.map(Reach::All));
    let Reach::Requests(_, matches) = &reach[3] else { panic!("{reach:?}") };
    assert_eq!(matches.len(), 1);
    // For each setting the most specific object wins; 0 is a value, too.
    let all = HttpRoutes::of_specification(&specification);
    let treatments = all.treatments(&"buyer".parse().unwrap(), &"a".parse().unwrap());
    let times: Vec<_> = treatments.iter().map(Treatment::timeout).collect();
    assert_eq!(times, [Some(Duration::from_millis(1500)), None]);
    assert!(treatments.iter().all(|one| one.retries().count == 0));
    let others = all.treatments(&"a".parse().unwrap(), &"a".parse().unwrap());
    assert_eq!(others[1].timeout(), Some(Duration::from_secs(60)));
}

#[test]
fn retry_conditions_are_envoy_words_and_statuses() {
    let text = route(
        "r",
        "retries = { retry_on = [\"5xx\", \"503\", \"5xx\", \"unavailable\", \"retriable-status-codes\"] }",
    ) + "[[retry]]\nname = \"o\"\nsource = { name = \"buyer\" }\ndestinations = [{ name = \"a\" }]\n\
         retry_policy = { retry_on = \" reset , 429,5xx\", retry_backoff_base_interval = \"1ms\" }\n";
    let specification = specification(&with_services(&text));
    let route: &HttpRoute = specification.http_routes.values().next().unwrap();
    let retries = route.settings.retries.as_ref().unwrap();
    assert_eq!(retries.on(), "5xx,unavailable,retriable-status-codes");
    assert_eq!((retries.statuses.as_slice(), retries.count), (&[503][..], 1));
    let retry = specification.retries.values().next().unwrap();
    assert_eq!(retry.retries.on(), "reset,5xx,retriable-status-codes");
    assert_eq!(retry.retries.base_interval, Some(Duration::from_millis(1)));
    // Every condition that Envoy knows is accepted.
    let words = Retries::CONDITIONS.map(|word| format!("\"{word}\"")).join(", ");
    let all = route_text(&format!("retries = {{ retry_on = [{words}, \"503\"] }}"));
    assert_eq!(findings(&with_services(&all)), [""; 0]);
}

fn route_text(keys: &str) -> String {
    route("r", keys)
}

#[test]
fn invalid_http_route_settings_are_reported() {
    for (keys, expected) in [
        ("", "error[IM0103]: an HTTP route needs `timeout` or `retries`"),
        ("timeout = \"-1s\"", "error[IM0105]: `timeout` must be a duration: `-1s`"),
        ("timeout = \"25h\"", "error[IM0105]: `timeout` must be from 0s to 1d: `25h`"),
        ("timeout = \"1us\"", "error[IM0105]: `timeout` must be whole milliseconds"),
        ("timeout = 5", "error[IM0104]: `timeout` must be a string, not an integer"),
        ("timeout = \"soon\"", "error[IM0105]: `timeout` must be a duration: `soon`"),
        (
            "timeout = \"1s\"\nretries = { per_try_timeout = \"1s\" }",
            "error[IM0105]: one try may take 1s, and the request with all of its tries 1s",
        ),
        ("retries = { num_retries = -1 }", "error[IM0105]: `num_retries` must be from 0 to 100"),
        ("retries = { num_retries = 101 }", "error[IM0105]: `num_retries` must be from 0 to 100"),
        (
            "retries = { per_try_timeout = \"0s\" }",
            "error[IM0105]: `per_try_timeout` must be from 1ms to 60m: `0s`",
        ),
        ("retries = { retry_on = [] }", "error[IM0304]: `retry_on` is empty"),
        (
            "retries = { retry_on = [\"5XX\"] }",
            "error[IM0105]: there is no condition `5XX` for a retry",
        ),
        (
            "retries = { retry_on = [\"600\"] }",
            "error[IM0105]: there is no condition `600` for a retry",
        ),
        (
            "retries = { retry_on = [\"retriable-status-codes\"] }",
            "error[IM0105]: `retriable-status-codes` needs a status",
        ),
        (
            "retries = { backoff_max_interval = \"10ms\" }",
            "error[IM0105]: the first retry comes after 25ms, and none waits for longer than 10ms",
        ),
        ("scope = \"world\"\ntimeout = \"1s\"", "error[IM0105]: there is no scope `world`"),
        (
            "service = \"a\"\nscope = \"mesh\"\ntimeout = \"1s\"",
            "error[IM0105]: `scope` has no meaning for an object of one service",
        ),
        ("service = \"z\"\ntimeout = \"1s\"", "error[IM0201]: there is no service `z`"),
        ("sources = [{ name = \"z\" }]\ntimeout = \"1s\"", "error[IM0201]: no service runs as `z`"),
        ("sources = []\ntimeout = \"1s\"", "error[IM0304]: `sources` is empty"),
    ] {
        let reported = finding(&with_services(&route("r", keys)));
        assert!(reported.starts_with(expected), "{keys}: {reported}");
    }
    let without = route("r", &SEARCH.replace("service = \"a\"\n", "timeout = \"1s\"\n"));
    let reported = finding(&with_services(&without));
    assert!(
        reported.starts_with("error[IM0103]: an HTTP route with `matches` needs"),
        "{reported}"
    );
    let osm = "[[retry]]\nname = \"o\"\nsource = { name = \"buyer\" }\n\
               destinations = [{ name = \"a\" }]\nretry_policy = { retry_on = \"5xx,sometimes\" }\n";
    let reported = finding(&with_services(osm));
    assert!(reported.contains("there is no condition `sometimes` for a retry"), "{reported}");
}

#[test]
fn conflicting_http_routes_of_one_level_are_reported() {
    let time = |name: &str, keys: &str| route(name, &format!("{keys}\ntimeout = \"1s\""));
    let (of_a, of_buyer) = ("service = \"a\"", "service = \"a\"\nsources = [{ name = \"buyer\" }]");
    let of_server = "service = \"a\"\nsources = [{ name = \"a\" }]";
    let all = "scope = \"mesh\"";
    for (one, other) in [(of_a, of_a), (of_buyer, of_a), (of_a, of_buyer), (all, all), ("", "")] {
        let reported = finding(&with_services(&(time("r1", one) + &time("r2", other))));
        assert!(reported.starts_with("error[IM0601]: two HTTP routes set `timeout`"), "{reported}");
    }
    for (one, other) in [(of_buyer, of_server), (of_a, all), (of_a, SEARCH), (SEARCH, SEARCH)] {
        assert_eq!(findings(&with_services(&(time("r1", one) + &time("r2", other)))), [""; 0]);
    }
    let another = route("r2", "service = \"a\"\nretries = { num_retries = 2 }");
    assert_eq!(findings(&with_services(&(time("r1", of_a) + &another))), [""; 0]);
    let retry = |name: &str| {
        format!(
            "[[retry]]\nname = \"{name}\"\nsource = {{ name = \"buyer\" }}\n\
             destinations = [{{ name = \"a\" }}]\nretry_policy = {{ retry_on = \"5xx\" }}\n"
        )
    };
    let reported = finding(&with_services(&(retry("o1") + &retry("o2"))));
    assert!(reported.starts_with("error[IM0601]: two retries apply to calls of"), "{reported}");
}

#[test]
fn http_route_without_effect_is_a_warning() {
    let of_client = route("r", "service = \"buyer\"\ntimeout = \"1s\"");
    let reported = finding(&with_services(&of_client));
    assert!(
        reported.starts_with("warning[IM0602]: this has no effect: service `buyer` has no"),
        "{reported}"
    );
    let tries = route("r1", "retries = { per_try_timeout = \"2s\" }")
        + &route("r2", "service = \"a\"\ntimeout = \"1s\"");
    let reported = finding(&with_services(&tries));
    assert!(
        reported.starts_with("warning[IM0602]: one try may take 2s, and the request with"),
        "{reported}"
    );
}

#[test]
fn too_many_generated_routes_are_an_error() {
    let matches: Vec<_> =
        (0..40).map(|n| format!("{{ name = \"x{n}\", path_regex = \"/{n}$\" }}")).collect();
    let group =
        format!("[[http_route_group]]\nname = \"many\"\nmatches = [{}]\n", matches.join(", "));
    let named = |n: usize| {
        format!("[{{ kind = \"HTTPRouteGroup\", name = \"many\", matches = [\"x{n}\"] }}]")
    };
    let split = |n: usize| {
        format!(
            "[[traffic_split]]\nname = \"s{n}\"\nservice = \"a\"\nmatches = {}\n\
             backends = [{{ service = \"a\", weight = 1 }}]\n",
            named(n)
        )
    };
    let names: Vec<_> = (20..40).map(|n| format!("x{n}")).collect();
    let all = format!(
        "service = \"a\"\nmatches = [{{ kind = \"HTTPRouteGroup\", name = \"many\", matches = {names:?} }}]\n\
         timeout = \"1s\""
    );
    let splits = |count: usize| (0..count).map(split).collect::<String>();
    let few = with_services(&(group.clone() + &splits(10) + &route("r", &all)));
    assert_eq!(findings(&few), [""; 0]);
    let reported = finding(&with_services(&(group + &splits(20) + &route("r", &all))));
    assert!(
        reported.starts_with("error[IM0113]: HTTP routes make more than 256 routes to service `a`"),
        "{reported}"
    );
}

#[test]
fn fault_is_read_and_invalid_fault_is_reported() {
    let text = route(
        "r",
        "fault = { delay = { duration = \"2s\", percent = 0.0125 }, abort = { grpc_status = 14, percent = 100 } }",
    );
    let specification = specification(&with_services(&text));
    let route: &HttpRoute = specification.http_routes.values().next().unwrap();
    let fault = route.settings.fault.as_ref().unwrap();
    assert_eq!(fault.to_string(), "0.0125 % wait 2s; 100 % get the gRPC status 14");
    for (fault, expected) in [
        ("{}", "error[IM0103]: a fault needs `delay` or `abort`"),
        ("{ delay = { duration = \"1s\" } }", "error[IM0103]: a delay needs `percent`"),
        (
            "{ delay = { duration = \"2h\", percent = 1 } }",
            "error[IM0105]: `duration` must be from 1ms to 60m: `2h`",
        ),
        (
            "{ abort = { status = 503, percent = 100.1 } }",
            "error[IM0105]: `percent` must be from 0 to 100, with 4 decimals at most: `100.1`",
        ),
        (
            "{ abort = { status = 503, percent = 0.00001 } }",
            "error[IM0105]: `percent` must be from 0 to 100, with 4 decimals at most: `0.00001`",
        ),
        ("{ abort = { status = 503, percent = -1 } }", "error[IM0105]: `percent` must be from 0"),
        ("{ abort = { status = 503, percent = 1e1 } }", "error[IM0105]: `percent` must be from 0"),
        ("{ abort = { status = 503, percent = nan } }", "error[IM0105]: `percent` must be from 0"),
        ("{ abort = { status = 99, percent = 1 } }", "error[IM0105]: `status` must be from 200"),
        ("{ abort = { percent = 1 } }", "error[IM0103]: an abort needs `status` or `grpc_status`"),
        (
            "{ abort = { status = 503, grpc_status = 14, percent = 1 } }",
            "error[IM0105]: an abort has `status` or `grpc_status`, not both",
        ),
    ] {
        let reported = finding(&with_services(&self::route("r", &format!("fault = {fault}"))));
        assert!(reported.starts_with(expected), "{fault}: {reported}");
    }
}
