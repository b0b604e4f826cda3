//! `[[traffic_split]]`. It is read in `policy/traffic_split.rs`.

use super::{Form, Key, Kind, LeftOut, NAME, NAMESPACE, Shape};

pub(super) const KIND: Kind = Kind {
    key: "traffic_split",
    about: "Calls of one service go to several, by weight.",
    shape: Shape {
        what: "a traffic split",
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
        ],
    },
    example: include_str!("examples/traffic_split.toml"),
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
