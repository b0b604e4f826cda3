//! `[[tcp_route]]`. It is read in `policy/tcp_route.rs`.

use super::{Form, Key, Kind, LeftOut, NAME, NAMESPACE, PORT, Shape};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::TcpRoute,
    about: "Connections to these ports, whatever is said on them.",
    shape: Shape {
        what: PolicyKind::TcpRoute.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "matches",
                about: "which ports",
                form: Form::Table(&Shape {
                    what: "`matches` of a TCP route",
                    keys: &[Key {
                        name: "ports",
                        about: "*service* ports, whatever `target_port` says",
                        form: Form::AtLeastOne(&PORT),
                        left_out: LeftOut::Refused,
                    }],
                }),
                left_out: LeftOut::Means("all TCP ports"),
            },
        ],
    },
    example: include_str!("examples/tcp_route.toml"),
};
