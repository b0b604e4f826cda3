//! `rate_limit.global`, and the descriptors of routes.

use super::super::super::{DURATION, Form, Key, PORT, Shape, WhenOmitted};

/// A key, a value or a domain.
const TEXT: Form =
    Form::Text { what: "text, 1 to 256 characters", pattern: r"^[^\x00-\x1F\x7F-\x9F]{1,256}$" };

/// The name of a header.
const HEADER: Form = Form::Text {
    what: "header name",
    pattern: "^(:path|:method|:authority|[-!#$%&'*+.^_`|~0-9A-Za-z]+)$",
};

pub(super) const GLOBAL: Shape = Shape {
    what: "`rate_limit.global`",
    keys: &[
        Key {
            name: "http",
            about: "Limit on requests.",
            form: Form::Table(&HTTP),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "tcp",
            about: "Limit on connections to ports that are not HTTP.",
            form: Form::Table(&TCP),
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

const TCP: Shape = Shape {
    what: "`rate_limit.global.tcp`",
    keys: &[
        Key {
            name: "rate_limit_service",
            about: "Rate limit service (`envoy.service.ratelimit.v3`), called by HTTP/2 in plaintext.",
            form: Form::Table(&SERVICE),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "domain",
            about: "Domain of the limits in the rate limit service.",
            form: TEXT,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "descriptors",
            about: "Descriptors sent for each connection; at most 32.",
            form: Form::AtLeastOne(&Form::Table(&OF_CONNECTIONS)),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "timeout",
            about: "Time limit of the call to the rate limit service, `1ms` to `60s`.",
            form: DURATION,
            left_out: WhenOmitted::Text("20ms"),
        },
        Key {
            name: "fail_open",
            about: "Whether calls pass if the rate limit service does not answer.",
            form: Form::Boolean,
            left_out: WhenOmitted::Text("true"),
        },
    ],
};

const OF_CONNECTIONS: Shape = Shape {
    what: "a descriptor of connections",
    keys: &[Key {
        name: "entries",
        about: "Entries of the descriptor, at most 32. Calls with equal entries share a counter.",
        form: Form::AtLeastOne(&Form::Table(&PAIR)),
        left_out: WhenOmitted::Required,
    }],
};

const PAIR: Shape = Shape {
    what: "an entry of connections",
    keys: &[
        Key {
            name: "key",
            about: "Key of the entry.",
            form: TEXT,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "value",
            about: "Value of the entry, the same for all connections.",
            form: Form::Text {
                what: "text, 1 to 256 characters",
                pattern: r"^[^\x00-\x1F\x7F-\x9F%]{1,256}$",
            },
            left_out: WhenOmitted::Required,
        },
    ],
};

const HTTP: Shape = Shape {
    what: "`rate_limit.global.http`",
    keys: &[
        Key {
            name: "rate_limit_service",
            about: "Rate limit service (`envoy.service.ratelimit.v3`), called by HTTP/2 in plaintext.",
            form: Form::Table(&SERVICE),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "domain",
            about: "Domain of the limits in the rate limit service.",
            form: TEXT,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "descriptors",
            about: "Descriptors sent for each request; at most 32.",
            form: Form::AtLeastOne(&Form::Table(&DESCRIPTOR)),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "timeout",
            about: "Time limit of the call to the rate limit service, `1ms` to `60s`.",
            form: DURATION,
            left_out: WhenOmitted::Text("20ms"),
        },
        Key {
            name: "fail_open",
            about: "Whether calls pass if the rate limit service does not answer.",
            form: Form::Boolean,
            left_out: WhenOmitted::Text("true"),
        },
        Key {
            name: "enable_x_rate_limit_headers",
            about: "Whether responses report the remaining quota in `x-ratelimit-…` headers.",
            form: Form::Boolean,
            left_out: WhenOmitted::Text("false"),
        },
        Key {
            name: "response_status_code",
            about: "Status of the response over the limit: 400 to 417, 421 to 424, 426, 428, 429, 431, 500 to 508, 510 or 511.",
            form: Form::Integer(400..=599),
            left_out: WhenOmitted::Number(429),
        },
    ],
};

const SERVICE: Shape = Shape {
    what: "a rate limit service",
    keys: &[
        Key {
            name: "host",
            about: "IP address, or hostname that the sidecars resolve.",
            form: Form::Text { what: "host", pattern: "^[^ ]+$" },
            left_out: WhenOmitted::Required,
        },
        Key { name: "port", about: "Port.", form: PORT, left_out: WhenOmitted::Required },
    ],
};

const DESCRIPTOR: Shape = Shape {
    what: "a descriptor",
    keys: &[Key {
        name: "entries",
        about: "Entries of the descriptor, at most 32, each with exactly one key. Calls with equal entries share a counter.",
        form: Form::AtLeastOne(&Form::Table(&ENTRY)),
        left_out: WhenOmitted::Required,
    }],
};

const ENTRY: Shape = Shape {
    what: "an entry of a descriptor",
    keys: &[
        Key {
            name: "generic_key",
            about: "Fixed entry, the same for all requests.",
            form: Form::Table(&GENERIC),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "remote_address",
            about: "Whether the entry is the caller's address: the last one in `x-forwarded-for`, else that of the connection.",
            form: Form::Boolean,
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "request_header",
            about: "Entry with the value of a header. Requests without the header are not counted.",
            form: Form::Table(&REQUEST_HEADER),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "header_value_match",
            about: "Fixed entry for requests whose headers meet conditions. Other requests are not counted.",
            form: Form::Table(&MATCH),
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

const GENERIC: Shape = Shape {
    what: "a generic key",
    keys: &[
        Key {
            name: "value",
            about: "Value of the entry.",
            form: TEXT,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "key",
            about: "Key of the entry.",
            form: TEXT,
            left_out: WhenOmitted::Text("generic_key"),
        },
    ],
};

const REQUEST_HEADER: Shape = Shape {
    what: "a request header",
    keys: &[
        Key {
            name: "name",
            about: "Name of the header.",
            form: HEADER,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "key",
            about: "Key of the entry.",
            form: TEXT,
            left_out: WhenOmitted::Required,
        },
    ],
};

const MATCH: Shape = Shape {
    what: "a match of header values",
    keys: &[
        Key {
            name: "value",
            about: "Value of the entry.",
            form: TEXT,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "headers",
            about: "Conditions, at most 32, each with exactly one key besides `name`. All must hold.",
            form: Form::AtLeastOne(&Form::Table(&CONDITION)),
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "key",
            about: "Key of the entry.",
            form: TEXT,
            left_out: WhenOmitted::Text("header_match"),
        },
        Key {
            name: "expect_match",
            about: "`false` inverts the conditions: the entry applies if they do not hold.",
            form: Form::Boolean,
            left_out: WhenOmitted::Text("true"),
        },
    ],
};

const CONDITION: Shape = Shape {
    what: "a condition on a header",
    keys: &[
        Key {
            name: "name",
            about: "Name of the header.",
            form: HEADER,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "exact",
            about: "The value equals this text.",
            form: TEXT,
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "prefix",
            about: "The value begins with this text.",
            form: TEXT,
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "suffix",
            about: "The value ends with this text.",
            form: TEXT,
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "contains",
            about: "The value contains this text.",
            form: TEXT,
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "regex",
            about: "The whole value matches this expression.",
            form: Form::Text { what: "RE2 expression", pattern: "" },
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "present",
            about: "Whether the header is present.",
            form: Form::Boolean,
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

pub(super) const OF_ROUTE: Shape = Shape {
    what: "`rate_limit.global` of a route",
    keys: &[Key {
        name: "descriptors",
        about: "Descriptors sent for these requests instead of `rate_limit.global.http.descriptors`; at most 32.",
        form: Form::AtLeastOne(&Form::Table(&DESCRIPTOR)),
        left_out: WhenOmitted::Required,
    }],
};
