//! Changes of requests and answers: headers, rewrites, redirects and mirrors.

use super::PERCENT;
use crate::schema::{Form, Key, PORT, Shape, WhenOmitted};

/// The name of a header.
const NAME: &str = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$";

/// The value of a header.
const VALUE: Form = Form::Text { what: "header value", pattern: r"^[!-~]([ -~]{0,1022}[!-~])?$" };

/// A path without a query.
const PATH: Form = Form::Text { what: "path", pattern: r"^/[!-~]{0,255}$" };

/// `request_headers` and `response_headers`.
pub(super) const HEADERS: Shape = Shape {
    what: "a change of headers",
    keys: &[
        Key {
            name: "set",
            about: "Sets these headers to exactly this value.",
            form: Form::Map { key: "header", pattern: NAME, value: &VALUE },
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "add",
            about: "Adds this value to these headers.",
            form: Form::Map { key: "header", pattern: NAME, value: &VALUE },
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "remove",
            about: "Removes these headers.",
            form: Form::AtLeastOne(&Form::Text { what: "header name", pattern: NAME }),
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

/// `rewrite`.
pub(super) const REWRITE: Shape = Shape {
    what: "a rewrite",
    keys: &[
        Key {
            name: "path_prefix",
            about: "Replaces the leading segments of the path.",
            form: Form::Table(&PREFIX),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "path_regex",
            about: "Replaces what the expression matches at the start of the path; excludes `path_prefix`.",
            form: Form::Text { what: "RE2 expression", pattern: "" },
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "substitution",
            about: "Replacement for `path_regex`; `\\1` is the first group, `\\0` the whole match.",
            form: Form::Text { what: "path with groups", pattern: r"^/[!-~]{0,255}$" },
            left_out: WhenOmitted::Means("required with `path_regex`"),
        },
        Key {
            name: "host",
            about: "New host, with or without port.",
            form: Form::Text {
                what: "host",
                pattern: r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?([.][a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*(:[0-9]{1,5})?$",
            },
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

/// `redirect`.
pub(super) const REDIRECT: Shape = Shape {
    what: "a redirect",
    keys: &[
        Key {
            name: "status",
            about: "HTTP status: 301, 302, 303, 307 or 308.",
            form: Form::Integer(301..=308),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "scheme",
            about: "New scheme.",
            form: Form::Word(|| vec!["http", "https"]),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "host",
            about: "New host, without port.",
            form: Form::Text {
                what: "host",
                pattern: r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?([.][a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$",
            },
            left_out: WhenOmitted::OneRequired,
        },
        Key { name: "port", about: "New port.", form: PORT, left_out: WhenOmitted::OneRequired },
        Key {
            name: "path",
            about: "New path; the query stays.",
            form: PATH,
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "path_prefix",
            about: "Replaces the leading segments of the path; excludes `path`.",
            form: Form::Table(&PREFIX),
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

/// `path_prefix`.
const PREFIX: Shape = Shape {
    what: "a prefix of paths",
    keys: &[
        Key {
            name: "from",
            about: "Leading segments to replace, in normalized form; `/` matches any path.",
            form: PATH,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "to",
            about: "New leading segments; `/` removes them.",
            form: PATH,
            left_out: WhenOmitted::Required,
        },
    ],
};

/// `mirror`.
pub(super) const MIRROR: Shape = Shape {
    what: "a mirror",
    keys: &[
        Key {
            name: "service",
            about: "Service that receives the copy, on the port with the same number.",
            form: Form::Name,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "namespace",
            about: "Namespace of the service.",
            form: Form::Name,
            left_out: WhenOmitted::Means("namespace of the object"),
        },
        Key { left_out: WhenOmitted::Number(100), ..PERCENT },
    ],
};
