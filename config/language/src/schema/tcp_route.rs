//! `[[tcp_route]]`. It is read in `policy/tcp_route.rs`.

use super::{Form, Key, Kind, NAME, NAMESPACE, PORT, Shape, WhenOmitted};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::TcpRoute,
    about: "Names a set of TCP service ports, for traffic targets to refer to.",
    shape: Shape {
        what: PolicyKind::TcpRoute.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "matches",
                about: "Ports of the route.",
                form: Form::Table(&Shape {
                    what: "`matches` of a TCP route",
                    keys: &[Key {
                        name: "ports",
                        about: "Service ports (`port`, not `target_port`).",
                        form: Form::AtLeastOne(&PORT),
                        left_out: WhenOmitted::Required,
                    }],
                }),
                left_out: WhenOmitted::Means("all ports"),
            },
        ],
    },
    example: include_str!("examples/tcp_route.toml"),
};
