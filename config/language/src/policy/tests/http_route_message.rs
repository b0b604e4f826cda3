//! `[[http_route]]` settings for messages: headers, rewrites, redirects and mirrors.

use ironmesh_catalog::http_routes::HttpRoutes;
use ironmesh_catalog::{CallSettings, HttpRoute};

use super::*;

/// Policy with an HTTP route `r` of service `a` that has `keys`.
///
/// Services `a`, `b` and `c` have the HTTP port 14001, `rpc` has one more port, `tcp` has no HTTP
/// port, and `out` is external. `buyer` may call `a` and `b`, and `cook` may call `c`.
fn policy(keys: &str) -> String {
    let service =
        |name: &str, ports: &str| format!("[[service]]\nname = \"{name}\"\nports = [{ports}]\n");
    let web = "{ name = \"web\", port = 14001, protocol = \"http\" }";
    let rpc = "{ name = \"rpc\", port = 14002, protocol = \"grpc\" }";
    let target = |name: &str, source: &str| {
        format!(
            "[[traffic_target]]\nname = \"{name}\"\ndestination = {{ name = \"{name}\" }}\n\
             sources = [{{ name = \"{source}\" }}]\nrules = [{{ kind = \"TCPRoute\", name = \"all\" }}]\n"
        )
    };
    [
        service("a", &format!("{web}, {rpc}")),
        service("b", &format!("{web}, {rpc}")),
        service("c", &format!("{web}, {rpc}")),
        service("web", web),
        service("tcp", "{ port = 14001, protocol = \"tcp\" }"),
        service("out", &format!("{web}, {rpc}"))
            + "external = true\nhostname = \"*.out.example\"\nresolution = \"passthrough\"\n",
        "[[service]]\nname = \"buyer\"\n[[service]]\nname = \"cook\"\n[[tcp_route]]\nname = \"all\"\n"
            .to_owned(),
        ["a", "b", "web", "tcp", "out"].map(|name| target(name, "buyer")).concat(),
        target("c", "cook"),
        format!("[[http_route]]\nname = \"r\"\nservice = \"a\"\n{keys}\n"),
    ]
    .concat()
}

fn settings(keys: &str) -> CallSettings {
    let specification = specification(&policy(keys));
    let route: &HttpRoute = specification.http_routes.values().next().unwrap();
    route.settings.clone()
}

#[test]
fn message_settings_are_described_in_words() {
    let said = settings(
        "allow_override_headers = true\nmirror = { service = \"b\", percent = 0.5 }\n\
         request_headers = { set = { X-Tier = \"100 %\" }, add = { x-b = \"c\" }, remove = [\"X-D\"] }\n\
         response_headers = { remove = [\"server\"] }\n\
         rewrite = { path_regex = \"/a/([^/]+)\", substitution = '/b/\\1', host = \"b.example:80\" }",
    );
    assert_eq!(
        said.descriptions(),
        [
            ("request_headers", "x-tier = `100 %`; x-b also `c`; no x-d".to_owned()),
            ("response_headers", "no server".to_owned()),
            ("rewrite", "path `/a/([^/]+)` → `/b/\\1`; host `b.example:80`".to_owned()),
            ("mirror", "0.5 % go to default/b as well".to_owned()),
            ("allow_override_headers", "true".to_owned()),
        ]
    );
    let said = settings(
        "redirect = { status = 307, host = \"b.example\", path_prefix = { from = \"/a/\", to = \"/\" } }",
    );
    assert_eq!(
        said.descriptions(),
        [("redirect", "307 to host `b.example`, path `/a` → `/`".to_owned())]
    );
    assert_eq!(settings("mirror = { service = \"b\" }").mirror.unwrap().percent.0, 1_000_000);
}

