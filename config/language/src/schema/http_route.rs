//! `[[http_route]]`. It is read in `policy/http_route.rs`.

mod message;

use super::{Form, Key, Kind, NAME, NAMESPACE, Shape, WhenOmitted};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::HttpRoute,
    about: "Sets timeouts, retries, faults, header changes, rewrites, redirects and mirrors of HTTP requests.",
    shape: Shape {
        what: PolicyKind::HttpRoute.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "service",
                about: "Service, in the namespace of the HTTP route, whose requests the route controls.",
                form: Form::Name,
                left_out: WhenOmitted::Means("all services of `scope`"),
            },
            Key {
                name: "matches",
                about: "Requests to the service that the route controls. A request must meet at least one match.",
                form: Form::AtLeastOne(&Form::Table(&MATCH)),
                left_out: WhenOmitted::Means("all requests"),
            },
            Key {
                name: "scope",
                about: "Without `service`: whether the route controls requests to the services of its namespace or of the whole mesh.",
                form: Form::Word(|| vec!["namespace", "mesh"]),
                left_out: WhenOmitted::Text("namespace"),
            },
            Key {
                name: "sources",
                about: "Callers whose requests the route controls.",
                form: Form::AtLeastOne(&Form::Table(&SOURCE)),
                left_out: WhenOmitted::Means("all accounts"),
            },
            Key {
                name: "timeout",
                about: "Time limit of the whole request, including retries; at most 24 hours. `0s` means no limit.",
                form: DURATION,
                left_out: WhenOmitted::OneRequired,
            },
            Key {
                name: "retries",
                about: "Retries of failed requests.",
                form: Form::Table(&RETRIES),
                left_out: WhenOmitted::OneRequired,
            },
            Key {
                name: "fault",
                about: "Delays or errors that the caller's sidecar injects before it forwards a request.",
                form: Form::Table(&FAULT),
                left_out: WhenOmitted::OneRequired,
            },
            Key {
                name: "request_headers",
                about: "Changes to request headers before the request leaves the caller's sidecar.",
                form: Form::Table(&message::HEADERS),
                left_out: WhenOmitted::OneRequired,
            },
            Key {
                name: "response_headers",
                about: "Changes to response headers before the caller receives them.",
                form: Form::Table(&message::HEADERS),
                left_out: WhenOmitted::OneRequired,
            },
            Key {
                name: "rewrite",
                about: "Changes to path and host before the request leaves the caller's sidecar. The server's sidecar authorizes the rewritten request.",
                form: Form::Table(&message::REWRITE),
                left_out: WhenOmitted::OneRequired,
            },
            Key {
                name: "redirect",
                about: "Redirect that the caller's sidecar returns instead of forwarding the request.",
                form: Form::Table(&message::REDIRECT),
                left_out: WhenOmitted::OneRequired,
            },
            Key {
                name: "mirror",
                about: "Service that receives a copy of requests. The sidecar discards the responses to copies.",
                form: Form::Table(&message::MIRROR),
                left_out: WhenOmitted::OneRequired,
            },
            Key {
                name: "allow_override_headers",
                about: "Whether applications may set timeout and retries by Envoy's `x-envoy-…` request headers.",
                form: Form::Boolean,
                left_out: WhenOmitted::OneRequired,
            },
        ],
    },
    example: include_str!("examples/http_route.toml"),
};

