//! `rate_limit` and `http_routes` of upstream traffic settings.

mod global;

use ironmesh_catalog::RateUnit;

use super::super::{Form, Key, Shape, WhenOmitted};

pub(super) const ALL: Shape = Shape {
    what: "`rate_limit`",
    keys: &[
        Key {
            name: "local",
            about: "Limit that each sidecar of the service counts for itself.",
            form: Form::Table(&LOCAL),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "global",
            about: "Limit that a rate limit service counts for all sidecars.",
            form: Form::Table(&global::GLOBAL),
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

const LOCAL: Shape = Shape {
    what: "`rate_limit.local`",
    keys: &[
        Key {
            name: "http",
            about: "Limit on requests.",
            form: Form::Table(&LOCAL_HTTP),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "tcp",
            about: "Limit on connections to ports that are not HTTP.",
            form: Form::Table(&LOCAL_TCP),
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

const UNIT: Key = Key {
    name: "unit",
    about: "Time unit.",
    form: Form::Word(|| RateUnit::ALL.map(|(word, _)| word).to_vec()),
    left_out: WhenOmitted::Required,
};

const BURST: Key = Key {
    name: "burst",
    about: "Additional requests or connections that a short burst may use.",
    form: Form::Integer(0..=u32::MAX),
    left_out: WhenOmitted::Number(0),
};

const LOCAL_HTTP: Shape = Shape {
    what: "`rate_limit.local.http`",
    keys: &[
        Key {
            name: "requests",
            about: "Number per unit.",
            form: Form::Integer(1..=u32::MAX),
            left_out: WhenOmitted::Required,
        },
        UNIT,
        BURST,
        Key {
            name: "response_status_code",
            about: "Status of the response over the limit: 400 to 417, 421 to 424, 426, 428, 429, 431, 500 to 508, 510 or 511.",
            form: Form::Integer(400..=599),
            left_out: WhenOmitted::Number(429),
        },
        Key {
            name: "response_headers_to_add",
            about: "Headers of the response over the limit; at most 16.",
            form: Form::AtLeastOne(&Form::Table(&HEADER)),
            left_out: WhenOmitted::Means("none"),
        },
    ],
};

const HEADER: Shape = Shape {
    what: "a header of an answer",
    keys: &[
        Key {
            name: "name",
            about: "Name of the header.",
            form: Form::Text { what: "header name", pattern: "^[-!#$%&'*+.^_`|~0-9A-Za-z]+$" },
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "value",
            about: "Value of the header.",
            form: Form::Text {
                what: "text, 1 to 1024 characters",
                pattern: r"^[^\x00-\x1F\x7F-\x9F]{1,1024}$",
            },
            left_out: WhenOmitted::Required,
        },
    ],
};

const LOCAL_TCP: Shape = Shape {
    what: "`rate_limit.local.tcp`",
    keys: &[
        Key {
            name: "connections",
            about: "Number per unit.",
            form: Form::Integer(1..=u32::MAX),
            left_out: WhenOmitted::Required,
        },
        UNIT,
        BURST,
    ],
};

pub(super) const ROUTE: Shape = Shape {
    what: "an HTTP route of a setting",
    keys: &[
        Key {
            name: "path_regex",
            about: "Expression for the path, as in an HTTP route group.",
            form: Form::Text { what: "RE2 expression", pattern: "" },
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "rate_limit",
            about: "Rate limit for these paths.",
            form: Form::Table(&OF_ROUTE),
            left_out: WhenOmitted::Required,
        },
    ],
};

const OF_ROUTE: Shape = Shape {
    what: "`rate_limit` of a route",
    keys: &[
        Key {
            name: "local",
            about: "Limit that each sidecar of the service counts for itself.",
            form: Form::Table(&LOCAL_OF_ROUTE),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "global",
            about: "Limit that the rate limit service of `rate_limit.global.http` counts.",
            form: Form::Table(&global::OF_ROUTE),
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

const LOCAL_OF_ROUTE: Shape = Shape {
    what: "`rate_limit.local` of a route",
    keys: &[Key {
        name: "http",
        about: "Limit on requests.",
        form: Form::Table(&LOCAL_HTTP),
        left_out: WhenOmitted::Required,
    }],
};