#[test]
fn invalid_header_changes_are_reported() {
    let many: Vec<_> = (0..33).map(|n| format!("x-{n} = \"a\"")).collect();
    let many = format!("{{ set = {{ {} }} }}", many.join(", "));
    for (changes, expected) in [
        ("{}", "error[IM0103]: a change of headers needs `set` or `add` or `remove`"),
        ("{ set = {} }", "error[IM0304]: `set` is empty"),
        ("{ remove = [] }", "error[IM0304]: `remove` is empty"),
        ("{ set = { \"x y\" = \"a\" } }", "error[IM0105]: `x y` is not the name of a header"),
        ("{ set = { \":path\" = \"/\" } }", "error[IM0105]: `:path` is not the name of a header"),
        ("{ remove = [\":authority\"] }", "error[IM0105]: `:authority` is not the name"),
        ("{ set = { Host = \"a\" } }", "error[IM0105]: the header `host` is not changed by policy"),
        (
            "{ add = { x-envoy-max-retries = \"9\" } }",
            "error[IM0105]: the header `x-envoy-max-retries`",
        ),
        (
            "{ remove = [\"x-envoy-attempt-count\"] }",
            "error[IM0105]: the header `x-envoy-attempt-count`",
        ),
        (
            "{ set = { x-ironmesh-override-retry-on = \"5xx\" } }",
            "error[IM0105]: the header `x-ironmesh-",
        ),
        (
            "{ set = { X-Forwarded-Client-Cert = \"a\" } }",
            "error[IM0105]: the header `x-forwarded-client",
        ),
        ("{ set = { Content-Length = \"0\" } }", "error[IM0105]: the header `content-length`"),
        ("{ remove = [\"transfer-encoding\"] }", "error[IM0105]: the header `transfer-encoding`"),
        ("{ remove = [\"Connection\"] }", "error[IM0105]: the header `connection`"),
        ("{ remove = [\"te\"] }", "error[IM0105]: the header `te`"),
        ("{ set = { x-a = \"\" } }", "error[IM0105]: the value of header `x-a` must be 1 to 1024"),
        ("{ set = { x-a = \" a\" } }", "error[IM0105]: the value of header `x-a`"),
        ("{ set = { x-a = \"a\\nb\" } }", "error[IM0105]: the value of header `x-a`"),
        ("{ set = { x-a = \"ä\" } }", "error[IM0105]: the value of header `x-a`"),
        ("{ set = { x-a = 1 } }", "error[IM0104]: `x-a` must be a string"),
        (
            "{ set = { x-a = \"1\" }, remove = [\"X-A\"] }",
            "error[IM0202]: header `x-a` is given twice",
        ),
        (
            "{ set = { x-a = \"1\" }, add = { X-a = \"2\" } }",
            "error[IM0202]: header `x-a` is given",
        ),
        ("{ remove = [\"x-a\", \"x-a\"] }", "error[IM0202]: header `x-a` is given twice"),
        (many.as_str(), "error[IM0105]: `request_headers` changes more than 32 headers"),
    ] {
        let reported = finding(&policy(&format!("request_headers = {changes}")));
        assert!(reported.starts_with(expected), "{changes}: {reported}");
    }
    let reported =
        finding(&policy("response_headers = { set = { x-envoy-upstream-service-time = \"1\" } }"));
    assert!(
        reported.starts_with("error[IM0105]: the header `x-envoy-upstream-service-time`"),
        "{reported}"
    );
}

