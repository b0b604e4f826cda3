//! `[[traffic_target]]`. It is read in `policy/traffic_target.rs`.

use super::{Form, Key, Kind, NAME, NAMESPACE, Shape, WhenOmitted};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::TrafficTarget,
    about: "Allows source accounts to call a destination account, limited by rules. All other calls are denied.",
    shape: Shape {
        what: PolicyKind::TrafficTarget.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "destination",
                about: "Account or binding that may be called; must be in the namespace of the target.",
                form: Form::Table(&SUBJECT),
                left_out: WhenOmitted::Required,
            },
            Key {
                name: "sources",
                about: "Accounts or bindings that may call.",
                form: Form::AtLeastOne(&Form::Table(&SUBJECT)),
                left_out: WhenOmitted::Required,
            },
            Key {
                name: "rules",
                about: "Requests and connections that they may make.",
                form: Form::AtLeastOne(&Form::Table(&RULE)),
                left_out: WhenOmitted::Required,
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
            about: "Kind of the referenced object.",
            form: Form::Word(|| vec!["ServiceAccount", "IdentityBinding"]),
            left_out: WhenOmitted::Text("ServiceAccount"),
        },
        Key {
            name: "name",
            about: "Service account or identity binding.",
            form: Form::Name,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "namespace",
            about: "Namespace of the referenced object.",
            form: Form::Name,
            left_out: WhenOmitted::Means("namespace of the target"),
        },
    ],
};

const RULE: Shape = Shape {
    what: "a rule",
    keys: &[
        Key {
            name: "kind",
            about: "`HTTPRouteGroup` allows requests on HTTP ports; `TCPRoute` allows connections to ports.",
            form: Form::Word(|| vec!["HTTPRouteGroup", "TCPRoute"]),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "name",
            about: "HTTP route group or TCP route in the namespace of the target.",
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
