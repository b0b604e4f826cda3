//! Every access log format that the loader accepts, Envoy accepts: otherwise it would NACK the
//! whole listener with all its chains.

use ironmesh_config_language::policy::log_operators;
use ironmesh_config_language::{Document, load_documents};
use ironmesh_tests::programs::require_envoy;
use serde_json::{Value, json};

use crate::envoy;

/// Rejected formats, each for a different reason.
const REJECTED: [&str; 14] = [
    "%NOPE%",
    "%NOPE(x)%",
    "5 % of it",
    "%PROTOCOL",
    "%req(a)%",
    "%REQ%",
    "%REQ(a?b?c)%",
    "%REQ(a b)%",
    "%REQ(a):x%",
    "%DURATION(x)%",
    "%DURATION:3%",
    "%START_TIME(%Y%n)%",
    "%PATH(XQ)%",
    "%REQUESTED_SERVER_NAME(x)%",
];

#[test]
fn envoy_accepts_every_log_operator_the_loader_accepts() {
    let Some(program) = require_envoy() else { return };
    let operators: Vec<String> = log_operators().collect();
    assert!(operators.len() > 100, "only {} operators", operators.len());
    let text = format!("{} 100%%", operators.join(" "));
    assert!(is_accepted(&text), "{text}");
    envoy::validate(&program, &bootstrap(&text)).unwrap_or_else(|rejection| panic!("{rejection}"));
}

#[test]
fn envoy_rejects_log_formats_the_loader_rejects() {
    let Some(program) = require_envoy() else { return };
    for text in REJECTED {
        assert!(!is_accepted(text), "{text}");
        assert!(envoy::validate(&program, &bootstrap(text)).is_err(), "{text}");
    }
    envoy::validate(&program, &bootstrap("%DURATION%")).unwrap();
}

/// Whether the loader accepts a format, cut to the maximum length.
fn is_accepted(format: &str) -> bool {
    let parts: Vec<&str> = format.split_inclusive(' ').collect();
    parts.chunks(50).all(|some| {
        let format = some.concat();
        let text = format!("[[telemetry]]\nname = \"t\"\naccess_log.format = '{format}'\n");
        load_documents([Document::new("p.toml", text)]).specification.is_some()
    })
}

/// An Envoy with this access log format.
fn bootstrap(format: &str) -> Value {
    json!({ "static_resources": {
        "clusters": [{ "name": "nowhere" }],
        "listeners": [{
            "name": "logged",
            "address": { "socketAddress": { "address": "127.0.0.1", "portValue": 0 } },
            "filterChains": [{ "filters": [{
                "name": "envoy.filters.network.tcp_proxy",
                "typedConfig": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                    "statPrefix": "logged",
                    "cluster": "nowhere",
                    "accessLog": [{
                        "name": "envoy.access_loggers.stdout",
                        "typedConfig": {
                            "@type": "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
                            "logFormat": {
                                "textFormatSource": { "inlineString": format },
                                "formatters": [{
                                    "name": "envoy.formatter.req_without_query",
                                    "typedConfig": { "@type": "type.googleapis.com/envoy.extensions.formatter.req_without_query.v3.ReqWithoutQuery" },
                                }],
                            },
                        },
                    }],
                },
            }] }],
        }],
    }})
}
