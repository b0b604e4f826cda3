//! `[[namespace]]`. It is read in `policy/namespace.rs`.

use ironmesh_catalog::{EgressMode, Mode};

use super::{Form, Key, Kind, Shape, WhenOmitted};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::Namespace,
    about: "Sets defaults for all services and accounts of a namespace.",
    shape: Shape {
        what: PolicyKind::Namespace.what(),
        keys: &[
            Key {
                name: "name",
                about: "Name of the namespace.",
                form: Form::Name,
                left_out: WhenOmitted::Required,
            },
            Key {
                name: "mode",
                about: "How services without a mode of their own treat calls that no policy allows.",
                form: Form::Word(|| Mode::ALL.map(|(word, _)| word).to_vec()),
                left_out: WhenOmitted::Means("value of the mesh, from the settings"),
            },
            Key {
                name: "egress",
                about: "How proxies treat calls of the namespace's accounts to hosts outside the mesh that no \
                        egress allows: `policy` denies them, `passthrough` allows them.",
                form: Form::Word(|| EgressMode::ALL.map(|(word, _)| word).to_vec()),
                left_out: WhenOmitted::Means("value of the mesh, from the settings"),
            },
        ],
    },
    example: include_str!("examples/namespace.toml"),
};
