//! Why the provider cannot start, and why there is no answer that can be used.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::StatusCode;

/// The Azure provider cannot start as it is set.
#[derive(Debug, thiserror::Error)]
pub enum AzureError {
    /// A URL cannot be used.
    #[error(
        "`{key}` of the Azure provider is `{url}`, which is no URL of the form `https://HOST` (plain HTTP only on this machine)"
    )]
    Url {
        /// Which of the options it is.
        key: &'static str,
        /// The URL.
        url: String,
    },
    /// An id is not what it should be.
    #[error("`{key}` of the Azure provider is `{value}`, which is none: {expected}")]
    Id {
        /// Which of the options it is.
        key: &'static str,
        /// What it is.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A file cannot be read.
    #[error("the file that `ca` of the Azure provider names cannot be read")]
    File(#[source] io::Error),
    /// A file is not what it should be.
    #[error("`ca` of the Azure provider names {}, which holds no certificates in PEM", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// The certificates cannot be used.
    #[error("no TLS can be made for Azure")]
    Tls(#[source] rustls::Error),
    /// No client can be made.
    #[error("no HTTP client can be made for Azure")]
    Client(#[source] reqwest::Error),
}

/// There is no answer, or none that can be used.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum RequestError {
    /// No connection, or it broke.
    #[error("{host}: {reason}")]
    Transport { host: String, reason: String },
    /// It said nothing for too long.
    #[error("{host}: no answer within {} s", patience.as_secs())]
    Silent { host: String, patience: Duration },
    /// No token is to be had.
    #[error("no token for Azure: {0}")]
    Token(String),
    /// It said no.
    #[error("{status} {code}: {text}{advice}")]
    Status { status: StatusCode, code: String, text: String, advice: String },
    /// It is not asked now, since it has said that it was asked too often.
    #[error("Azure throttles requests; the next request follows in {} s", .0.as_secs())]
    Throttled(Duration),
    /// The answer does not end.
    #[error("the answer is too large: {0}")]
    TooLarge(String),
    /// The body is not what is answered there.
    #[error("the answer cannot be read: {0}")]
    Malformed(String),
    /// The next page is somewhere where the token may not go.
    #[error(
        "the next page is at `{0}`, which is not the configured host: the token was not sent"
    )]
    Foreign(String),
    /// We ourselves have failed at asking.
    #[error("the request was interrupted: {0}")]
    Broken(String),
}

impl RequestError {
    /// Whether nobody can be asked, whatever the question is.
    pub(super) fn is_general(&self) -> bool {
        matches!(self, Self::Transport { .. } | Self::Silent { .. } | Self::Token(_))
    }

    pub(super) fn has_status(&self, wanted: StatusCode) -> bool {
        matches!(self, Self::Status { status, .. } if *status == wanted)
    }
}
