//! `[[telemetry]]`.

use ironmesh_catalog::{Collector, Level, LogFilter, LogFormat, LogSink, LogValue, Sampling};

use super::*;

fn telemetry(rest: &str) -> String {
    format!("[[telemetry]]\nname = \"t\"\n{rest}\n")
}

/// The one telemetry of a document without findings.
fn read(rest: &str) -> Arc<ironmesh_catalog::Telemetry> {
    let specification = specification(&with_service("store", &telemetry(rest)));
    Arc::clone(specification.telemetries.values().next().unwrap())
}

#[test]
fn telemetry_scope_is_service_namespace_or_mesh() {
    let about = |rest: &str| read(&format!("{rest}\naccess_log = {{}}")).level.clone();
    assert_eq!(about("service = \"store\""), Level::Service("store".parse().unwrap()));
    assert_eq!(about(""), Level::Namespace("default".parse().unwrap()));
    assert_eq!(about("scope = \"namespace\""), Level::Namespace("default".parse().unwrap()));
    assert_eq!(about("scope = \"mesh\""), Level::Mesh);
    for (rest, reported) in [
        (
            "service = \"store\"\nscope = \"mesh\"",
            "error[IM0105]: `scope` has no meaning for an object of one service (p.toml:4:9) / leave one of the two out",
        ),
        (
            "service = \"stor\"",
            "error[IM0201]: there is no service `stor` in namespace `default` (p.toml:3:11) / did you mean `store`?",
        ),
        (
            "scope = \"all\"",
            "error[IM0105]: there is no scope `all` (p.toml:3:9) / it is one of `namespace` and `mesh`",
        ),
    ] {
        let text = with_service("store", &telemetry(&format!("{rest}\naccess_log = {{}}")));
        assert_eq!(finding(&text), reported);
    }
    assert_eq!(
        finding(&telemetry("")),
        "error[IM0103]: a telemetry needs `access_log` or `tracing` (p.toml:1:1) / `access_log = {}` logs to standard output"
    );
}

#[test]
fn access_log_defaults_to_standard_fields_and_stdout() {
    let log = read("access_log = {}").access_log.clone().unwrap();
    assert_eq!(log.sink, LogSink::Stdout);
    assert_eq!(log.filter, None);
    assert_eq!(log.format, LogFormat::default());
    let LogFormat::Json(fields) = log.format else { panic!("{:?}", log.format) };
    assert_eq!(fields["path"], LogValue::Text("%PATH(NQ:ORIG_OR_PATH)%".into()));
    // A policy with these operators as its format is valid.
    for value in fields.values() {
        let LogValue::Text(text) = value else { panic!("{value:?}") };
        read(&format!("access_log = {{ format = '{text}' }}"));
    }
}

#[test]
fn log_format_is_text_or_json_of_texts_and_objects() {
    let format = |text: &str| read(&format!("access_log.format = '''{text}'''")).access_log.clone();
    let text = |text: &str| LogValue::Text(text.into());
    let of = |text: &str| format(text).unwrap().format;
    assert_eq!(of("%DURATION%\n"), LogFormat::Text("%DURATION%\n".into()));
    let LogFormat::Json(fields) = of(r#" {"a": "%DURATION% ms", "b": {"c": "\u0041"}}"#) else {
        panic!("no JSON");
    };
    assert_eq!(fields["a"], text("%DURATION% ms"));
    assert_eq!(fields["b"], LogValue::Object([("c".into(), text("A"))].into()));
}

#[test]
fn invalid_log_format_is_reported_at_its_location() {
    let reported = |format: &str| finding(&telemetry(&format!("access_log.format = '{format}'")));
    for (format, expected) in [
        (
            "%DURATION% %STATUS%",
            "error[IM0642]: there is no command operator `%STATUS%` (p.toml:3:33) / docs/reference/policy/access_log_operators.md lists the operators",
        ),
        (
            r#"{"ä": "%RESPONSE_COED%"}"#,
            "error[IM0642]: there is no command operator `%RESPONSE_COED%` (p.toml:3:29) / did you mean `%RESPONSE_CODE%`?",
        ),
        (
            r#"{"a": 1}"#,
            "error[IM0642]: a format takes texts and objects, not `1` (p.toml:3:28) / write it as a text, in quotes",
        ),
        (
            r#"{"a": "b",}"#,
            "error[IM0642]: `format` begins with `{` and is no JSON: trailing comma at line 1 column 11 (p.toml:3:32) / fix the JSON, or begin the text with something else",
        ),
        (
            "{}",
            "error[IM0642]: `format` has no fields (p.toml:3:21) / leave it out for the fields that are usual",
        ),
        (
            "",
            "error[IM0105]: `format` must be 1 to 4096 characters without control characters but for ends of lines (p.toml:3:21)",
        ),
    ] {
        assert_eq!(reported(format), expected, "{format}");
    }
    let deep = r#"{"a": "#.repeat(9) + "\"b\"" + &"}".repeat(9);
    assert!(reported(&deep).contains("at most 8 objects deep"), "{}", reported(&deep));
    let both = telemetry("access_log.format = '%A% %B%'");
    assert_eq!(findings(&both).len(), 2);
}

