//! `[[http_route_group]]`. It is read in `policy/http_route_group.rs`.

use super::{Form, Key, Kind, LeftOut, NAME, NAMESPACE, Shape};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::HttpRouteGroup,
    about: "Named ways to call.",
    shape: Shape {
        what: PolicyKind::HttpRouteGroup.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "matches",
                about: "the ways to call",
                form: Form::AtLeastOne(&Form::Table(&MATCH)),
                left_out: LeftOut::Refused,
            },
        ],
    },
    example: include_str!("examples/http_route_group.toml"),
};

const MATCH: Shape = Shape {
    what: "a match",
    keys: &[
        Key {
            name: "name",
            about: "what it is called, unique in the group",
            form: Form::Name,
            left_out: LeftOut::Refused,
        },
        Key {
            name: "path_regex",
            about: "compared with the path without its query, anchored at the beginning only",
            form: Form::Text { what: "an RE2 expression", pattern: "" },
            left_out: LeftOut::Means("any path"),
        },
        Key {
            name: "methods",
            about: "compared exactly; `\"*\"` is any",
            form: Form::AtLeastOne(&Form::Text {
                what: "a method in upper case",
                // A token of RFC 9110, section 5.6.2, without lower case.
                pattern: "^[-A-Z0-9!#$%&'*+.^_`|~]+$",
            }),
            left_out: LeftOut::Means("any method"),
        },
        Key {
            name: "headers",
            about: "each matches the whole value; `host` is the host in lower case without its port",
            form: Form::OneOrMore(&Form::Map {
                key: "header",
                pattern: "^[-A-Za-z0-9!#$%&'*+.^_`|~]+$",
                value: &Form::Text { what: "an RE2 expression", pattern: r"[\s\S]" },
            }),
            left_out: LeftOut::Means("any headers"),
        },
    ],
};
