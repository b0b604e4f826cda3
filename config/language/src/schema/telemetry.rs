//! `[[telemetry]]`. It is read in `policy/telemetry.rs`.

use super::{DURATION, Form, Key, Kind, NAME, NAMESPACE, PORT, SCOPE, Shape, WhenOmitted};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::Telemetry,
    about: "Sets access logs and tracing for the inbound and outbound calls of services.",
    shape: Shape {
        what: PolicyKind::Telemetry.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "service",
                about: "Service to which the object applies.",
                form: Form::Name,
                left_out: WhenOmitted::Means("all services of `scope`"),
            },
            SCOPE,
            Key {
                name: "access_log",
                about: "Access log: one entry per request, and per TCP connection when it ends.",
                form: Form::Table(&ACCESS_LOG),
                left_out: WhenOmitted::OneRequired,
            },
            Key {
                name: "tracing",
                about: "Tracing: spans of requests, with `traceparent` propagation.",
                form: Form::Table(&TRACING),
                left_out: WhenOmitted::OneRequired,
            },
        ],
    },
    example: include_str!("examples/telemetry.toml"),
};

/// A text with command operators.
const FORMAT: Form =
    Form::Text { what: "text with Envoy's command operators", pattern: r"^[\s\S]{1,4096}$" };

const ACCESS_LOG: Shape = Shape {
    what: "an access log",
    keys: &[
        Key {
            name: "format",
            about: "Format of an entry; JSON if it begins with `{`.",
            form: FORMAT,
            left_out: WhenOmitted::Means("JSON, as in Open Service Mesh"),
        },
        Key {
            name: "sink",
            about: "Destination of the entries.",
            form: Form::WordOrTable(|| vec!["stdout"], &SINK),
            left_out: WhenOmitted::Text("stdout"),
        },
        Key {
            name: "filter",
            about: "Restricts the log to calls that meet at least one condition.",
            form: Form::Table(&FILTER),
            left_out: WhenOmitted::Means("all calls"),
        },
    ],
};

const SINK: Shape = Shape {
    what: "a sink of an access log",
    keys: &[
        Key {
            name: "file",
            about: "File name in the log folder that the bootstrap of the sidecar allows; excludes `open_telemetry`.",
            form: Form::Text {
                what: "file name",
                pattern: r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$",
            },
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "open_telemetry",
            about: "Collector that receives entries by OTLP over gRPC.",
            form: Form::Table(&COLLECTOR),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "attributes",
            about: "Additional attributes of the records; only with `open_telemetry`.",
            form: Form::Map { key: "attribute", pattern: r"^[\s\S]{1,255}$", value: &FORMAT },
            left_out: WhenOmitted::Means("none"),
        },
    ],
};

const FILTER: Shape = Shape {
    what: "a filter of an access log",
    keys: &[
        Key {
            name: "status_at_least",
            about: "Requests with this response status or a higher one.",
            form: Form::Integer(100..=599),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "slower_than",
            about: "Requests and connections that take longer than this; at most `24h`.",
            form: DURATION,
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

const TRACING: Shape = Shape {
    what: "tracing",
    keys: &[
        Key {
            name: "open_telemetry",
            about: "Collector that receives spans by OTLP over gRPC.",
            form: Form::Table(&COLLECTOR),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "sampling_percent",
            about: "Percentage of traces to report, with at most 4 decimals. Callers cannot raise it.",
            form: Form::Percent,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "service_name",
            about: "Service name in traces.",
            form: Form::Text {
                what: "text, at most 255 characters",
                pattern: r"^[^\u0000-\u001f\u007f]{1,255}$",
            },
            left_out: WhenOmitted::Means("`<service>.<namespace>`"),
        },
    ],
};

const COLLECTOR: Shape = Shape {
    what: "a collector",
    keys: &[
        Key {
            name: "host",
            about: "IP address, or hostname that the sidecars resolve.",
            form: Form::Text { what: "IP address or hostname", pattern: r"^[\s\S]{1,253}$" },
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "port",
            about: "Port for OTLP over gRPC.",
            form: PORT,
            left_out: WhenOmitted::Number(4317),
        },
    ],
};
