//! `[[service]]`. It is read in `policy/service.rs` and `policy/endpoints.rs`.

use ironmesh_catalog::{
    AddressFamily, EscapedSlashes, JoinRank, Mode, Protocol, Resolution, Service, Visibility,
};

use super::{
    DURATION, Form, Key, Kind, LABELS, LOCALITY, NAME, NAMESPACE, PORT, Shape, WhenOmitted,
};
use crate::azure;
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::Service,
    about: "Defines a logical name with ports, and where its endpoints come from.",
    shape: Shape {
        what: PolicyKind::Service.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "service_account",
                about: "Identity of the service's processes; access policy refers to accounts.",
                form: Form::Name,
                left_out: WhenOmitted::Means("name of the service"),
            },
            Key {
                name: "ports",
                about: "Ports that callers use.",
                form: Form::List(&Form::Table(&SERVICE_PORT)),
                left_out: WhenOmitted::Means("none (the service only calls others)"),
            },
            Key {
                name: "mode",
                about: "How the service treats calls that no policy allows.",
                form: Form::Word(|| Mode::ALL.map(|(word, _)| word).to_vec()),
                left_out: WhenOmitted::Means("mode of the namespace, else of the mesh"),
            },
            Key {
                name: "visibility",
                about: "Which accounts may learn of the service: `private` limits it to its own namespace, also as a backend of a split.",
                form: Form::Word(|| Visibility::ALL.map(|(word, _)| word).to_vec()),
                left_out: WhenOmitted::Text("public"),
            },
            Key {
                name: "escaped_slashes",
                about: "Treatment of requests with `%2f` or `%5c` in the path: `reject` answers 400, `keep` forwards them unchanged.",
                form: Form::Word(|| EscapedSlashes::ALL.map(|(word, _)| word).to_vec()),
                left_out: WhenOmitted::Text("reject"),
            },
            Key {
                name: "max_connection_duration",
                about: "Maximum age of a caller's connection, and of each request, stream or WebSocket on it; `1s` to `30d`. Not for external services.",
                form: DURATION,
                left_out: WhenOmitted::Means("no limit"),
            },
            Key {
                name: "state",
                about: "`drained` keeps the name and the policy, and sends no traffic to its endpoints.",
                form: Form::Word(|| Service::STATES.map(|(word, _)| word).to_vec()),
                left_out: WhenOmitted::Text("active"),
            },
            Key {
                name: "endpoints",
                about: "Endpoints providers of the service.",
                form: Form::Table(&ENDPOINTS),
                left_out: WhenOmitted::Means("`registered = true`"),
            },
            Key {
                name: "health",
                about: "How the agent of each machine probes the application; one that fails leaves its callers' endpoints.",
                form: Form::Table(&HEALTH),
                left_out: WhenOmitted::Means("not probed"),
            },
            Key {
                name: "external",
                about: "Whether the service is outside the mesh.",
                form: Form::Boolean,
                left_out: WhenOmitted::Text("false"),
            },
            Key {
                name: "hostname",
                about: "Hostname of an external service.",
                form: Form::Text { what: "hostname", pattern: "^[^ ]+$" },
                left_out: WhenOmitted::Means(
                    "none; an external service without `static` endpoints requires it",
                ),
            },
            Key {
                name: "resolution",
                about: "How proxies find the endpoints of an external service.",
                form: Form::Word(|| Resolution::ALL.map(|(word, _)| word).to_vec()),
                left_out: WhenOmitted::Means("`static` with a list of endpoints, else `dns`"),
            },
            Key {
                name: "subsets",
                about: "Named subsets of the endpoints.",
                form: Form::AtLeastOne(&Form::Table(&SUBSET)),
                left_out: WhenOmitted::Means("none"),
            },
            Key {
                name: "upstreams",
                about: "Local ports of the service's machines that lead to other services. Not for external services.",
                form: Form::List(&Form::Table(&UPSTREAM)),
                left_out: WhenOmitted::Means("none"),
            },
        ],
    },
    example: include_str!("examples/service.toml"),
};

const SERVICE_PORT: Shape = Shape {
    what: "a port",
    keys: &[
        Key {
            name: "name",
            about: "Name, unique in the service.",
            form: Form::Name,
            left_out: WhenOmitted::Means("`port-<number>`; required with several ports"),
        },
        Key {
            name: "port",
            about: "Port number that callers use.",
            form: PORT,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "protocol",
            about: "Protocol of the application.",
            form: Form::Word(|| Protocol::ALL.map(|(word, _)| word).to_vec()),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "target_port",
            about: "Port where the application listens.",
            form: PORT,
            left_out: WhenOmitted::Means("same as `port`"),
        },
        Key {
            name: "allowed_target_ports",
            about: "Ports besides `target_port` that a provider may report for an endpoint; only for a service with one port.",
            form: Form::AtLeastOne(&Form::PortRange),
            left_out: WhenOmitted::Means("only `target_port`"),
        },
    ],
};

