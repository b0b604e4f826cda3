//! `[[upstream_traffic_setting]]`. It is read in `policy/upstream_traffic_setting.rs`.

mod locality;
mod rate_limit;

use super::{DURATION, Form, Key, Kind, LeftOut, NAME, NAMESPACE, SCOPE, Shape};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::UpstreamTrafficSetting,
    about: "How services are spared by those who call them.",
    shape: Shape {
        what: PolicyKind::UpstreamTrafficSetting.what(),
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
                name: "connection_settings",
                about: "what each sidecar of a caller asks at most",
                form: Form::Table(&CONNECTIONS),
                left_out: LeftOut::RefusedWithTheOthers,
            },
            Key {
                name: "outlier_detection",
                about: "when a sidecar of a caller takes an endpoint for broken, by what it answers",
                form: Form::Table(&OUTLIERS),
                left_out: LeftOut::RefusedWithTheOthers,
            },
            Key {
                name: "locality",
                about: "whom callers call first, by where both are",
                form: Form::Table(&locality::ALL),
                left_out: LeftOut::RefusedWithTheOthers,
            },
            Key {
                name: "rate_limit",
                about: "how often something may be asked of each sidecar of the service",
                form: Form::Table(&rate_limit::ALL),
                left_out: LeftOut::RefusedWithTheOthers,
            },
            Key {
                name: "http_routes",
                about: "limits of their own for some paths, instead of that of all requests; at most 100",
                form: Form::AtLeastOne(&Form::Table(&rate_limit::ROUTE)),
                left_out: LeftOut::RefusedWithTheOthers,
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
            about: "of connections",
            form: Form::Table(&TCP),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "http",
            about: "of requests",
            form: Form::Table(&HTTP),
            left_out: LeftOut::RefusedWithTheOthers,
        },
    ],
};

const TCP: Shape = Shape {
    what: "`connection_settings.tcp`",
    keys: &[
        Key {
            name: "max_connections",
            about: "how many connections there are at once",
            form: AT_LEAST_ONE,
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "connect_timeout",
            about: "how long making a connection may take, from 1ms to 1h",
            form: DURATION,
            left_out: LeftOut::RefusedWithTheOthers,
        },
    ],
};

const HTTP: Shape = Shape {
    what: "`connection_settings.http`",
    keys: &[
        Key {
            name: "max_requests",
            about: "how many requests are under way at once",
            form: AT_LEAST_ONE,
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "max_requests_per_connection",
            about: "after how many requests a connection is replaced by another",
            form: AT_LEAST_ONE,
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "max_pending_requests",
            about: "how many requests wait for a connection at once",
            form: AT_LEAST_ONE,
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "max_retries",
            about: "how many retries are under way at once; 0 is none",
            form: Form::Integer(0..=u32::MAX),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "retry_budget",
            about: "how many retries are under way at once, in proportion to the requests; not together with `max_retries`",
            form: Form::Table(&BUDGET),
            left_out: LeftOut::RefusedWithTheOthers,
        },
    ],
};

const BUDGET: Shape = Shape {
    what: "a retry budget",
    keys: &[
        Key {
            name: "percent",
            about: "the share of the requests that are under way",
            form: Form::Integer(1..=100),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "min_concurrency",
            about: "so many retries in any case",
            form: AT_LEAST_ONE,
            left_out: LeftOut::Number(3),
        },
    ],
};

const OUTLIERS: Shape = Shape {
    what: "`outlier_detection`",
    keys: &[
        Key {
            name: "consecutive_5xx",
            about: "after so many answers of 500 to 599 in a row it gets nothing; failed connections count apart, to this number or 3",
            form: AT_LEAST_ONE,
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "consecutive_gateway_errors",
            about: "the same of 502, 503 and 504",
            form: AT_LEAST_ONE,
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "interval",
            about: "how often is looked whose time is over, from 100ms to 1h",
            form: DURATION,
            left_out: LeftOut::Text("10s"),
        },
        Key {
            name: "base_ejection_time",
            about: "how long it gets nothing: the second time twice as long, and so on; from 100ms to 1d",
            form: DURATION,
            left_out: LeftOut::Text("30s"),
        },
        Key {
            name: "max_ejection_percent",
            about: "how many of the endpoints get nothing at once",
            form: Form::Integer(1..=100),
            left_out: LeftOut::Number(50),
        },
    ],
};
