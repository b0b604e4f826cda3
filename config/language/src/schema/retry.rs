//! `[[retry]]`. It is read in `policy/retry.rs`.

use super::http_route::{BASE_INTERVAL, MAX_INTERVAL, NUM_RETRIES, PER_TRY_TIMEOUT, SOURCE};
use super::{Form, Key, Kind, LeftOut, NAME, NAMESPACE, Shape};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::Retry,
    about: "What is tried again of the calls of one account to some services.",
    shape: Shape {
        what: PolicyKind::Retry.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "source",
                about: "the account that calls",
                form: Form::Table(&SOURCE),
                left_out: LeftOut::Refused,
            },
            Key {
                name: "destinations",
                about: "the services that it calls, by the names that it says",
                form: Form::AtLeastOne(&Form::Table(&DESTINATION)),
                left_out: LeftOut::Refused,
            },
            Key {
                name: "retry_policy",
                about: "what is tried again",
                form: Form::Table(&POLICY),
                left_out: LeftOut::Refused,
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
            about: "what is named",
            form: Form::Word(|| vec!["Service"]),
            left_out: LeftOut::Text("Service"),
        },
        Key { name: "name", about: "the service", form: Form::Name, left_out: LeftOut::Refused },
        Key {
            name: "namespace",
            about: "that of the service",
            form: Form::Name,
            left_out: LeftOut::Means("the namespace of the retry"),
        },
    ],
};

const POLICY: Shape = Shape {
    what: "a retry policy",
    keys: &[
        Key {
            name: "retry_on",
            about: "after what: conditions of Envoy for HTTP and gRPC, and statuses, with commas between them",
            form: Form::Text { what: "conditions and statuses", pattern: "^[a-z0-9, -]+$" },
            left_out: LeftOut::Refused,
        },
        NUM_RETRIES,
        PER_TRY_TIMEOUT,
        BASE_INTERVAL,
        MAX_INTERVAL,
    ],
};
