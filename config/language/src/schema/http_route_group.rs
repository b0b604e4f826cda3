//! `[[http_route_group]]`. It is read in `policy/http_route_group.rs`.

use super::{Form, Key, Kind, NAME, NAMESPACE, Shape, WhenOmitted};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::HttpRouteGroup,
    about: "Names sets of HTTP requests by path, method and headers, for other kinds to refer to.",
    shape: Shape {
        what: PolicyKind::HttpRouteGroup.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "matches",
                about: "Named request matches.",
                form: Form::AtLeastOne(&Form::Table(&MATCH)),
                left_out: WhenOmitted::Required,
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
            about: "Name, unique in the group.",
            form: Form::Name,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "path_regex",
            about: "Expression for the normalized path without the query; anchored at the start only.",
            form: Form::Text { what: "RE2 expression", pattern: "" },
            left_out: WhenOmitted::Means("any"),
        },
        Key {
            name: "methods",
            about: "Allowed methods, compared exactly; `\"*\"` means any.",
            form: Form::AtLeastOne(&Form::Text {
                what: "method in upper case",
                // A token of RFC 9110, section 5.6.2, without lower case.
                pattern: "^[-A-Z0-9!#$%&'*+.^_`|~]+$",
            }),
            left_out: WhenOmitted::Means("any"),
        },
        Key {
            name: "headers",
            about: "Expressions that must match the whole value of each header. `host` means the host without port and ignores case.",
            form: Form::OneOrMore(&Form::Map {
                key: "header",
                pattern: "^[-A-Za-z0-9!#$%&'*+.^_`|~]+$",
                value: &Form::Text { what: "RE2 expression", pattern: r"[\s\S]" },
            }),
            left_out: WhenOmitted::Means("any"),
        },
    ],
};