#[test]
fn invalid_rewrites_are_reported() {
    let long = format!("{{ path_prefix = {{ from = \"/{}\", to = \"/\" }} }}", "a".repeat(256));
    for (rewrite, expected) in [
        ("{}", "error[IM0103]: a rewrite needs `path_prefix` or `path_regex` or `host`"),
        ("{ path_prefix = \"/a\" }", "error[IM0104]: `path_prefix` must be a table"),
        ("{ path_prefix = { from = \"/a\" } }", "error[IM0103]: a prefix of paths needs `to`"),
        (
            "{ path_prefix = { from = \"/a\", to = \"/a/\" } }",
            "error[IM0105]: `from` and `to` are equal",
        ),
        (
            "{ path_prefix = { from = \"a\", to = \"/\" } }",
            "error[IM0105]: `a` is not a valid path",
        ),
        (
            "{ path_prefix = { from = \"/a?b\", to = \"/\" } }",
            "error[IM0105]: `/a?b` is not a valid path",
        ),
        (
            "{ path_prefix = { from = \"/a\", to = \"/%2\" } }",
            "error[IM0105]: `/%2` is not a valid path",
        ),
        (
            "{ path_prefix = { from = \"/a\", to = \"/../b\" } }",
            "error[IM0105]: `/../b` is not a valid path",
        ),
        (
            "{ path_prefix = { from = \"//a\", to = \"/b\" } }",
            "error[IM0105]: `//a` is not a valid path",
        ),
        (long.as_str(), "error[IM0105]: `/aaa"),
        ("{ path_regex = \"/a\" }", "error[IM0103]: a rewrite needs `substitution`"),
        ("{ substitution = \"/a\" }", "error[IM0103]: a rewrite needs `path_regex`"),
        (
            "{ path_prefix = { from = \"/a\", to = \"/b\" }, path_regex = \"/a\", substitution = \"/b\" }",
            "error[IM0105]: a rewrite has `path_prefix` or `path_regex`, not both",
        ),
        (
            "{ path_regex = \"(\", substitution = \"/b\" }",
            "error[IM0302]: invalid regular expression",
        ),
        ("{ path_regex = \"/(?=a)\", substitution = \"/b\" }", "error[IM0302]: invalid regular"),
        ("{ path_regex = \"a\", substitution = \"/b\" }", "warning[IM0302]: no path matches `a`"),
        (
            "{ path_regex = \"/a\", substitution = \"b\" }",
            "error[IM0105]: `b` does not begin with `/`",
        ),
        ("{ path_regex = \"/(a)\", substitution = '\\1' }", "error[IM0105]: `\\1` does not begin"),
        (
            "{ path_regex = \"/(a)(?:b)\", substitution = '/\\2' }",
            "error[IM0105]: the expression has 1 groups, and none is `\\2`",
        ),
        (
            "{ path_regex = \"/a\", substitution = '/\\a' }",
            "error[IM0105]: `\\` has the number of a group",
        ),
        (
            "{ path_regex = \"/a\", substitution = '/\\' }",
            "error[IM0105]: `\\` has the number of a group",
        ),
        (
            "{ path_regex = \"/a\", substitution = \"/b?c\" }",
            "error[IM0105]: `/b?c` is not a valid substitution",
        ),
        ("{ host = \"A.example\" }", "error[IM0105]: `A.example` is not a host"),
        ("{ host = \"a.example:0\" }", "error[IM0105]: `a.example:0` is not a host"),
        ("{ host = \"a..example\" }", "error[IM0105]: `a..example` is not a host"),
        ("{ host = \"[::1]\" }", "error[IM0105]: `[::1]` is not a host"),
    ] {
        let reported = finding(&policy(&format!("rewrite = {rewrite}")));
        assert!(reported.starts_with(expected), "{rewrite}: {reported}");
    }
    for good in [
        "{ path_regex = \"/(?P<a>a)(b)?\", substitution = '/\\2\\1\\0\\\\' }",
        "{ path_prefix = { from = \"/\", to = \"/a%20b\" } }",
        "{ host = \"127.0.0.1:8080\" }",
    ] {
        assert_eq!(findings(&policy(&format!("rewrite = {good}"))), [""; 0], "{good}");
    }
    let passed = policy("rewrite = { host = \"a.example\" }")
        .replace("service = \"a\"\n", "service = \"out\"\n");
    let reported = finding(&passed);
    assert!(
        reported.starts_with("warning[IM0602]: the host is not rewritten to `a.example`"),
        "{reported}"
    );
}

