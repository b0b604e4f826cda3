//! The errors of the Consul provider: at its start, and of single requests.

use std::io;
use std::path::PathBuf;

use reqwest::StatusCode;

use crate::http::HttpError;

/// An error in the options of the Consul provider.
#[derive(Debug, thiserror::Error)]
pub enum ConsulError {
    /// The options name no agent.
    #[error("no Consul agent is named; name one in `agents`, for example `http://127.0.0.1:8500`")]
    NoAgent,
    /// The URL of an agent is invalid.
    #[error("the Consul agent `{url}` in `agents` is no URL of the form `http(s)://HOST:PORT`")]
    Agent {
        /// The URL.
        url: String,
    },
    /// A file cannot be read.
    #[error("a file that `{key}` of the Consul provider names cannot be read")]
    File {
        /// The option that names the file.
        key: &'static str,
        /// The cause, with the path.
        #[source]
        source: io::Error,
    },
    /// A file is not valid PEM of its kind.
    #[error("`{key}` of the Consul provider names {}, which contains no valid PEM {}", path.display(), pem_kind(key))]
    Pem {
        /// The option that names the file.
        key: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// Only one of certificate and key is set.
    #[error("`{given}` of the Consul provider is set and `{missing}` is not; set both or none")]
    Half {
        /// The option that is set.
        given: &'static str,
        /// The option that is missing.
        missing: &'static str,
    },
    /// The certificates do not fit together.
    #[error("no TLS can be made of `ca`, `certificate` and `key` of the Consul provider")]
    Tls(#[source] rustls::Error),
    /// The HTTP client cannot be made.
    #[error("no HTTP client can be made for Consul")]
    Client(#[source] reqwest::Error),
}

/// The expected content of the file that the option `key` names.
fn pem_kind(key: &str) -> &'static str {
    if key == "key" { "private key" } else { "certificate" }
}

/// The failure of a request to an agent.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    /// The answer is missing or incomplete.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The agent answered with an error status. 403 stands for an unknown token or missing rights.
    #[error("{status}: {text}{}", advice(*.status, .text))]
    Status {
        /// The status.
        status: StatusCode,
        /// The start of the body.
        text: String,
    },
    /// The server that answered has no leader, or has had no contact with it for too long: its data
    /// may be stale.
    #[error("{0}")]
    Old(String),
    /// The body is not valid for its request.
    #[error("the answer cannot be read: {0}")]
    Malformed(String),
}

impl RequestError {
    /// Whether the agent may be the cause, so that a different agent may succeed.
    pub(super) fn is_agent_failure(&self) -> bool {
        match self {
            Self::Http(error) => *error != HttpError::TooLarge,
            Self::Old(_) => true,
            // Consul 1.8.7 also answers 500 if the query is invalid.
            Self::Status { status, text } => {
                (status.is_server_error() || *status == 429) && query_advice(text).is_none()
            }
            Self::Malformed(_) => false,
        }
    }
}

/// Returns what to do about an error status.
fn advice(status: StatusCode, text: &str) -> &'static str {
    if status == StatusCode::FORBIDDEN {
        "; give the token of `token_file` the right to read this service and its nodes"
    } else if let Some(advice) = query_advice(text) {
        advice
    } else if status == StatusCode::TOO_MANY_REQUESTS {
        "; raise `http_max_conns_per_client` of the agent, or its limits on requests"
    } else {
        ""
    }
}

/// Returns what to do if the text says that the query is invalid, which every agent would answer.
fn query_advice(text: &str) -> Option<&'static str> {
    if text.contains("boolean expression") {
        Some("; fix the `filter` of the service in policy")
    } else if text.contains("No path to datacenter") {
        Some("; fix `datacenter`: `consul catalog datacenters` lists the existing ones")
    } else if text.contains("Enterprise feature") {
        Some("; leave `namespace` and `partition` out, only Consul Enterprise has them")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_query_is_not_an_agent_failure() {
        let rejected = |text: &str| RequestError::Status {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            text: text.to_owned(),
        };
        for text in [
            "Failed to create boolean expression evaluator: 1:12 (11): no match found",
            "No path to datacenter",
            "Invalid query parameter: \"ns\" - Namespaces are a Consul Enterprise feature",
        ] {
            let error = rejected(text);
            assert!(!error.is_agent_failure());
            assert!(error.to_string().contains(" leave ") || error.to_string().contains(" fix "));
        }
        assert!(rejected("rpc error making call: EOF").is_agent_failure());
    }
}
