//! `[[traffic_split]]`. It is read in `policy/traffic_split.rs`.

use super::{Form, Key, Kind, NAME, NAMESPACE, Shape, WhenOmitted};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::TrafficSplit,
    about: "Divides calls to one service among several services, by weight and by condition.",
    shape: Shape {
        what: PolicyKind::TrafficSplit.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "service",
                about: "Service that callers address.",
                form: Form::Name,
                left_out: WhenOmitted::Required,
            },
            Key {
                name: "backends",
                about: "Services that receive the calls.",
                form: Form::AtLeastOne(&Form::Table(&BACKEND)),
                left_out: WhenOmitted::Required,
            },
            Key {
                name: "matches",
                about: "Requests that the split controls. A request must meet at least one match.",
                form: Form::AtLeastOne(&Form::Table(&MATCH)),
                left_out: WhenOmitted::Means("all calls"),
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
            about: "Kind of the referenced object.",
            form: Form::Word(|| vec!["HTTPRouteGroup"]),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "name",
            about: "HTTP route group in the namespace of the object.",
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

const BACKEND: Shape = Shape {
    what: "a backend",
    keys: &[
        Key {
            name: "service",
            about: "Service that receives the calls; the split service itself is allowed.",
            form: Form::Name,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "weight",
            about: "Relative share of the calls. `0` means no calls; the weights must sum to at least 1.",
            form: Form::Integer(0..=u32::MAX),
            left_out: WhenOmitted::Required,
        },
    ],
};
