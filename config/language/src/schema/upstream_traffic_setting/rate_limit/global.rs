//! `rate_limit.global`, and the descriptors of routes.

use super::super::super::{DURATION, Form, Key, LeftOut, PORT, Shape};

/// A key, a value or a domain.
const TEXT: Form =
    Form::Text { what: "1 to 256 characters", pattern: r"^[^\x00-\x1F\x7F-\x9F]{1,256}$" };

/// The name of a header.
const HEADER: Form = Form::Text {
    what: "the name of a header",
    pattern: "^(:path|:method|:authority|[-!#$%&'*+.^_`|~0-9A-Za-z]+)$",
};

pub(super) const GLOBAL: Shape = Shape {
    what: "`rate_limit.global`",
    keys: &[
        Key {
            name: "http",
            about: "of requests",
            form: Form::Table(&HTTP),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "tcp",
            about: "of connections, to ports that are not HTTP",
            form: Form::Table(&TCP),
            left_out: LeftOut::RefusedWithTheOthers,
        },
    ],
};

const TCP: Shape = Shape {
    what: "`rate_limit.global.tcp`",
    keys: &[
        Key {
            name: "rate_limit_service",
            about: "who is asked: `envoy.service.ratelimit.v3`, by HTTP/2 in plaintext",
            form: Form::Table(&SERVICE),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "domain",
            about: "which limits of the service are meant",
            form: TEXT,
            left_out: LeftOut::Refused,
        },
        Key {
            name: "descriptors",
            about: "what it is told of each connection; at most 32",
            form: Form::AtLeastOne(&Form::Table(&OF_CONNECTIONS)),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "timeout",
            about: "how long is waited for the answer, from 1ms to 60s",
            form: DURATION,
            left_out: LeftOut::Text("20ms"),
        },
        Key {
            name: "fail_open",
            about: "what becomes of it without an answer: `true` lets it pass",
            form: Form::Boolean,
            left_out: LeftOut::Text("true"),
        },
    ],
};

const OF_CONNECTIONS: Shape = Shape {
    what: "a descriptor of connections",
    keys: &[Key {
        name: "entries",
        about: "what is counted together is alike in all of these; at most 32",
        form: Form::AtLeastOne(&Form::Table(&PAIR)),
        left_out: LeftOut::Refused,
    }],
};

const PAIR: Shape = Shape {
    what: "an entry of connections",
    keys: &[
        Key { name: "key", about: "its key", form: TEXT, left_out: LeftOut::Refused },
        Key {
            name: "value",
            about: "what is said, the same of all connections",
            form: Form::Text {
                what: "1 to 256 characters",
                pattern: r"^[^\x00-\x1F\x7F-\x9F%]{1,256}$",
            },
            left_out: LeftOut::Refused,
        },
    ],
};

const HTTP: Shape = Shape {
    what: "`rate_limit.global.http`",
    keys: &[
        Key {
            name: "rate_limit_service",
            about: "who is asked: `envoy.service.ratelimit.v3`, by HTTP/2 in plaintext",
            form: Form::Table(&SERVICE),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "domain",
            about: "which limits of the service are meant",
            form: TEXT,
            left_out: LeftOut::Refused,
        },
        Key {
            name: "descriptors",
            about: "what it is told of each request; at most 32",
            form: Form::AtLeastOne(&Form::Table(&DESCRIPTOR)),
            left_out: LeftOut::Refused,
        },
        Key {
            name: "timeout",
            about: "how long is waited for the answer, from 1ms to 60s",
            form: DURATION,
            left_out: LeftOut::Text("20ms"),
        },
        Key {
            name: "fail_open",
            about: "what becomes of it without an answer: `true` lets it pass",
            form: Form::Boolean,
            left_out: LeftOut::Text("true"),
        },
        Key {
            name: "enable_x_rate_limit_headers",
            about: "whether answers say in `x-ratelimit-…` how much is left",
            form: Form::Boolean,
            left_out: LeftOut::Text("false"),
        },
        Key {
            name: "response_status_code",
            about: "what one too many is answered with: one of 400 to 417, 421 to 424, 426, 428, 429, 431, 500 to 508, 510 and 511",
            form: Form::Integer(400..=599),
            left_out: LeftOut::Number(429),
        },
    ],
};

