//! `[[ingress_backend]]`. It is read in `policy/ingress_backend.rs`.

use super::{Form, Key, Kind, NAME, NAMESPACE, PORT, Shape, WhenOmitted};
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::IngressBackend,
    about: "Allows callers outside the mesh to call service ports.",
    shape: Shape {
        what: PolicyKind::IngressBackend.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "backends",
                about: "Service ports that may be called, in the namespace of the ingress backend.",
                form: Form::AtLeastOne(&Form::Table(&BACKEND)),
                left_out: WhenOmitted::Required,
            },
            Key {
                name: "sources",
                about: "Callers that may call. A caller must match a named principal, if there is one, and a \
                        named address, if there is one.",
                form: Form::AtLeastOne(&Form::Table(&SOURCE)),
                left_out: WhenOmitted::Required,
            },
            Key {
                name: "matches",
                about: "Requests that they may send. A request must meet at least one match.",
                form: Form::AtLeastOne(&Form::Table(&MATCH)),
                left_out: WhenOmitted::Means("all requests"),
            },
        ],
    },
    example: include_str!("examples/ingress_backend.toml"),
};

const BACKEND: Shape = Shape {
    what: "a backend of an ingress backend",
    keys: &[
        Key { name: "name", about: "Service.", form: Form::Name, left_out: WhenOmitted::Required },
        Key {
            name: "port",
            about: "Service port, and how callers reach it on the proxies.",
            form: Form::Table(&BACKEND_PORT),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "tls",
            about: "TLS of the backend: required with `https`, not allowed with `http`.",
            form: Form::Table(&TLS),
            left_out: WhenOmitted::Means("none"),
        },
    ],
};

const BACKEND_PORT: Shape = Shape {
    what: "the port of a backend",
    keys: &[
        Key {
            name: "number",
            about: "Number of the service port, which must be an HTTP port.",
            form: PORT,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "protocol",
            about: "`https` is TLS on the mesh port (15003); `http` is plaintext on a separate port.",
            form: Form::Word(|| vec!["http", "https"]),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "ingress_port",
            about: "Port on the mesh address where proxies listen for `http`; never a port of the proxy itself.",
            form: PORT,
            left_out: WhenOmitted::Means("number of the service port"),
        },
    ],
};

const TLS: Shape = Shape {
    what: "the `tls` of a backend",
    keys: &[
        Key {
            name: "sni_hosts",
            about: "Server names (SNI) that select the service.",
            form: Form::AtLeastOne(&Form::Text {
                what: "hostname, or `*.` and a hostname",
                pattern: "^[^ ]+$",
            }),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "skip_client_cert_validation",
            about: "Whether callers need no client certificate; requires sources by address.",
            form: Form::Boolean,
            left_out: WhenOmitted::Text("false"),
        },
    ],
};

const SOURCE: Shape = Shape {
    what: "a source of an ingress backend",
    keys: &[
        Key {
            name: "kind",
            about: "Kind of the referenced object.",
            form: Form::Word(|| vec!["AuthenticatedPrincipal", "IPRange", "Service"]),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "name",
            about: "`AuthenticatedPrincipal`: SPIFFE ID or DNS name in the caller's certificate. `IPRange`: \
                    CIDR range. `Service`: service whose proxies and `static` endpoints may call.",
            form: Form::Text { what: "text that depends on `kind`", pattern: r"^[\s\S]+$" },
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "namespace",
            about: "Namespace of the service; only with kind `Service`.",
            form: Form::Name,
            left_out: WhenOmitted::Means("namespace of the ingress backend"),
        },
    ],
};

const MATCH: Shape = Shape {
    what: "a match of an ingress backend",
    keys: &[
        Key {
            name: "kind",
            about: "Kind of the referenced object.",
            form: Form::Word(|| vec!["HTTPRouteGroup"]),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "name",
            about: "HTTP route group in the same namespace.",
            form: Form::Name,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "matches",
            about: "Matches of the route group that apply.",
            form: Form::AtLeastOne(&Form::Name),
            left_out: WhenOmitted::Means("all"),
        },
    ],
};
