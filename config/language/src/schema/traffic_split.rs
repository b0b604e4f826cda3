//! `[[traffic_split]]`. It is read in `policy/traffic_split.rs`.

use super::{Form, Key, Kind, LeftOut, NAME, NAMESPACE, Shape};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::TrafficSplit,
    about: "Calls of one service go to several, by weight.",
    shape: Shape {
        what: PolicyKind::TrafficSplit.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "service",
                about: "the service that callers name",
                form: Form::Name,
                left_out: LeftOut::Refused,
            },
            Key {
                name: "backends",
                about: "the services that answer",
                form: Form::AtLeastOne(&Form::Table(&BACKEND)),
                left_out: LeftOut::Refused,
            },
            Key {
                name: "matches",
                about: "the requests that it is about: those that any of these matches",
                form: Form::AtLeastOne(&Form::Table(&MATCH)),
                left_out: LeftOut::Means("all calls"),
            },
        ],
    },
    example: include_str!("examples/traffic_split.toml"),
};

pub(super) const MATCH: Shape = Shape {
    what: "a match of a traffic split",
    keys: &[
        Key {
            name: "kind",
            about: "what is named",
            form: Form::Word(|| vec!["HTTPRouteGroup"]),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "name",
            about: "the route group, of the split's namespace",
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

const BACKEND: Shape = Shape {
    what: "a backend",
    keys: &[
        Key {
            name: "service",
            about: "the service that answers; it may be the one that callers name",
            form: Form::Name,
            left_out: LeftOut::Refused,
        },
        Key {
            name: "weight",
            about: "its share, relative to the others; 0 is none, and the sum is at least 1",
            form: Form::Integer(0..=u32::MAX),
            left_out: LeftOut::Refused,
        },
    ],
};
