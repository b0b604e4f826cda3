//! The errors of the Azure provider: at its start, and of single requests.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::StatusCode;

/// An error in the options of the Azure provider.
#[derive(Debug, thiserror::Error)]
pub enum AzureError {
    /// A URL is invalid.
    #[error(
        "`{key}` of the Azure provider is `{url}`, which is no URL of the form `https://HOST` (plain HTTP only on this machine)"
    )]
    Url {
        /// The option.
        key: &'static str,
        /// The URL.
        url: String,
    },
    /// An id is invalid.
    #[error("`{key}` of the Azure provider is `{value}`, which is none: {expected}")]
    Id {
        /// The option.
        key: &'static str,
        /// The value.
        value: String,
        /// The expected form.
        expected: &'static str,
    },
    /// A file cannot be read.
    #[error("the file that `ca` of the Azure provider names cannot be read")]
    File(#[source] io::Error),
    /// A file is not valid PEM.
    #[error("`ca` of the Azure provider names {}, which holds no certificates in PEM", path.display())]
    Pem {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// The certificates are unusable.
    #[error("no TLS can be made for Azure")]
    Tls(#[source] rustls::Error),
    /// The HTTP client cannot be made.
    #[error("no HTTP client can be made for Azure")]
    Client(#[source] reqwest::Error),
}

/// The failure of a request to Azure.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum RequestError {
    /// There is no connection, or it broke.
    #[error("{host}: {reason}")]
    Transport { host: String, reason: String },
    /// The answer did not come in time.
    #[error("{host}: no answer within {} s", patience.as_secs())]
    Silent { host: String, patience: Duration },
    /// There is no token.
    #[error("no token for Azure: {0}")]
    Token(String),
    /// Azure answered with an error status.
    #[error("{status} {code}: {text}{advice}")]
    Status { status: StatusCode, code: String, text: String, advice: String },
    /// No request was sent, because Azure throttles them.
    #[error("Azure throttles requests; the next request follows in {} s", .0.as_secs())]
    Throttled(Duration),
    /// The answer exceeds the limits.
    #[error("the answer is too large: {0}")]
    TooLarge(String),
    /// The body is not valid for its request.
    #[error("the answer cannot be read: {0}")]
    Malformed(String),
    /// The next page is at a host to which the token must not go.
    #[error("the next page is at `{0}`, which is not the configured host: the token was not sent")]
    Foreign(String),
    /// The task of the request failed.
    #[error("the request was interrupted: {0}")]
    Broken(String),
}

impl RequestError {
    /// Whether the failure concerns all requests.
    pub(super) fn is_general(&self) -> bool {
        matches!(self, Self::Transport { .. } | Self::Silent { .. } | Self::Token(_))
    }

    pub(super) fn has_status(&self, wanted: StatusCode) -> bool {
        matches!(self, Self::Status { status, .. } if *status == wanted)
    }
}