#[test]
fn invalid_or_conflicting_redirects_are_reported() {
    for (keys, expected) in [
        ("redirect = { status = 301 }", "error[IM0103]: a redirect needs `scheme` or `host` or"),
        ("redirect = { host = \"b\" }", "error[IM0103]: a redirect needs `status`"),
        (
            "redirect = { status = 304, host = \"b\" }",
            "error[IM0105]: `304` is not the status of a",
        ),
        (
            "redirect = { status = 200, host = \"b\" }",
            "error[IM0105]: `status` must be from 301 to 308",
        ),
        ("redirect = { status = 301, host = \"b:80\" }", "error[IM0105]: `b:80` is not a host"),
        (
            "redirect = { status = 301, scheme = \"ftp\" }",
            "error[IM0105]: there is no scheme `ftp`",
        ),
        ("redirect = { status = 301, port = 0 }", "error[IM0105]: `port` must be from 1 to 65535"),
        (
            "redirect = { status = 301, path = \"/a\", path_prefix = { from = \"/a\", to = \"/b\" } }",
            "error[IM0105]: a redirect has `path` or `path_prefix`, not both",
        ),
    ] {
        let reported = finding(&policy(keys));
        assert!(reported.starts_with(expected), "{keys}: {reported}");
    }
    let redirect = "redirect = { status = 301, host = \"b\" }\n";
    for other in [
        "timeout = \"1s\"",
        "retries = { num_retries = 2 }",
        "request_headers = { remove = [\"x-a\"] }",
        "rewrite = { host = \"c\" }",
        "mirror = { service = \"b\" }",
        "allow_override_headers = true",
    ] {
        let reported = finding(&policy(&format!("{redirect}{other}")));
        let (key, _) = other.split_once(' ').unwrap();
        let expected = format!("error[IM0603]: `{key}` has no effect beside `redirect`");
        assert!(reported.starts_with(&expected), "{reported}");
        // The setting in a more specific object than the redirect is a warning. In a less specific
        // object it is not, since it is for requests that are not redirected.
        let near = format!("{other}\n[[http_route]]\nname = \"s\"\nscope = \"mesh\"\n{redirect}");
        let reported = finding(&policy(&near));
        assert!(
            reported.starts_with(&format!("warning[IM0602]: `{key}` has no effect: redirected")),
            "{reported}"
        );
        let far = format!("{redirect}[[http_route]]\nname = \"s\"\nscope = \"mesh\"\n{other}");
        assert_eq!(findings(&policy(&far)), [""; 0], "{other}");
    }
    let abort = |percent: u32| {
        policy(&format!("{redirect}fault = {{ abort = {{ status = 503, percent = {percent} }} }}"))
    };
    let reported = finding(&abort(100));
    assert!(
        reported.starts_with("error[IM0603]: `redirect` has no effect beside `fault`"),
        "{reported}"
    );
    assert_eq!(findings(&abort(99)), [""; 0]);
    let answers = policy(&format!("{redirect}response_headers = {{ set = {{ x-a = \"b\" }} }}"));
    assert_eq!(findings(&answers), [""; 0]);
}

