//! `[[retry]]`. It is read in `policy/retry.rs`.

use super::http_route::{BASE_INTERVAL, MAX_INTERVAL, NUM_RETRIES, PER_TRY_TIMEOUT, SOURCE};
use super::{Form, Key, Kind, NAME, NAMESPACE, Shape, WhenOmitted};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::Retry,
    about: "Sets retries for the calls of one account to some services, as Open Service Mesh does.",
    shape: Shape {
        what: PolicyKind::Retry.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "source",
                about: "Account of the caller.",
                form: Form::Table(&SOURCE),
                left_out: WhenOmitted::Required,
            },
            Key {
                name: "destinations",
                about: "Services that the account calls, by the names that it uses.",
                form: Form::AtLeastOne(&Form::Table(&DESTINATION)),
                left_out: WhenOmitted::Required,
            },
            Key {
                name: "retry_policy",
                about: "Retries of failed requests.",
                form: Form::Table(&POLICY),
                left_out: WhenOmitted::Required,
            },
        ],
    },
    example: include_str!("examples/retry.toml"),
};

const DESTINATION: Shape = Shape {
    what: "a destination of a retry",
    keys: &[
        Key {
            name: "kind",
            about: "Kind of the referenced object.",
            form: Form::Word(|| vec!["Service"]),
            left_out: WhenOmitted::Text("Service"),
        },
        Key { name: "name", about: "Service.", form: Form::Name, left_out: WhenOmitted::Required },
        Key {
            name: "namespace",
            about: "Namespace of the service.",
            form: Form::Name,
            left_out: WhenOmitted::Means("namespace of the retry"),
        },
    ],
};

const POLICY: Shape = Shape {
    what: "a retry policy",
    keys: &[
        Key {
            name: "retry_on",
            about: "When to retry: Envoy's conditions for HTTP and gRPC, and HTTP statuses, separated by commas.",
            form: Form::Text { what: "conditions and statuses", pattern: "^[a-z0-9, -]+$" },
            left_out: WhenOmitted::Required,
        },
        NUM_RETRIES,
        PER_TRY_TIMEOUT,
        BASE_INTERVAL,
        MAX_INTERVAL,
    ],
};