#[test]
fn log_sink_is_stdout_file_or_collector() {
    let sink =
        |text: &str| read(&format!("access_log.sink = {text}")).access_log.clone().unwrap().sink;
    assert_eq!(sink("\"stdout\""), LogSink::Stdout);
    assert_eq!(sink("{ file = \"a-b.log\" }"), LogSink::File("a-b.log".into()));
    let LogSink::OpenTelemetry { collector, attributes } = sink(
        "{ open_telemetry = { host = \"OTEL.example\" }, attributes = { a = \"%DURATION%\" } }",
    ) else {
        panic!("no collector");
    };
    assert_eq!(collector, Collector { host: "otel.example".into(), port: 4317 });
    assert_eq!(attributes.len(), 1);
    let reported = |text: &str| finding(&telemetry(&format!("access_log.sink = {text}")));
    for (text, expected) in [
        (
            "\"stderr\"",
            "error[IM0105]: there is no sink `stderr` (p.toml:3:19) / did you mean `stdout`?",
        ),
        ("{}", "error[IM0103]: a sink of an access log needs `file` (p.toml:3:19)"),
        (
            "{ file = \"a\", open_telemetry = { host = \"b\" } }",
            "error[IM0105]: an access log goes to a file or to a collector, not to both (p.toml:3:28) / remove `file`, or `open_telemetry`",
        ),
        (
            "{ file = \"a\", attributes = { a = \"b\" } }",
            "error[IM0105]: `attributes` are those of records that go to a collector (p.toml:3:46) / put them into `format`, as JSON",
        ),
        (
            "{ open_telemetry = { host = \"a b\" } }",
            "error[IM0105]: `host` must be an IP address or a hostname: `a b` (p.toml:3:47) / write it as in `otel.example.com`; the port is a key of its own",
        ),
        (
            "{ open_telemetry = { host = \"a\", port = 0 } }",
            "error[IM0105]: `port` must be from 1 to 65535: `0` (p.toml:3:59)",
        ),
        (
            "{ open_telemetry = { host = \"a\" }, attributes = {} }",
            "error[IM0304]: `attributes` is empty (p.toml:3:67) / leave it out for none",
        ),
        (
            "{ open_telemetry = { host = \"a\" }, attributes = { b = \"%C%\" } }",
            "error[IM0642]: there is no command operator `%C%` (p.toml:3:74) / docs/reference/policy/access_log_operators.md lists the operators",
        ),
    ] {
        assert_eq!(reported(text), expected, "{text}");
    }
}

#[test]
fn file_sink_with_a_path_is_rejected_and_a_name_is_suggested() {
    for (written, suggested) in [
        ("/root/.ssh/authorized_keys", "authorized_keys"),
        ("/var/log/envoy/store.log", "store.log"),
        ("../store.log", "store.log"),
        ("a/b", "b"),
        ("..", "access.log"),
        (".bashrc", "access.log"),
        ("", "access.log"),
        ("a b", "access.log"),
        ("a\\u0000", "access.log"),
        (&"x".repeat(129), "access.log"),
    ] {
        let reported =
            finding(&telemetry(&format!("access_log.sink = {{ file = \"{written}\" }}")));
        assert_eq!(
            reported,
            format!(
                "error[IM0662]: the `file` of an access log is a name and not a path (p.toml:3:28) / \
                 write `file = \"{suggested}\"`, in letters, digits, `.`, `-` and `_`: each proxy writes \
                 it in the folder that its own bootstrap allows (`ironmesh proxy bootstrap \
                 --access-log-dir DIR`)"
            ),
            "{written}"
        );
    }
}

#[test]
fn file_sink_with_a_format_of_several_lines_is_rejected() {
    let log = |format: &str, sink: &str| {
        telemetry(&format!("access_log = {{ format = \"{format}\", sink = {sink} }}"))
    };
    let file = "{ file = \"a.log\" }";
    for format in ["%DURATION%\\n%PROTOCOL%", "\\nssh-ed25519 AAAA\\n", "%DURATION%\\n\\n"] {
        let reported = finding(&log(format, file));
        assert!(
            reported.starts_with("error[IM0663]: an entry of a log in a file is one line"),
            "{format}: {reported}"
        );
    }
    let taken =
        ["%DURATION%", "%DURATION%\\t%PROTOCOL%\\n", "{\\n  \\\"a\\\": \\\"%DURATION%\\\"\\n}\\n"];
    for format in taken {
        specification(&log(format, file));
    }
    specification(&log("%DURATION%\\n%PROTOCOL%", "\"stdout\""));
}