#[test]
fn redirect_loop_of_all_requests_is_an_error() {
    let paths = ["path = \"/maintenance\"", "path_prefix = { from = \"/a\", to = \"/b\" }"];
    for path in paths {
        for about in [
            "",
            "sources = [{ name = \"buyer\" }]\n",
            "response_headers = { remove = [\"server\"] }\n",
        ] {
            let reported =
                finding(&policy(&format!("{about}redirect = {{ status = 308, {path} }}")));
            let expected = "error[IM0603]: a redirect of all requests to another path redirects";
            assert!(reported.starts_with(expected), "{about}{path}: {reported}");
        }
        for other in ["host = \"b\"", "port = 8443", "scheme = \"https\""] {
            let keys = format!("redirect = {{ status = 308, {other}, {path} }}");
            assert_eq!(findings(&policy(&keys)), [""; 0], "{keys}");
        }
        let some = format!(
            "matches = [{{ kind = \"HTTPRouteGroup\", name = \"g\" }}]\n\
             redirect = {{ status = 308, {path} }}\n\
             [[http_route_group]]\nname = \"g\"\nmatches = [{{ name = \"m\", path_regex = \"/a/.*\" }}]"
        );
        assert_eq!(findings(&policy(&some)), [""; 0], "{some}");
    }
    let of_mesh = policy("redirect = { status = 308, path = \"/maintenance\" }")
        .replace("name = \"r\"\nservice = \"a\"\n", "name = \"r\"\nscope = \"mesh\"\n");
    let reported = finding(&of_mesh);
    assert!(reported.starts_with("error[IM0603]: a redirect of all requests"), "{reported}");
}

#[test]
fn mirror_target_must_be_callable_by_the_callers() {
    let mirror = |to: &str| format!("mirror = {{ service = \"{to}\", percent = 10 }}");
    for (to, expected) in [
        ("z", "error[IM0201]: there is no service `z`"),
        ("a", "error[IM0604]: calls of service `a` are mirrored to itself"),
        ("out", "error[IM0604]: calls are mirrored to service `out`, which is outside of the mesh"),
        ("tcp", "error[IM0604]: calls are mirrored to service `tcp`, which has no HTTP port 14001"),
        (
            "web",
            "warning[IM0604]: calls are mirrored to service `web`, which has no HTTP port 14002",
        ),
        (
            "c",
            "warning[IM0604]: nothing is mirrored to service `c`: no caller of these calls may call it",
        ),
    ] {
        let reported = finding(&policy(&mirror(to)));
        assert!(reported.starts_with(expected), "{to}: {reported}");
    }
    let split = "\n[[traffic_split]]\nname = \"b\"\nservice = \"b\"\n\
                 backends = [{ service = \"a\", weight = 1 }]\n";
    let reported = finding(&(policy(&mirror("b")) + split));
    assert!(
        reported
            .starts_with("error[IM0604]: calls are mirrored to service `b`, which has a traffic"),
        "{reported}"
    );
    let of_cook = format!("sources = [{{ name = \"cook\" }}]\n{}", mirror("b"));
    let reported = finding(&policy(&of_cook));
    assert!(
        reported.starts_with("warning[IM0604]: nothing is mirrored to service `b`"),
        "{reported}"
    );
    assert_eq!(findings(&policy(&mirror("b"))), [""; 0]);
    // Any caller may call a permissive service.
    let open = policy(&mirror("c"))
        .replace("name = \"c\"\nports", "name = \"c\"\nmode = \"permissive\"\nports");
    assert!(!findings(&open).iter().any(|reported| reported.contains("IM0604")), "{open}");
    // A mirror for the whole mesh skips services without the port.
    let of_mesh = |to: &str| {
        policy(&mirror(to))
            .replace("name = \"r\"\nservice = \"a\"\n", "name = \"r\"\nscope = \"mesh\"\n")
    };
    assert_eq!(findings(&of_mesh("b")), [""; 0]);
    let reported = finding(&of_mesh("tcp"));
    assert!(
        reported.starts_with(
            "error[IM0604]: calls are mirrored to service `tcp`, which has no HTTP port"
        ),
        "{reported}"
    );
}