const FAULT: Shape = Shape {
    what: "a fault",
    keys: &[
        Key {
            name: "delay",
            about: "Delay before forwarding; it does not count towards the timeout.",
            form: Form::Table(&DELAY),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "abort",
            about: "Error response from the caller's sidecar.",
            form: Form::Table(&ABORT),
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

const DELAY: Shape = Shape {
    what: "a delay",
    keys: &[
        Key {
            name: "duration",
            about: "Length of the delay, `1ms` to `1h`.",
            form: DURATION,
            left_out: WhenOmitted::Required,
        },
        PERCENT,
    ],
};

const ABORT: Shape = Shape {
    what: "an abort",
    keys: &[
        Key {
            name: "status",
            about: "HTTP status of the response.",
            form: Form::Integer(200..=599),
            left_out: WhenOmitted::ExactlyOneRequired,
        },
        Key {
            name: "grpc_status",
            about: "gRPC status of the response; excludes `status`.",
            form: Form::Integer(1..=16),
            left_out: WhenOmitted::ExactlyOneRequired,
        },
        PERCENT,
    ],
};

/// A count.
const PERCENT: Key = Key {
    name: "percent",
    about: "Percentage of requests, with at most 4 decimals; `0` means none.",
    form: Form::Percent,
    left_out: WhenOmitted::Required,
};

/// A duration.
pub(super) const DURATION: Form =
    Form::Text { what: "duration, such as `20ms`", pattern: "^[0-9]" };

const MATCH: Shape = Shape {
    what: "a match of an HTTP route",
    keys: &[
        Key {
            name: "kind",
            about: "Kind of the referenced object.",
            form: Form::Word(|| vec!["HTTPRouteGroup"]),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "name",
            about: "HTTP route group in the namespace of the HTTP route.",
            form: Form::Name,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "matches",
            about: "Matches of the route group that apply.",
            form: Form::AtLeastOne(&Form::Name),
            left_out: WhenOmitted::Means("all"),
        },
    ],
};

/// An account that calls.
pub(super) const SOURCE: Shape = Shape {
    what: "a source",
    keys: &[
        Key {
            name: "kind",
            about: "Kind of the referenced object.",
            form: Form::Word(|| vec!["ServiceAccount"]),
            left_out: WhenOmitted::Text("ServiceAccount"),
        },
        Key {
            name: "name",
            about: "Service account.",
            form: Form::Name,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "namespace",
            about: "Namespace of the account.",
            form: Form::Name,
            left_out: WhenOmitted::Means("namespace of the object"),
        },
    ],
};

const RETRIES: Shape = Shape {
    what: "retries",
    keys: &[
        Key {
            name: "retry_on",
            about: "When to retry: Envoy's conditions for HTTP and gRPC, and HTTP statuses.",
            form: Form::AtLeastOne(&CONDITION),
            left_out: WhenOmitted::Means(
                "`connect-failure`, `refused-stream`, `reset-before-request`",
            ),
        },
        NUM_RETRIES,
        PER_TRY_TIMEOUT,
        Key { name: "backoff_base_interval", ..BASE_INTERVAL },
        Key { name: "backoff_max_interval", ..MAX_INTERVAL },
    ],
};

/// One of `Retries::CONDITIONS`, or a status.
const CONDITION: Form = Form::Text {
    what: "condition or status",
    pattern: "^(5xx|gateway-error|reset|reset-before-request|connect-failure|envoy-ratelimited|retriable-4xx|refused-stream|retriable-status-codes|cancelled|deadline-exceeded|internal|resource-exhausted|unavailable|[1-5][0-9]{2})$",
};

/// The number of retries.
pub(super) const NUM_RETRIES: Key = Key {
    name: "num_retries",
    about: "Maximum number of retries; `0` disables retries.",
    form: Form::Integer(0..=100),
    left_out: WhenOmitted::Number(1),
};

/// The timeout of each try.
pub(super) const PER_TRY_TIMEOUT: Key = Key {
    name: "per_try_timeout",
    about: "Time limit of one attempt, `1ms` to `1h`.",
    form: DURATION,
    left_out: WhenOmitted::Means("`timeout` of the request"),
};

/// The backoff before the first retry, in the spelling of Open Service Mesh.
pub(super) const BASE_INTERVAL: Key = Key {
    name: "retry_backoff_base_interval",
    about: "Upper bound of the backoff before the first retry, `1ms` to `1h`. It about doubles with each retry.",
    form: DURATION,
    left_out: WhenOmitted::Text("25ms"),
};

/// The longest backoff, in a spelling like that of Open Service Mesh.
pub(super) const MAX_INTERVAL: Key = Key {
    name: "retry_backoff_max_interval",
    about: "Maximum backoff of a retry.",
    form: DURATION,
    left_out: WhenOmitted::Means("10 × the base interval"),
};