const SERVICE: Shape = Shape {
    what: "a rate limit service",
    keys: &[
        Key {
            name: "host",
            about: "its address, or a name that proxies look up",
            form: Form::Text { what: "a host", pattern: "^[^ ]+$" },
            left_out: LeftOut::Refused,
        },
        Key { name: "port", about: "its port", form: PORT, left_out: LeftOut::Refused },
    ],
};

const DESCRIPTOR: Shape = Shape {
    what: "a descriptor",
    keys: &[Key {
        name: "entries",
        about: "what is counted together is alike in all of these; at most 32",
        form: Form::AtLeastOne(&Form::Table(&ENTRY)),
        left_out: LeftOut::Refused,
    }],
};

const ENTRY: Shape = Shape {
    what: "an entry of a descriptor",
    keys: &[
        Key {
            name: "generic_key",
            about: "the same of all requests",
            form: Form::Table(&GENERIC),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "remote_address",
            about: "whether where it is from is told: the address that `x-forwarded-for` ends with, else that of the connection",
            form: Form::Boolean,
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "request_header",
            about: "the value of a header; a request without it is not counted",
            form: Form::Table(&REQUEST_HEADER),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "header_value_match",
            about: "a word for requests whose headers meet conditions; others are not counted",
            form: Form::Table(&MATCH),
            left_out: LeftOut::RefusedWithTheOthers,
        },
    ],
};

const GENERIC: Shape = Shape {
    what: "a generic key",
    keys: &[
        Key { name: "value", about: "what is said", form: TEXT, left_out: LeftOut::Refused },
        Key { name: "key", about: "its key", form: TEXT, left_out: LeftOut::Text("generic_key") },
    ],
};

const REQUEST_HEADER: Shape = Shape {
    what: "a request header",
    keys: &[
        Key { name: "name", about: "the header", form: HEADER, left_out: LeftOut::Refused },
        Key { name: "key", about: "its key", form: TEXT, left_out: LeftOut::Refused },
    ],
};

const MATCH: Shape = Shape {
    what: "a match of header values",
    keys: &[
        Key { name: "value", about: "what is said", form: TEXT, left_out: LeftOut::Refused },
        Key {
            name: "headers",
            about: "the conditions, all of which must be met; at most 32",
            form: Form::AtLeastOne(&Form::Table(&CONDITION)),
            left_out: LeftOut::Refused,
        },
        Key { name: "key", about: "its key", form: TEXT, left_out: LeftOut::Text("header_match") },
        Key {
            name: "expect_match",
            about: "`false`: where they are not met",
            form: Form::Boolean,
            left_out: LeftOut::Text("true"),
        },
    ],
};

const CONDITION: Shape = Shape {
    what: "a condition on a header",
    keys: &[
        Key { name: "name", about: "the header", form: HEADER, left_out: LeftOut::Refused },
        Key {
            name: "exact",
            about: "its value is this",
            form: TEXT,
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "prefix",
            about: "its value begins so",
            form: TEXT,
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "suffix",
            about: "its value ends so",
            form: TEXT,
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "contains",
            about: "its value has this in it",
            form: TEXT,
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "regex",
            about: "the whole value matches this expression",
            form: Form::Text { what: "a regular expression", pattern: "" },
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "present",
            about: "whether it is there",
            form: Form::Boolean,
            left_out: LeftOut::RefusedWithTheOthers,
        },
    ],
};

pub(super) const OF_ROUTE: Shape = Shape {
    what: "`rate_limit.global` of a route",
    keys: &[Key {
        name: "descriptors",
        about: "what it is told of these requests instead; at most 32",
        form: Form::AtLeastOne(&Form::Table(&DESCRIPTOR)),
        left_out: LeftOut::Refused,
    }],
};