#[test]
fn log_filter_requires_a_condition_within_bounds() {
    let filter =
        |text: &str| read(&format!("access_log.filter = {text}")).access_log.clone().unwrap();
    assert_eq!(
        filter("{ status_at_least = 500, slower_than = \"1s 500ms\" }").filter,
        Some(LogFilter { status_at_least: Some(500), slower_than_ms: Some(1500) })
    );
    let reported = |text: &str| finding(&telemetry(&format!("access_log.filter = {text}")));
    for (text, expected) in [
        ("{}", "error[IM0103]: a filter of an access log needs `status_at_least` (p.toml:3:21)"),
        (
            "{ status_at_least = 600 }",
            "error[IM0105]: `status_at_least` must be from 100 to 599: `600` (p.toml:3:41)",
        ),
        (
            "{ slower_than = \"-1s\" }",
            "error[IM0105]: `slower_than` must be a duration: `-1s` (p.toml:3:37) / write it as in `24h`, `1h 30m` or `20ms`",
        ),
        (
            "{ slower_than = \"25h\" }",
            "error[IM0105]: `slower_than` must be from 0s to 1d: `25h` (p.toml:3:37)",
        ),
    ] {
        assert_eq!(reported(text), expected, "{text}");
    }
}

#[test]
fn tracing_requires_sampling_of_0_to_100_percent() {
    let text = |percent: &str| {
        format!(
            "tracing = {{ open_telemetry = {{ host = \"::1\" }}, sampling_percent = {percent} }}"
        )
    };
    for (percent, millionths) in
        [("0", 0), ("100", 1_000_000), ("100.0", 1_000_000), ("0.0001", 1), ("12.5", 125_000)]
    {
        let tracing = read(&text(percent)).tracing.clone().unwrap();
        assert_eq!(tracing.sampling, Sampling(millionths), "{percent}");
        assert_eq!(tracing.collector.to_string(), "[::1]:4317");
    }
    for percent in ["-1", "-0.5", "100.0001", "101", "0.00001", "1e2", "inf", "nan"] {
        let reported = finding(&telemetry(&text(percent)));
        let expected = "`sampling_percent` must be from 0 to 100, with 4 decimals at most";
        assert!(reported.contains(expected), "{percent}: {reported}");
    }
    assert_eq!(
        finding(&telemetry("tracing = { open_telemetry = { host = \"a\" } }")),
        "error[IM0103]: tracing needs `sampling_percent` (p.toml:3:11)"
    );
}

#[test]
fn conflicting_telemetries_of_one_level_are_reported() {
    let two = "[[telemetry]]\nname = \"a\"\naccess_log = {}\n[[telemetry]]\nname = \"b\"\naccess_log = {}\n";
    assert_eq!(
        finding(two),
        "error[IM0641]: two telemetries set `access_log` for namespace `default` (p.toml:5:8) / remove it from one of them"
    );
    let tracing = "tracing = { open_telemetry = { host = \"a\" }, sampling_percent = 1 }";
    // Telemetries may share a level if they set different things, or differ in level.
    let mesh = two.replacen("name = \"b\"\n", "name = \"b\"\nscope = \"mesh\"\n", 1);
    specification(&mesh);
    specification(&two.replacen("\"b\"\naccess_log = {}", &format!("\"b\"\n{tracing}"), 1));
    // Telemetries of the mesh conflict even if they are in different namespaces.
    let twice = format!(
        "{mesh}[[telemetry]]\nname = \"c\"\nnamespace = \"x\"\nscope = \"mesh\"\naccess_log = {{}}\n"
    );
    assert!(finding(&twice).contains("two telemetries set `access_log` for the mesh"));
}

#[test]
fn telemetry_of_a_service_without_sidecar_is_a_warning() {
    let external = "[[service]]\nname = \"x\"\nexternal = true\nhostname = \"a.b\"\nports = [{ port = 80, protocol = \"http\" }]\n";
    let reported =
        findings(&format!("{external}{}", telemetry("service = \"x\"\naccess_log = {}")));
    let expected = "warning[IM0643]: no sidecar serves service `x` (p.toml:7:8)";
    assert!(reported.iter().any(|line| line.starts_with(expected)), "{reported:#?}");
}
