//! `[[namespace]]`. It is read in `policy/namespace.rs`.

use ironmesh_catalog::{EgressMode, Mode};

use super::{Form, Key, Kind, LeftOut, Shape};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::Namespace,
    about: "What holds for all services of a namespace.",
    shape: Shape {
        what: PolicyKind::Namespace.what(),
        keys: &[
            Key {
                name: "name",
                about: "the namespace",
                form: Form::Name,
                left_out: LeftOut::Refused,
            },
            Key {
                name: "mode",
                about: "what becomes of calls that no policy allows, of services that say nothing else",
                form: Form::Word(|| Mode::ALL.map(|(word, _)| word).to_vec()),
                left_out: LeftOut::Means("the mesh's, from the settings"),
            },
            Key {
                name: "egress",
                about: "what becomes of calls of its accounts to the outside that no policy allows: \
                        `policy` refuses them, `passthrough` lets them go",
                form: Form::Word(|| EgressMode::ALL.map(|(word, _)| word).to_vec()),
                left_out: LeftOut::Means("the mesh's, from the settings"),
            },
        ],
    },
    example: include_str!("examples/namespace.toml"),
};
