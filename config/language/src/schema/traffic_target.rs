//! `[[traffic_target]]`. It is read in `policy/traffic_target.rs`.

use super::{Form, Key, Kind, LeftOut, NAME, NAMESPACE, Shape};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::TrafficTarget,
    about: "Who may call whom. Everything else is denied.",
    shape: Shape {
        what: PolicyKind::TrafficTarget.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "destination",
                about: "who may be called; of the target's namespace",
                form: Form::Table(&SUBJECT),
                left_out: LeftOut::Refused,
            },
            Key {
                name: "sources",
                about: "who may call",
                form: Form::AtLeastOne(&Form::Table(&SUBJECT)),
                left_out: LeftOut::Refused,
            },
            Key {
                name: "rules",
                about: "what they may call",
                form: Form::AtLeastOne(&Form::Table(&RULE)),
                left_out: LeftOut::Refused,
            },
        ],
    },
    example: include_str!("examples/traffic_target.toml"),
};

const SUBJECT: Shape = Shape {
    what: "an account",
    keys: &[
        Key {
            name: "kind",
            about: "what is named",
            form: Form::Word(|| vec!["ServiceAccount", "IdentityBinding"]),
            left_out: LeftOut::Text("ServiceAccount"),
        },
        Key {
            name: "name",
            about: "the account or the binding",
            form: Form::Name,
            left_out: LeftOut::Refused,
        },
        Key {
            name: "namespace",
            about: "where it lives",
            form: Form::Name,
            left_out: LeftOut::Means("the target's"),
        },
    ],
};

const RULE: Shape = Shape {
    what: "a rule",
    keys: &[
        Key {
            name: "kind",
            about: "`HTTPRouteGroup`: requests on HTTP ports; `TCPRoute`: connections to TCP ports",
            form: Form::Word(|| vec!["HTTPRouteGroup", "TCPRoute"]),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "name",
            about: "the route group or TCP route, of the target's namespace",
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
