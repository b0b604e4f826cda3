//! What becomes of requests and answers: headers, rewrites, redirects and mirrors.

use super::PERCENT;
use crate::schema::{Form, Key, LeftOut, PORT, Shape};

/// The name of a header.
const NAME: &str = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$";

/// The value of a header.
const VALUE: Form =
    Form::Text { what: "the value of a header", pattern: r"^[!-~]([ -~]{0,1022}[!-~])?$" };

/// A path without a query.
const PATH: Form = Form::Text { what: "a path", pattern: r"^/[!-~]{0,255}$" };

/// `request_headers` and `response_headers`.
pub(super) const HEADERS: Shape = Shape {
    what: "a change of headers",
    keys: &[
        Key {
            name: "set",
            about: "these have this value and no other, as it is written",
            form: Form::Map { key: "header", pattern: NAME, value: &VALUE },
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "add",
            about: "these have this value beside those that they have",
            form: Form::Map { key: "header", pattern: NAME, value: &VALUE },
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "remove",
            about: "these are taken off",
            form: Form::AtLeastOne(&Form::Text { what: "a header", pattern: NAME }),
            left_out: LeftOut::RefusedWithTheOthers,
        },
    ],
};

/// `rewrite`.
pub(super) const REWRITE: Shape = Shape {
    what: "a rewrite",
    keys: &[
        Key {
            name: "path_prefix",
            about: "the segments that the path begins with become others",
            form: Form::Table(&PREFIX),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "path_regex",
            about: "in place of a prefix: what this matches at the beginning of the path becomes something else",
            form: Form::Text { what: "an RE2 expression", pattern: "" },
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "substitution",
            about: "what that becomes; `\\1` is what its first group matches, `\\0` all of it",
            form: Form::Text { what: "a path with groups", pattern: r"^/[!-~]{0,255}$" },
            left_out: LeftOut::Means("**required** with `path_regex`"),
        },
        Key {
            name: "host",
            about: "the host becomes this, with a port or without",
            form: Form::Text {
                what: "a host",
                pattern: r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?([.][a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*(:[0-9]{1,5})?$",
            },
            left_out: LeftOut::RefusedWithTheOthers,
        },
    ],
};

/// `redirect`.
pub(super) const REDIRECT: Shape = Shape {
    what: "a redirect",
    keys: &[
        Key {
            name: "status",
            about: "301, 302, 303, 307 or 308",
            form: Form::Integer(301..=308),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "scheme",
            about: "another scheme",
            form: Form::Word(|| vec!["http", "https"]),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "host",
            about: "another host, without a port",
            form: Form::Text {
                what: "a host",
                pattern: r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?([.][a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$",
            },
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "port",
            about: "another port",
            form: PORT,
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "path",
            about: "another path; the query stays",
            form: PATH,
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "path_prefix",
            about: "in place of a path: the segments that it begins with become others",
            form: Form::Table(&PREFIX),
            left_out: LeftOut::RefusedWithTheOthers,
        },
    ],
};

/// `path_prefix`.
const PREFIX: Shape = Shape {
    what: "a prefix of paths",
    keys: &[
        Key {
            name: "from",
            about: "these, as they are when paths are compared; `/` is none, and so any path",
            form: PATH,
            left_out: LeftOut::Refused,
        },
        Key {
            name: "to",
            about: "what they become; `/` is none",
            form: PATH,
            left_out: LeftOut::Refused,
        },
    ],
};

/// `mirror`.
pub(super) const MIRROR: Shape = Shape {
    what: "a mirror",
    keys: &[
        Key {
            name: "service",
            about: "the service that gets a copy, at the port of the same number",
            form: Form::Name,
            left_out: LeftOut::Refused,
        },
        Key {
            name: "namespace",
            about: "that of the service",
            form: Form::Name,
            left_out: LeftOut::Means("the namespace of the object"),
        },
        Key { left_out: LeftOut::Number(100), ..PERCENT },
    ],
};
