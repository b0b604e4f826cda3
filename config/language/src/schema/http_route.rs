//! `[[http_route]]`. It is read in `policy/http_route.rs`.

mod message;

use super::{Form, Key, Kind, LeftOut, NAME, NAMESPACE, Shape};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::HttpRoute,
    about: "How HTTP calls are treated on their way.",
    shape: Shape {
        what: PolicyKind::HttpRoute.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "service",
                about: "the service, of the route's namespace, whose calls it is about",
                form: Form::Name,
                left_out: LeftOut::Means("all services that `scope` says"),
            },
            Key {
                name: "matches",
                about: "the requests to the service that it is about: those that any of these matches",
                form: Form::AtLeastOne(&Form::Table(&MATCH)),
                left_out: LeftOut::Means("all requests"),
            },
            Key {
                name: "scope",
                about: "where no service is named, whose calls it is about: those of the services of its namespace, or of the mesh",
                form: Form::Word(|| vec!["namespace", "mesh"]),
                left_out: LeftOut::Text("namespace"),
            },
            Key {
                name: "sources",
                about: "the accounts whose calls it is about",
                form: Form::AtLeastOne(&Form::Table(&SOURCE)),
                left_out: LeftOut::Means("all accounts"),
            },
            Key {
                name: "timeout",
                about: "how long a request may take as a whole, its retries included, up to a day; `0s` is as long as it likes",
                form: DURATION,
                left_out: LeftOut::RefusedWithTheOthers,
            },
            Key {
                name: "retries",
                about: "what is tried again",
                form: Form::Table(&RETRIES),
                left_out: LeftOut::RefusedWithTheOthers,
            },
            Key {
                name: "fault",
                about: "what becomes of some requests on purpose, before they go on their way",
                form: Form::Table(&FAULT),
                left_out: LeftOut::RefusedWithTheOthers,
            },
            Key {
                name: "request_headers",
                about: "what becomes of the headers of requests, before they leave the caller's sidecar",
                form: Form::Table(&message::HEADERS),
                left_out: LeftOut::RefusedWithTheOthers,
            },
            Key {
                name: "response_headers",
                about: "what becomes of the headers of answers, before the caller has them",
                form: Form::Table(&message::HEADERS),
                left_out: LeftOut::RefusedWithTheOthers,
            },
            Key {
                name: "rewrite",
                about: "what requests ask for when they leave the caller's sidecar; who may ask that is judged then",
                form: Form::Table(&message::REWRITE),
                left_out: LeftOut::RefusedWithTheOthers,
            },
            Key {
                name: "redirect",
                about: "requests are answered by the caller's sidecar: they are to be made elsewhere",
                form: Form::Table(&message::REDIRECT),
                left_out: LeftOut::RefusedWithTheOthers,
            },
            Key {
                name: "mirror",
                about: "who gets a copy of requests, whose answers nobody waits for",
                form: Form::Table(&message::MIRROR),
                left_out: LeftOut::RefusedWithTheOthers,
            },
            Key {
                name: "allow_override_headers",
                about: "whether callers may say by headers of Envoy how long a request may take and what is tried again",
                form: Form::Boolean,
                left_out: LeftOut::RefusedWithTheOthers,
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
            about: "they wait, which is no part of their timeout",
            form: Form::Table(&DELAY),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "abort",
            about: "they are answered by the caller's sidecar",
            form: Form::Table(&ABORT),
            left_out: LeftOut::RefusedWithTheOthers,
        },
    ],
};

const DELAY: Shape = Shape {
    what: "a delay",
    keys: &[
        Key {
            name: "duration",
            about: "for how long, from 1 ms to an hour",
            form: DURATION,
            left_out: LeftOut::Refused,
        },
        PERCENT,
    ],
};

const ABORT: Shape = Shape {
    what: "an abort",
    keys: &[
        Key {
            name: "status",
            about: "the status of HTTP",
            form: Form::Integer(200..=599),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "grpc_status",
            about: "the status of gRPC, in place of one of HTTP",
            form: Form::Integer(1..=16),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        PERCENT,
    ],
};

/// How many.
const PERCENT: Key = Key {
    name: "percent",
    about: "of how many, with at most four decimals; 0 is of none",
    form: Form::Percent,
    left_out: LeftOut::Refused,
};

/// A duration.
pub(super) const DURATION: Form = Form::Text { what: "a duration", pattern: "^[0-9]" };

const MATCH: Shape = Shape {
    what: "a match of an HTTP route",
    keys: &[
        Key {
            name: "kind",
            about: "what is named",
            form: Form::Word(|| vec!["HTTPRouteGroup"]),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "name",
            about: "the route group, of the HTTP route's namespace",
            form: Form::Name,
            left_out: LeftOut::Refused,
        },
        Key {
            name: "matches",
            about: "the matches of the route group that are meant",
            form: Form::AtLeastOne(&Form::Name),
            left_out: LeftOut::Means("all of them"),
        },
    ],
};

/// An account that calls.
pub(super) const SOURCE: Shape = Shape {
    what: "a source",
    keys: &[
        Key {
            name: "kind",
            about: "what is named",
            form: Form::Word(|| vec!["ServiceAccount"]),
            left_out: LeftOut::Text("ServiceAccount"),
        },
        Key { name: "name", about: "the account", form: Form::Name, left_out: LeftOut::Refused },
        Key {
            name: "namespace",
            about: "that of the account",
            form: Form::Name,
            left_out: LeftOut::Means("the namespace of the object"),
        },
    ],
};

const RETRIES: Shape = Shape {
    what: "retries",
    keys: &[
        Key {
            name: "retry_on",
            about: "after what: conditions of Envoy for HTTP and gRPC, and statuses",
            form: Form::AtLeastOne(&CONDITION),
            left_out: LeftOut::Means("`connect-failure`, `refused-stream`, `reset-before-request`"),
        },
        NUM_RETRIES,
        PER_TRY_TIMEOUT,
        Key { name: "backoff_base_interval", ..BASE_INTERVAL },
        Key { name: "backoff_max_interval", ..MAX_INTERVAL },
    ],
};

/// One of `Retries::CONDITIONS`, or a status.
const CONDITION: Form = Form::Text {
    what: "a condition or a status",
    pattern: "^(5xx|gateway-error|reset|reset-before-request|connect-failure|envoy-ratelimited|retriable-4xx|refused-stream|retriable-status-codes|cancelled|deadline-exceeded|internal|resource-exhausted|unavailable|[1-5][0-9]{2})$",
};

/// How often.
pub(super) const NUM_RETRIES: Key = Key {
    name: "num_retries",
    about: "how often at most; 0 is never",
    form: Form::Integer(0..=100),
    left_out: LeftOut::Number(1),
};

/// How long each try.
pub(super) const PER_TRY_TIMEOUT: Key = Key {
    name: "per_try_timeout",
    about: "how long one try may take, from 1 ms to an hour",
    form: DURATION,
    left_out: LeftOut::Means("as long as the request"),
};

/// How soon the first, by OSM's word.
pub(super) const BASE_INTERVAL: Key = Key {
    name: "retry_backoff_base_interval",
    about: "after how long a first retry comes at the latest, from 1 ms to an hour; each that follows waits for about twice as long",
    form: DURATION,
    left_out: LeftOut::Text("25ms"),
};

/// How late the last, by a word like OSM's.
pub(super) const MAX_INTERVAL: Key = Key {
    name: "retry_backoff_max_interval",
    about: "how long a retry waits at most",
    form: DURATION,
    left_out: LeftOut::Means("ten times the first interval"),
};
