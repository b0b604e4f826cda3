//! `[[telemetry]]`. It is read in `policy/telemetry.rs`.

use super::{DURATION, Form, Key, Kind, LeftOut, NAME, NAMESPACE, PORT, SCOPE, Shape};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::Telemetry,
    about: "What the sidecars of services tell of the calls that come to these, and of those that they make.",
    shape: Shape {
        what: PolicyKind::Telemetry.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "service",
                about: "the service that it is about",
                form: Form::Name,
                left_out: LeftOut::Means("all services of `scope`"),
            },
            SCOPE,
            Key {
                name: "access_log",
                about: "an entry for each request, and for each TCP connection at its end",
                form: Form::Table(&ACCESS_LOG),
                left_out: LeftOut::RefusedWithTheOthers,
            },
            Key {
                name: "tracing",
                about: "spans of requests, with `traceparent` passed on",
                form: Form::Table(&TRACING),
                left_out: LeftOut::RefusedWithTheOthers,
            },
        ],
    },
    example: include_str!("examples/telemetry.toml"),
};

/// A text with command operators.
const FORMAT: Form =
    Form::Text { what: "a text with Envoy's command operators", pattern: r"^[\s\S]{1,4096}$" };

const ACCESS_LOG: Shape = Shape {
    what: "an access log",
    keys: &[
        Key {
            name: "format",
            about: "what an entry says; JSON where it begins with `{`",
            form: FORMAT,
            left_out: LeftOut::Means("the JSON that OSM has"),
        },
        Key {
            name: "sink",
            about: "where entries go",
            form: Form::WordOrTable(|| vec!["stdout"], &SINK),
            left_out: LeftOut::Text("stdout"),
        },
        Key {
            name: "filter",
            about: "of which calls there is an entry: those that meet one of the conditions",
            form: Form::Table(&FILTER),
            left_out: LeftOut::Means("of all"),
        },
    ],
};

const SINK: Shape = Shape {
    what: "a sink of an access log",
    keys: &[
        Key {
            name: "file",
            about: "the name of a file, in the folder that the sidecar's own bootstrap allows for logs",
            form: Form::Text {
                what: "the name of a file",
                pattern: r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$",
            },
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "open_telemetry",
            about: "a collector, by OTLP over gRPC",
            form: Form::Table(&COLLECTOR),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "attributes",
            about: "what the records that a collector gets say besides",
            form: Form::Map { key: "attribute", pattern: r"^[\s\S]{1,255}$", value: &FORMAT },
            left_out: LeftOut::Means("nothing"),
        },
    ],
};

const FILTER: Shape = Shape {
    what: "a filter of an access log",
    keys: &[
        Key {
            name: "status_at_least",
            about: "requests that are answered with this status or a higher one",
            form: Form::Integer(100..=599),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "slower_than",
            about: "requests and connections that take longer than this; at most `24h`",
            form: DURATION,
            left_out: LeftOut::RefusedWithTheOthers,
        },
    ],
};

const TRACING: Shape = Shape {
    what: "tracing",
    keys: &[
        Key {
            name: "open_telemetry",
            about: "who is told of the spans, by OTLP over gRPC",
            form: Form::Table(&COLLECTOR),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "sampling_percent",
            about: "which share of the traces is told, with 4 decimals at most; callers cannot widen it",
            form: Form::Percent,
            left_out: LeftOut::Refused,
        },
        Key {
            name: "service_name",
            about: "what the service is called in traces",
            form: Form::Text {
                what: "at most 255 characters",
                pattern: r"^[^\u0000-\u001f\u007f]{1,255}$",
            },
            left_out: LeftOut::Means("`<service>.<namespace>`"),
        },
    ],
};

const COLLECTOR: Shape = Shape {
    what: "a collector",
    keys: &[
        Key {
            name: "host",
            about: "an IP address, or a name that sidecars look up",
            form: Form::Text { what: "an address or a hostname", pattern: r"^[\s\S]{1,253}$" },
            left_out: LeftOut::Refused,
        },
        Key {
            name: "port",
            about: "its port of OTLP over gRPC",
            form: PORT,
            left_out: LeftOut::Number(4317),
        },
    ],
};
