//! `[[egress]]`. It is read in `policy/egress.rs`.

use ironmesh_catalog::EgressProtocol;

use super::{Form, Key, Kind, LeftOut, NAME, NAMESPACE, PORT, Shape};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::Egress,
    about: "What accounts may call outside of the mesh, by host or by address.",
    shape: Shape {
        what: PolicyKind::Egress.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "sources",
                about: "who may call",
                form: Form::AtLeastOne(&Form::Table(&SOURCE)),
                left_out: LeftOut::Refused,
            },
            Key {
                name: "hosts",
                about: "the hosts that they may call; `*.example.com` is all below it",
                form: Form::AtLeastOne(&Form::Text { what: "a hostname", pattern: "^[^ ]+$" }),
                left_out: LeftOut::RefusedWithTheOthers,
            },
            Key {
                name: "ip_addresses",
                about: "with `hosts`, where these may be; without, the addresses that they may call",
                form: Form::AtLeastOne(&Form::Text {
                    what: "a range of addresses",
                    pattern: "^[0-9A-Fa-f.:]+/[0-9]{1,3}$",
                }),
                left_out: LeftOut::RefusedWithTheOthers,
            },
            Key {
                name: "ports",
                about: "the ports that they may call",
                form: Form::AtLeastOne(&Form::Table(&EGRESS_PORT)),
                left_out: LeftOut::Refused,
            },
            Key {
                name: "matches",
                about: "on ports of `http` the requests that they may make: those that any of these matches",
                form: Form::AtLeastOne(&Form::Table(&MATCH)),
                left_out: LeftOut::Means("all requests"),
            },
        ],
    },
    example: include_str!("examples/egress.toml"),
};

const MATCH: Shape = Shape { what: "a match of an egress", keys: super::traffic_split::MATCH.keys };

const SOURCE: Shape = Shape {
    what: "a source of an egress",
    keys: &[
        Key {
            name: "kind",
            about: "what is named",
            form: Form::Word(|| vec!["ServiceAccount"]),
            left_out: LeftOut::Text("ServiceAccount"),
        },
        Key { name: "name", about: "the account", form: Form::Name, left_out: LeftOut::Refused },
        Key {
            name: "namespace",
            about: "where it lives",
            form: Form::Name,
            left_out: LeftOut::Means("the egress's"),
        },
    ],
};

const EGRESS_PORT: Shape = Shape {
    what: "a port of an egress",
    keys: &[
        Key {
            name: "number",
            about: "the port outside; none of the mesh's own",
            form: PORT,
            left_out: LeftOut::Refused,
        },
        Key {
            name: "protocol",
            about: "what is spoken there: `http` in the clear, `https` for TLS, `tcp` for anything",
            form: Form::Word(|| EgressProtocol::ALL.map(|(word, _)| word).to_vec()),
            left_out: LeftOut::Refused,
        },
    ],
};
