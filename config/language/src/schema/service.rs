//! `[[service]]`. It is read in `policy/service.rs` and `policy/endpoints.rs`.

use ironmesh_catalog::{
    AddressFamily, EscapedSlashes, Mode, Protocol, Resolution, Service, Visibility,
};

use super::{DURATION, Form, Key, Kind, LABELS, LOCALITY, LeftOut, NAME, NAMESPACE, PORT, Shape};
use crate::azure;
use crate::kinds::PolicyKind;

pub(super) const KIND: Kind = Kind {
    kind: PolicyKind::Service,
    about: "A logical name with ports.",
    shape: Shape {
        what: PolicyKind::Service.what(),
        keys: &[
            NAME,
            NAMESPACE,
            Key {
                name: "service_account",
                about: "the identity that its processes run as; policy is about these",
                form: Form::Name,
                left_out: LeftOut::Means("the service's name"),
            },
            Key {
                name: "ports",
                about: "the ports that others call",
                form: Form::List(&Form::Table(&SERVICE_PORT)),
                left_out: LeftOut::Means("a pure client"),
            },
            Key {
                name: "mode",
                about: "what becomes of calls that no policy allows",
                form: Form::Word(|| Mode::ALL.map(|(word, _)| word).to_vec()),
                left_out: LeftOut::Means("that of its namespace, else of the mesh"),
            },
            Key {
                name: "visibility",
                about: "who knows of it: `private` is for accounts of its own namespace alone, also as a backend of a split",
                form: Form::Word(|| Visibility::ALL.map(|(word, _)| word).to_vec()),
                left_out: LeftOut::Text("public"),
            },
            Key {
                name: "escaped_slashes",
                about: "what becomes of requests with `%2f` or `%5c` in their path: `reject` answers 400, `keep` lets them pass as they are",
                form: Form::Word(|| EscapedSlashes::ALL.map(|(word, _)| word).to_vec()),
                left_out: LeftOut::Text("reject"),
            },
            Key {
                name: "max_connection_duration",
                about: "how long a caller's connection, and each request, stream or WebSocket on it, lasts at most, from 1s to 30d; not of an external service",
                form: DURATION,
                left_out: LeftOut::Means("no bound"),
            },
            Key {
                name: "state",
                about: "`drained` keeps its name and calls no endpoint of it",
                form: Form::Word(|| Service::STATES.map(|(word, _)| word).to_vec()),
                left_out: LeftOut::Text("active"),
            },
            Key {
                name: "endpoints",
                about: "where its processes are",
                form: Form::Table(&ENDPOINTS),
                left_out: LeftOut::Means("the proxies that joined as this service"),
            },
            Key {
                name: "external",
                about: "whether it is outside of the mesh",
                form: Form::Boolean,
                left_out: LeftOut::Text("false"),
            },
            Key {
                name: "hostname",
                about: "what an external service is called outside",
                form: Form::Text { what: "a hostname", pattern: "^[^ ]+$" },
                left_out: LeftOut::Means("none, for an external service with a list of endpoints"),
            },
            Key {
                name: "resolution",
                about: "how the endpoints of an external service are found",
                form: Form::Word(|| Resolution::ALL.map(|(word, _)| word).to_vec()),
                left_out: LeftOut::Means("`static` with a list of endpoints, else `dns`"),
            },
            Key {
                name: "subsets",
                about: "parts of it with names of their own",
                form: Form::AtLeastOne(&Form::Table(&SUBSET)),
                left_out: LeftOut::Means("none"),
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
            about: "what it is called, unique in the service",
            form: Form::Name,
            left_out: LeftOut::Means("where it is the only port: `port-<number>`"),
        },
        Key {
            name: "port",
            about: "the number that callers say",
            form: PORT,
            left_out: LeftOut::Refused,
        },
        Key {
            name: "protocol",
            about: "what the application speaks",
            form: Form::Word(|| Protocol::ALL.map(|(word, _)| word).to_vec()),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "target_port",
            about: "where the application listens",
            form: PORT,
            left_out: LeftOut::Means("the same as `port`"),
        },
        Key {
            name: "allowed_target_ports",
            about: "the ports that a provider may report for an endpoint besides `target_port`, where the service has one port",
            form: Form::AtLeastOne(&Form::PortRange),
            left_out: LeftOut::Means("`target_port` alone"),
        },
    ],
};

const SUBSET: Shape = Shape {
    what: "a subset",
    keys: &[
        Key {
            name: "name",
            about: "the name of the part, as that of a service",
            form: Form::Name,
            left_out: LeftOut::Refused,
        },
        Key {
            name: "labels",
            about: "what those endpoints have that are the part",
            form: LABELS,
            left_out: LeftOut::Refused,
        },
    ],
};

const ENDPOINTS: Shape = Shape {
    what: "the endpoints of a service",
    keys: &[
        Key {
            name: "static",
            about: "a fixed list",
            form: Form::AtLeastOne(&Form::Table(&ENDPOINT)),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "consul",
            about: "the instances of a service in Consul",
            form: Form::Table(&CONSUL),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "azure_scale_set",
            about: "the machines of scale sets in Azure",
            form: Form::OneOrMore(&Form::Table(&SCALE_SETS)),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "azure_vm",
            about: "virtual machines in Azure that are in no scale set",
            form: Form::OneOrMore(&Form::Table(&MACHINES)),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "registered",
            about: "whether the proxies that joined as this service are endpoints of it by themselves",
            form: Form::Boolean,
            left_out: LeftOut::RefusedWithTheOthers,
        },
    ],
};

/// A name in Consul, as long as `CONSUL_NAME`, in config/language/src/limits.rs.
const CONSUL_NAME: Form =
    Form::Text { what: "1 to 256 characters", pattern: r"^[^\x00-\x1F\x7F-\x9F]{1,256}$" };

const CONSUL: Shape = Shape {
    what: "what Consul is asked for",
    keys: &[
        Key {
            name: "service",
            about: "what the service is called in Consul",
            form: CONSUL_NAME,
            left_out: LeftOut::Means("the service's name"),
        },
        Key {
            name: "datacenter",
            about: "the datacenter of Consul in which it is",
            form: CONSUL_NAME,
            left_out: LeftOut::Means("that of the settings"),
        },
        Key {
            name: "namespace",
            about: "the namespace in Consul, which only Consul Enterprise has",
            form: CONSUL_NAME,
            left_out: LeftOut::Means("that of the settings"),
        },
        Key {
            name: "partition",
            about: "the partition in Consul, which only Consul Enterprise has",
            form: CONSUL_NAME,
            left_out: LeftOut::Means("that of the settings"),
        },
        Key {
            name: "filter",
            about: "which instances, in Consul's filter language",
            form: Form::Text {
                what: "1 to 4096 characters",
                pattern: r"^[^\x00-\x1F\x7F-\x9F]{1,4096}$",
            },
            left_out: LeftOut::Means("all of them"),
        },
        Key {
            name: "tagged_address",
            about: "which of the tagged addresses of an instance is called, if it has that one",
            form: CONSUL_NAME,
            left_out: LeftOut::Means("its own address"),
        },
    ],
};

const SCALE_SETS: Shape = Shape {
    what: "which scale sets",
    keys: &[
        Key {
            name: "name",
            about: "what it is called in Azure, in any case",
            form: Form::Text { what: "the name of a scale set", pattern: azure::SCALE_SET },
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "tags",
            about: "the tags that it has",
            form: TAGS,
            left_out: LeftOut::RefusedWithTheOthers,
        },
        SUBSCRIPTION,
        RESOURCE_GROUP,
        MACHINE_PORT,
        ADDRESS_FAMILY,
    ],
};

const MACHINES: Shape = Shape {
    what: "which virtual machines",
    keys: &[
        Key {
            name: "tags",
            about: "the tags that they have",
            form: TAGS,
            left_out: LeftOut::Refused,
        },
        SUBSCRIPTION,
        RESOURCE_GROUP,
        MACHINE_PORT,
        ADDRESS_FAMILY,
    ],
};

const TAGS: Form = Form::Map {
    key: "tag",
    pattern: azure::TAG,
    value: &Form::Text { what: "at most 256 characters", pattern: azure::TAG_VALUE },
};

const SUBSCRIPTION: Key = Key {
    name: "subscription",
    about: "the subscription that they are in",
    form: Form::Text { what: "a GUID", pattern: azure::SUBSCRIPTION },
    left_out: LeftOut::Means("that of the settings"),
};

const RESOURCE_GROUP: Key = Key {
    name: "resource_group",
    about: "the resource group that they are in",
    form: Form::Text { what: "the name of a resource group", pattern: azure::RESOURCE_GROUP },
    left_out: LeftOut::Means("that of the settings"),
};

const MACHINE_PORT: Key = Key {
    name: "port",
    about: "where the application listens there; it beats `target_port`",
    form: PORT,
    left_out: LeftOut::Means("the `target_port` of the service port"),
};

const ADDRESS_FAMILY: Key = Key {
    name: "address_family",
    about: "which of a machine's addresses is taken",
    form: Form::Word(|| AddressFamily::ALL.map(|(word, _)| word).to_vec()),
    left_out: LeftOut::Text("ipv4"),
};

const ENDPOINT: Shape = Shape {
    what: "an endpoint",
    keys: &[
        Key {
            name: "address",
            about: "the address of the machine",
            // Any text of these characters: what is an address is for the reader to say.
            form: Form::Text { what: "an IP address", pattern: "^[0-9A-Fa-f:.]+$" },
            left_out: LeftOut::Refused,
        },
        Key {
            name: "port",
            about: "where the application listens there; it beats `target_port`",
            form: PORT,
            left_out: LeftOut::Means("the `target_port` of the service port"),
        },
        Key {
            name: "weight",
            about: "its share, relative to the others",
            form: Form::Integer(1..=u32::MAX),
            left_out: LeftOut::Number(1),
        },
        Key {
            name: "labels",
            about: "words of your own, by which policy may select",
            form: LABELS,
            left_out: LeftOut::Means("none"),
        },
        Key {
            name: "locality",
            about: "where it is: a region, a zone in it, a part of that",
            form: LOCALITY,
            left_out: LeftOut::Means("where its proxy is"),
        },
    ],
};
