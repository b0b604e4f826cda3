//! `[[upstream_traffic_setting]]`. It is read in `policy/upstream_traffic_setting.rs`.

mod locality;
mod rate_limit;

use super::{DURATION, Form, Key, Kind, NAME, NAMESPACE, SCOPE, Shape, WhenOmitted};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::UpstreamTrafficSetting,
    about: "Protects services: connection limits, outlier detection, locality preference and rate limits.",
    shape: Shape {
        what: PolicyKind::UpstreamTrafficSetting.what(),
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
                name: "connection_settings",
                about: "Limits that each caller's sidecar applies to its own calls.",
                form: Form::Table(&CONNECTIONS),
                left_out: WhenOmitted::OneRequired,
            },
            Key {
                name: "outlier_detection",
                about: "When a caller's sidecar ejects an endpoint because of its responses.",
                form: Form::Table(&OUTLIERS),
                left_out: WhenOmitted::OneRequired,
            },
            Key {
                name: "locality",
                about: "Preference among endpoints by the locality of caller and endpoint.",
                form: Form::Table(&locality::ALL),
                left_out: WhenOmitted::OneRequired,
            },
            Key {
                name: "rate_limit",
                about: "Rate limits on calls to the service.",
                form: Form::Table(&rate_limit::ALL),
                left_out: WhenOmitted::OneRequired,
            },
            Key {
                name: "http_routes",
                about: "Rate limits for some paths, which replace the rate limits of all requests; at most 100.",
                form: Form::AtLeastOne(&Form::Table(&rate_limit::ROUTE)),
                left_out: WhenOmitted::OneRequired,
            },
        ],
    },
    example: include_str!("examples/upstream_traffic_setting.toml"),
};

const AT_LEAST_ONE: Form = Form::Integer(1..=u32::MAX);

const CONNECTIONS: Shape = Shape {
    what: "`connection_settings`",
    keys: &[
        Key {
            name: "tcp",
            about: "Connection limits.",
            form: Form::Table(&TCP),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "http",
            about: "Request limits.",
            form: Form::Table(&HTTP),
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

const TCP: Shape = Shape {
    what: "`connection_settings.tcp`",
    keys: &[
        Key {
            name: "max_connections",
            about: "Maximum number of concurrent connections.",
            form: AT_LEAST_ONE,
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "connect_timeout",
            about: "Time limit for opening a connection, `1ms` to `1h`.",
            form: DURATION,
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

const HTTP: Shape = Shape {
    what: "`connection_settings.http`",
    keys: &[
        Key {
            name: "max_requests",
            about: "Maximum number of concurrent requests.",
            form: AT_LEAST_ONE,
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "max_requests_per_connection",
            about: "Number of requests after which the sidecar replaces a connection.",
            form: AT_LEAST_ONE,
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "max_pending_requests",
            about: "Maximum number of requests that wait for a connection.",
            form: AT_LEAST_ONE,
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "max_retries",
            about: "Maximum number of concurrent retries; `0` means none.",
            form: Form::Integer(0..=u32::MAX),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "retry_budget",
            about: "Maximum number of concurrent retries, as a share of the active requests; excludes `max_retries`.",
            form: Form::Table(&BUDGET),
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

const BUDGET: Shape = Shape {
    what: "a retry budget",
    keys: &[
        Key {
            name: "percent",
            about: "Share of the active requests, in percent.",
            form: Form::Integer(1..=100),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "min_concurrency",
            about: "Number of concurrent retries that is always allowed.",
            form: AT_LEAST_ONE,
            left_out: WhenOmitted::Number(3),
        },
    ],
};

const OUTLIERS: Shape = Shape {
    what: "`outlier_detection`",
    keys: &[
        Key {
            name: "consecutive_5xx",
            about: "Number of consecutive responses 500 to 599 that ejects an endpoint. Failed connections count separately, up to the lower of this number and 3.",
            form: AT_LEAST_ONE,
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "consecutive_gateway_errors",
            about: "The same for 502, 503 and 504.",
            form: AT_LEAST_ONE,
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "interval",
            about: "Interval at which ejected endpoints are reviewed, `100ms` to `1h`.",
            form: DURATION,
            left_out: WhenOmitted::Text("10s"),
        },
        Key {
            name: "base_ejection_time",
            about: "Length of the first ejection, `100ms` to `1d`. The second lasts twice as long, and so on.",
            form: DURATION,
            left_out: WhenOmitted::Text("30s"),
        },
        Key {
            name: "max_ejection_percent",
            about: "Maximum percentage of endpoints that are ejected at the same time.",
            form: Form::Integer(1..=100),
            left_out: WhenOmitted::Number(50),
        },
    ],
};
