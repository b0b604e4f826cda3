//! `[[egress]]`. It is read in `policy/egress.rs`.

use ironmesh_catalog::EgressProtocol;

use super::{Form, Key, Kind, NAME, NAMESPACE, PORT, Shape, WhenOmitted};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::Egress,
    about: "Allows service accounts to call hosts or addresses outside the mesh.",
    shape: Shape {
        what: PolicyKind::Egress.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "sources",
                about: "Service accounts that may call.",
                form: Form::AtLeastOne(&Form::Table(&SOURCE)),
                left_out: WhenOmitted::Required,
            },
            Key {
                name: "hosts",
                about: "Hosts that they may call; `*.example.com` covers all hosts below `example.com`.",
                form: Form::AtLeastOne(&Form::Text { what: "hostname", pattern: "^[^ ]+$" }),
                left_out: WhenOmitted::OneRequired,
            },
            Key {
                name: "ip_addresses",
                about: "With `hosts`: addresses to which the hosts may resolve. Without `hosts`: addresses that they may call.",
                form: Form::AtLeastOne(&Form::Text {
                    what: "CIDR range",
                    pattern: "^[0-9A-Fa-f.:]+/[0-9]{1,3}$",
                }),
                left_out: WhenOmitted::OneRequired,
            },
            Key {
                name: "ports",
                about: "Ports that they may call.",
                form: Form::AtLeastOne(&Form::Table(&EGRESS_PORT)),
                left_out: WhenOmitted::Required,
            },
            Key {
                name: "matches",
                about: "On `http` ports: requests that they may send. A request must meet at least one match.",
                form: Form::AtLeastOne(&Form::Table(&MATCH)),
                left_out: WhenOmitted::Means("all requests"),
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
            about: "Kind of the referenced object.",
            form: Form::Word(|| vec!["ServiceAccount"]),
            left_out: WhenOmitted::Text("ServiceAccount"),
        },
        Key {
            name: "name",
            about: "Service account.",
            form: Form::Name,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "namespace",
            about: "Namespace of the referenced object.",
            form: Form::Name,
            left_out: WhenOmitted::Means("namespace of the egress"),
        },
    ],
};

const EGRESS_PORT: Shape = Shape {
    what: "a port of an egress",
    keys: &[
        Key {
            name: "number",
            about: "Destination port outside the mesh; never a port of the mesh.",
            form: PORT,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "protocol",
            about: "Protocol of the port: `http` is plaintext HTTP, `https` is TLS, `tcp` is any protocol.",
            form: Form::Word(|| EgressProtocol::ALL.map(|(word, _)| word).to_vec()),
            left_out: WhenOmitted::Required,
        },
    ],
};
