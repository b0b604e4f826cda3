//! `[[ingress_backend]]`. It is read in `policy/ingress_backend.rs`.

use super::{Form, Key, Kind, LeftOut, NAME, NAMESPACE, PORT, Shape};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::IngressBackend,
    about: "Callers outside of the mesh may call these services.",
    shape: Shape {
        what: PolicyKind::IngressBackend.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "backends",
                about: "the service ports that may be called, of its namespace",
                form: Form::AtLeastOne(&Form::Table(&BACKEND)),
                left_out: LeftOut::Refused,
            },
            Key {
                name: "sources",
                about: "who may call: one of those that are named by certificate, if any is, and from one of \
                        the addresses, if any is named",
                form: Form::AtLeastOne(&Form::Table(&SOURCE)),
                left_out: LeftOut::Refused,
            },
            Key {
                name: "matches",
                about: "the requests that they may make: those that any of these matches",
                form: Form::AtLeastOne(&Form::Table(&MATCH)),
                left_out: LeftOut::Means("all requests"),
            },
        ],
    },
    example: include_str!("examples/ingress_backend.toml"),
};

const BACKEND: Shape = Shape {
    what: "a backend of an ingress backend",
    keys: &[
        Key { name: "name", about: "the service", form: Form::Name, left_out: LeftOut::Refused },
        Key {
            name: "port",
            about: "its port, and how proxies are called for it",
            form: Form::Table(&BACKEND_PORT),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "tls",
            about: "what is asked of callers over `https`, which need it; `http` has none",
            form: Form::Table(&TLS),
            left_out: LeftOut::Means("none"),
        },
    ],
};

const BACKEND_PORT: Shape = Shape {
    what: "the port of a backend",
    keys: &[
        Key {
            name: "number",
            about: "the service's port, of a protocol of HTTP",
            form: PORT,
            left_out: LeftOut::Refused,
        },
        Key {
            name: "protocol",
            about: "`https` is mutual TLS at the mesh port; `http` is plaintext at a port of its own",
            form: Form::Word(|| vec!["http", "https"]),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "ingress_port",
            about: "where the proxies listen for `http`, on their mesh address; none of their own ports",
            form: PORT,
            left_out: LeftOut::Means("the service's port"),
        },
    ],
};

const TLS: Shape = Shape {
    what: "the `tls` of a backend",
    keys: &[
        Key {
            name: "sni_hosts",
            about: "the names by which callers ask for the service in SNI",
            form: Form::AtLeastOne(&Form::Text {
                what: "a hostname, or `*.` and one",
                pattern: "^[^ ]+$",
            }),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "skip_client_cert_validation",
            about: "callers need no certificate: only with sources by address",
            form: Form::Boolean,
            left_out: LeftOut::Text("false"),
        },
    ],
};

const SOURCE: Shape = Shape {
    what: "a source of an ingress backend",
    keys: &[
        Key {
            name: "kind",
            about: "what is named",
            form: Form::Word(|| vec!["AuthenticatedPrincipal", "IPRange", "Service"]),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "name",
            about: "the SPIFFE ID or the DNS name in a caller's certificate; a range of addresses (CIDR); or \
                    a service, for the addresses of its proxies and its listed endpoints",
            form: Form::Text { what: "what the kind says", pattern: r"^[\s\S]+$" },
            left_out: LeftOut::Refused,
        },
        Key {
            name: "namespace",
            about: "where the service lives; only of kind `Service`",
            form: Form::Name,
            left_out: LeftOut::Means("that of the ingress backend"),
        },
    ],
};

const MATCH: Shape = Shape {
    what: "a match of an ingress backend",
    keys: &[
        Key {
            name: "kind",
            about: "what is named",
            form: Form::Word(|| vec!["HTTPRouteGroup"]),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "name",
            about: "the route group, of the same namespace",
            form: Form::Name,
            left_out: LeftOut::Refused,
        },
        Key {
            name: "matches",
            about: "the matches of the route group that are meant",
            form: Form::AtLeastOne(&Form::Name),
            left_out: LeftOut::Means("all of them"),
        },
    ],
};
