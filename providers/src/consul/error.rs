//! Why the provider cannot start, and why an agent gave no answer that can be used.

use std::io;
use std::path::PathBuf;

use reqwest::StatusCode;

use crate::http::HttpError;

/// The Consul provider cannot start as it is set.
#[derive(Debug, thiserror::Error)]
pub enum ConsulError {
    /// There is nobody to ask.
    #[error("no Consul agent is named; name one in `agents`, for example `http://127.0.0.1:8500`")]
    NoAgent,
    /// An agent's URL cannot be used.
    #[error("the Consul agent `{url}` in `agents` is no URL of the form `http(s)://HOST:PORT`")]
    Agent {
        /// The URL.
        url: String,
    },
    /// A file cannot be read.
    #[error("a file that `{key}` of the Consul provider names cannot be read")]
    File {
        /// Which of the options names it.
        key: &'static str,
        /// Why, with its path.
        #[source]
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("`{key}` of the Consul provider names {}, which is not what it should be in PEM", path.display())]
    Pem {
        /// Which of the options names it.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// A certificate without a key, or the other way round.
    #[error("`{given}` of the Consul provider is set and `{missing}` is not; set both or none")]
    Half {
        /// The option that is there.
        given: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
    /// The certificates cannot be used together.
    #[error("no TLS can be made of `ca`, `certificate` and `key` of the Consul provider")]
    Tls(#[source] rustls::Error),
    /// No client can be made.
    #[error("no HTTP client can be made for Consul")]
    Client(#[source] reqwest::Error),
}

/// An agent gave no answer, or none that can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    /// There is no whole answer.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// It said no. 403 says that the token is unknown or may not.
    #[error("{status}: {text}{}", advice(*.status, .text))]
    Status {
        /// With which status.
        status: StatusCode,
        /// In which words.
        text: String,
    },
    /// The server that answered has no leader, or has not heard of it for long: what it knows may be old.
    #[error("{0}")]
    Old(String),
    /// The body is not what the endpoint answers with.
    #[error("the answer cannot be read: {0}")]
    Malformed(String),
}

impl RequestError {
    /// Whether it may be the agent's fault, so that another one may do better.
    pub(super) fn is_of_agent(&self) -> bool {
        match self {
            Self::Http(error) => *error != HttpError::TooLarge,
            Self::Old(_) => true,
            // Consul 1.8.7 says 500 also where the question is what is wrong.
            Self::Status { status, text } => {
                (status.is_server_error() || *status == 429) && of_question(text).is_none()
            }
            Self::Malformed(_) => false,
        }
    }
}

/// What to do about a refusal, as far as its words tell.
fn advice(status: StatusCode, text: &str) -> &'static str {
    if status == StatusCode::FORBIDDEN {
        "; give the token of `token_file` the right to read this service and its nodes"
    } else if let Some(advice) = of_question(text) {
        advice
    } else if status == StatusCode::TOO_MANY_REQUESTS {
        "; raise `http_max_conns_per_client` of the agent, or its limits on requests"
    } else {
        ""
    }
}

/// What to do where the words of a refusal say that the question is at fault: whoever is asked says the same.
fn of_question(text: &str) -> Option<&'static str> {
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
        let refused = |text: &str| RequestError::Status {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            text: text.to_owned(),
        };
        for text in [
            "Failed to create boolean expression evaluator: 1:12 (11): no match found",
            "No path to datacenter",
            "Invalid query parameter: \"ns\" - Namespaces are a Consul Enterprise feature",
        ] {
            let error = refused(text);
            assert!(!error.is_of_agent());
            assert!(error.to_string().contains(" leave ") || error.to_string().contains(" fix "));
        }
        assert!(refused("rpc error making call: EOF").is_of_agent());
    }
}