#[test]
fn mirror_to_a_split_backend_of_the_same_calls_is_a_warning() {
    let with_split = |keys: &str, backends: &[(&str, u32)]| {
        let backends: Vec<_> = backends
            .iter()
            .map(|(name, weight)| format!("{{ service = \"{name}\", weight = {weight} }}"))
            .collect();
        policy("mirror = { service = \"b\", percent = 10 }")
            + &format!(
                "[[traffic_split]]\nname = \"s\"\nservice = \"a\"\n{keys}backends = [{}]\n",
                backends.join(", ")
            )
    };
    let reported = |policy: &str| {
        let reported = findings(policy).into_iter().filter(|reported| reported.contains("IM0604"));
        reported.collect::<Vec<_>>()
    };
    let twice = "warning[IM0604]: service `b` gets calls of service `a` twice: it answers some";
    let only = |policy: &str, expected: &str| {
        let reported = reported(policy);
        assert!(reported.len() == 1 && reported[0].starts_with(expected), "{reported:?}");
    };
    only(&with_split("", &[("c", 90), ("b", 10)]), twice);
    // The split of a backend leads to the mirror, too.
    let next = "[[traffic_split]]\nname = \"t\"\nservice = \"c\"\n\
                backends = [{ service = \"b\", weight = 1 }]\n";
    only(&(with_split("", &[("a", 90), ("c", 10)]) + next), twice);
    only(
        &with_split("", &[("b", 1)]),
        "warning[IM0604]: nothing is mirrored to service `b`: it answers all of these calls",
    );
    assert_eq!(reported(&with_split("", &[("c", 1), ("b", 0)])), [""; 0]);
    // Matching calls go only to the mirror and are not copied. The other calls are copied.
    let matches = "matches = [{ kind = \"HTTPRouteGroup\", name = \"g\" }]\n";
    let group = "[[http_route_group]]\nname = \"g\"\n\
                 matches = [{ name = \"m\", path_regex = \"/a/.*\" }]\n";
    assert_eq!(reported(&(with_split(matches, &[("b", 1)]) + group)), [""; 0]);
    only(&(with_split(matches, &[("c", 1), ("b", 1)]) + group), twice);
}

#[test]
fn mirror_to_a_subset_of_the_same_service_is_a_warning() {
    let subsets = "[[service]]\nname = \"a\"\nsubsets = [{ name = \"a-v2\", labels = { version = \"v2\" } }]\n";
    let text = policy("mirror = { service = \"a-v2\", percent = 10 }")
        .replace("[[service]]\nname = \"a\"\n", subsets);
    let reported: Vec<_> =
        findings(&text).into_iter().filter(|reported| reported.contains("IM0604")).collect();
    let expected = "warning[IM0604]: service `a-v2` gets calls of service `a` twice: it";
    assert!(reported.len() == 1 && reported[0].starts_with(expected), "{reported:?}");
    // The split leads to a different service.
    let text = text
        + "[[traffic_split]]\nname = \"s\"\nservice = \"a\"\nbackends = [{ service = \"c\", weight = 1 }]\n";
    assert!(!findings(&text).iter().any(|reported| reported.contains("IM0604")), "{text}");
}

#[test]
fn most_specific_http_route_wins_for_each_message_setting() {
    let text = policy(
        "request_headers = { set = { x-b = \"2\" } }\nmirror = { service = \"b\", percent = 0 }\n\
         [[http_route]]\nname = \"far\"\nscope = \"mesh\"\nallow_override_headers = true\n\
         request_headers = { set = { x-a = \"1\" } }\nmirror = { service = \"b\" }\n\
         [[http_route]]\nname = \"here\"\nallow_override_headers = false",
    );
    let specification = specification(&text);
    let all = HttpRoutes::of_specification(&specification);
    let treatments =
        |service: &str| all.treatments(&"buyer".parse().unwrap(), &service.parse().unwrap());
    let reported = |service: &str| {
        let treatments = treatments(service);
        let [only] = &treatments[..] else { panic!("{service}") };
        let (headers, mirror) = (only.request_headers().unwrap(), only.mirror().unwrap());
        (headers.to_string(), mirror.percent.0, only.allows_override_headers())
    };
    assert_eq!(reported("a"), ("x-b = `2`".to_owned(), 0, false));
    assert_eq!(reported("c"), ("x-a = `1`".to_owned(), 1_000_000, false));
}
