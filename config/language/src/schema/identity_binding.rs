//! `[[identity_binding]]`. It is read in `policy/identity_binding.rs`.

use ironmesh_catalog::Provider;

use super::{Form, Key, Kind, LABELS, NAME, NAMESPACE, Shape, WhenOmitted};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::IdentityBinding,
    about: "Names a set of identities, for the sources and the destination of traffic targets.",
    shape: Shape {
        what: PolicyKind::IdentityBinding.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "service_account",
                about: "Service account of the namespace; excludes `endpoint_labels`.",
                form: Form::Name,
                left_out: WhenOmitted::Means("none"),
            },
            Key {
                name: "spiffe_identities",
                about: "SPIFFE IDs, of any namespace; the prefix `spiffe://` is optional.",
                form: Form::AtLeastOne(&Form::Text { what: "SPIFFE ID", pattern: "^[^ ]+$" }),
                left_out: WhenOmitted::Means("none"),
            },
            Key {
                name: "endpoint_labels",
                about: "Selects the accounts of the namespace of which every endpoint has these labels.",
                form: LABELS,
                left_out: WhenOmitted::Means("none"),
            },
            Key {
                name: "trusted_providers",
                about: "Providers whose labels count for `endpoint_labels`, besides join records and `static` endpoints.",
                form: Form::AtLeastOne(&Form::Word(|| {
                    Provider::external().map(Provider::name).collect()
                })),
                left_out: WhenOmitted::Means("none"),
            },
        ],
    },
    example: include_str!("examples/identity_binding.toml"),
};