const HEALTH: Shape = Shape {
    what: "a health check",
    keys: &[
        Key {
            name: "http",
            about: "Requests a path with `GET`. Redirects are not followed.",
            form: Form::Table(&HTTP_PROBE),
            left_out: WhenOmitted::ExactlyOneRequired,
        },
        Key {
            name: "tcp",
            about: "Opens a connection.",
            form: Form::Table(&Shape { what: "a TCP probe", keys: &[] }),
            left_out: WhenOmitted::ExactlyOneRequired,
        },
        Key {
            name: "grpc",
            about: "Calls `grpc.health.v1.Health/Check`.",
            form: Form::Table(&GRPC_PROBE),
            left_out: WhenOmitted::ExactlyOneRequired,
        },
        Key {
            name: "command",
            about: "Runs the command of this name in `[commands]` of the machine's `agent.toml`; status 0 is a success.",
            form: Form::Name,
            left_out: WhenOmitted::ExactlyOneRequired,
        },
        Key {
            name: "port",
            about: "The service port whose application is probed, at its target port: its number or name.",
            form: Form::PortOrName,
            left_out: WhenOmitted::Means("the only port; required with several ports"),
        },
        Key {
            name: "interval",
            about: "Time between two probes; `1s` to `1h`.",
            form: DURATION,
            left_out: WhenOmitted::Text("5s"),
        },
        Key {
            name: "timeout",
            about: "Time limit of a whole probe, at most `interval`.",
            form: DURATION,
            left_out: WhenOmitted::Means("`2s`, or `interval` if that is shorter"),
        },
        Key {
            name: "unhealthy_threshold",
            about: "Failures in a row that make a healthy application unhealthy.",
            form: Form::Integer(1..=100),
            left_out: WhenOmitted::Number(3),
        },
        Key {
            name: "healthy_threshold",
            about: "Successes in a row that make an unhealthy application healthy.",
            form: Form::Integer(1..=100),
            left_out: WhenOmitted::Number(2),
        },
    ],
};

const HTTP_PROBE: Shape = Shape {
    what: "an HTTP probe",
    keys: &[
        Key {
            name: "path",
            about: "Path of the request, with its query.",
            form: Form::Text { what: "path", pattern: "^/[!\"$-~]{0,1023}$" },
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "host",
            about: "`Host` header of the request.",
            form: Form::Text { what: "host", pattern: "^[!\"$-.0->A-~]{1,1024}$" },
            left_out: WhenOmitted::Means("address and port of the application"),
        },
        Key {
            name: "statuses",
            about: "Statuses that count as a success.",
            form: Form::AtLeastOne(&Form::StatusRange),
            left_out: WhenOmitted::Means("`\"200-299\"`"),
        },
    ],
};

const GRPC_PROBE: Shape = Shape {
    what: "a gRPC probe",
    keys: &[Key {
        name: "service",
        about: "Name of the service in the request.",
        form: Form::Text {
            what: "text, 1 to 1024 characters",
            pattern: r"^[^\x00-\x1F\x7F-\x9F]{1,1024}$",
        },
        left_out: WhenOmitted::Means("empty, which means the whole server"),
    }],
};

const SUBSET: Shape = Shape {
    what: "a subset",
    keys: &[
        Key {
            name: "name",
            about: "Name of the subset; it is a service name.",
            form: Form::Name,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "labels",
            about: "Labels of the endpoints in the subset.",
            form: LABELS,
            left_out: WhenOmitted::Required,
        },
    ],
};

const UPSTREAM: Shape = Shape {
    what: "an upstream",
    keys: &[
        Key {
            name: "service",
            about: "Service to call; without a namespace, one of the same namespace.",
            form: Form::Text {
                what: "service, such as `api` or `shop/api`",
                pattern: "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/)?[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
            },
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "port",
            about: "Port of that service: its number or name.",
            form: Form::PortOrName,
            left_out: WhenOmitted::Means("its only port"),
        },
        Key {
            name: "local_port",
            about: "Loopback port for the applications of the machine; no port of Ironmesh, and no target port of the service.",
            form: Form::Integer(1024..=65535),
            left_out: WhenOmitted::Required,
        },
    ],
};

const ENDPOINTS: Shape = Shape {
    what: "the endpoints of a service",
    keys: &[
        Key {
            name: "static",
            about: "Fixed list of endpoints.",
            form: Form::AtLeastOne(&Form::Table(&ENDPOINT)),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "consul",
            about: "Instances of a service in Consul.",
            form: Form::Table(&CONSUL),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "azure_scale_set",
            about: "Machines of Azure scale sets.",
            form: Form::OneOrMore(&Form::Table(&SCALE_SETS)),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "azure_vm",
            about: "Azure virtual machines that belong to no scale set.",
            form: Form::OneOrMore(&Form::Table(&MACHINES)),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "registered",
            about: "Whether the proxies enrolled for this service are endpoints of it.",
            form: Form::Boolean,
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

/// A name in Consul, as long as `CONSUL_NAME`, in config/language/src/limits.rs.
const CONSUL_NAME: Form =
    Form::Text { what: "text, 1 to 256 characters", pattern: r"^[^\x00-\x1F\x7F-\x9F]{1,256}$" };

const CONSUL: Shape = Shape {
    what: "a Consul query",
    keys: &[
        Key {
            name: "service",
            about: "Name of the service in Consul.",
            form: CONSUL_NAME,
            left_out: WhenOmitted::Means("name of the service"),
        },
        Key {
            name: "datacenter",
            about: "Consul datacenter of the service.",
            form: CONSUL_NAME,
            left_out: WhenOmitted::Means("value in the settings"),
        },
        Key {
            name: "namespace",
            about: "Consul namespace (Consul Enterprise only).",
            form: CONSUL_NAME,
            left_out: WhenOmitted::Means("value in the settings"),
        },
        Key {
            name: "partition",
            about: "Consul admin partition (Consul Enterprise only).",
            form: CONSUL_NAME,
            left_out: WhenOmitted::Means("value in the settings"),
        },
        Key {
            name: "filter",
            about: "Filter on instances, in Consul's filter language.",
            form: Form::Text {
                what: "text, 1 to 4096 characters",
                pattern: r"^[^\x00-\x1F\x7F-\x9F]{1,4096}$",
            },
            left_out: WhenOmitted::Means("all"),
        },
        Key {
            name: "tagged_address",
            about: "Tagged address to call, on instances that have it.",
            form: CONSUL_NAME,
            left_out: WhenOmitted::Means("address of the instance"),
        },
    ],
};

const SCALE_SETS: Shape = Shape {
    what: "a scale set query",
    keys: &[
        Key {
            name: "name",
            about: "Name of the scale set in Azure; ignores case.",
            form: Form::Text { what: "name of a scale set", pattern: azure::SCALE_SET },
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "tags",
            about: "Tags of the scale set.",
            form: TAGS,
            left_out: WhenOmitted::OneRequired,
        },
        SUBSCRIPTION,
        RESOURCE_GROUP,
        MACHINE_PORT,
        ADDRESS_FAMILY,
        JOIN,
    ],
};

const MACHINES: Shape = Shape {
    what: "a virtual machine query",
    keys: &[
        Key {
            name: "tags",
            about: "Tags of the virtual machines.",
            form: TAGS,
            left_out: WhenOmitted::Required,
        },
        SUBSCRIPTION,
        RESOURCE_GROUP,
        MACHINE_PORT,
        ADDRESS_FAMILY,
        JOIN,
    ],
};

const TAGS: Form = Form::Map {
    key: "tag",
    pattern: azure::TAG,
    value: &Form::Text { what: "text, at most 256 characters", pattern: azure::TAG_VALUE },
};

const SUBSCRIPTION: Key = Key {
    name: "subscription",
    about: "Azure subscription to search.",
    form: Form::Text { what: "GUID", pattern: azure::SUBSCRIPTION },
    left_out: WhenOmitted::Means("value in the settings"),
};

const RESOURCE_GROUP: Key = Key {
    name: "resource_group",
    about: "Azure resource group to search.",
    form: Form::Text { what: "name of a resource group", pattern: azure::RESOURCE_GROUP },
    left_out: WhenOmitted::Means("value in the settings"),
};

const MACHINE_PORT: Key = Key {
    name: "port",
    about: "Port where the application listens on the machine; overrides `target_port`.",
    form: PORT,
    left_out: WhenOmitted::Means("`target_port` of the service port"),
};

const ADDRESS_FAMILY: Key = Key {
    name: "address_family",
    about: "Which address of a machine to use.",
    form: Form::Word(|| AddressFamily::ALL.map(|(word, _)| word).to_vec()),
    left_out: WhenOmitted::Text("ipv4"),
};

const JOIN: Key = Key {
    name: "join",
    about: "Lets these machines join the mesh as this service without a token; they call others as their first `primary` service.",
    form: Form::Word(|| JoinRank::ALL.map(|(word, _)| word).to_vec()),
    left_out: WhenOmitted::Means("they need a token"),
};

const ENDPOINT: Shape = Shape {
    what: "an endpoint",
    keys: &[
        Key {
            name: "address",
            about: "Address of the machine.",
            // Any text of these characters: the reader checks addresses.
            form: Form::Text { what: "IP address", pattern: "^[0-9A-Fa-f:.]+$" },
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "port",
            about: "Port where the application listens on the machine; overrides `target_port`.",
            form: PORT,
            left_out: WhenOmitted::Means("`target_port` of the service port"),
        },
        Key {
            name: "weight",
            about: "Relative share of the traffic.",
            form: Form::Integer(1..=u32::MAX),
            left_out: WhenOmitted::Number(1),
        },
        Key {
            name: "labels",
            about: "Labels of your choice that policy may select by.",
            form: LABELS,
            left_out: WhenOmitted::Means("none"),
        },
        Key {
            name: "locality",
            about: "Location: region, zone and sub-zone.",
            form: LOCALITY,
            left_out: WhenOmitted::Means("locality of its proxy"),
        },
    ],
};
