//! The failures of the client, and which of them may pass.

use std::io;

use ironmesh_cert::RequestError;
use rustls::AlertDescription;

use super::address::ControlPlaneAddress;
use super::imds::ImdsError;
use super::untrusted::UntrustedServer;
use crate::api::EnrollmentErrorCode;
use crate::possession::UnusableKey;

/// The failure of a call to the machines' API.
#[derive(Debug, thiserror::Error)]
pub enum EnrollmentClientError {
    /// There is no address to call.
    #[error("no address of a control plane is given: give at least one, as `https://HOST:15129`")]
    NoAddress,
    /// The trust in the server cannot be configured.
    #[error("{problem}")]
    Trust {
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The machine's certificate cannot be read.
    #[error("current certificate or certificate signing request cannot be read: both must be PEM")]
    UnusableCertificate,
    /// The machine's key cannot sign.
    #[error(transparent)]
    UnusableKey(#[from] UnusableKey),
    /// The certificate signing request is one that a control plane rejects.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The machine has no attested document.
    #[error(transparent)]
    Attestation(#[from] Box<ImdsError>),
    /// Nothing answers at the address, or it closes the connection at once.
    #[error(
        "cannot connect to the control plane at {address}: check the address, firewalls, and that `ironmesh serve` listens there. It closes connections while it has too many, and for a minute to addresses with repeated failures"
    )]
    Unreachable {
        /// The address.
        address: ControlPlaneAddress,
        /// The error of the system or of TLS.
        #[source]
        source: io::Error,
    },
    /// Something else listens at the address, such as xDS.
    #[error("{address} does not serve enrollment: the port of the control plane for it is 15129")]
    OtherPort {
        /// The address.
        address: ControlPlaneAddress,
    },
    /// The server is not the expected control plane. Nothing was sent to it.
    #[error(
        "nothing was sent to {address}, because it is not the expected control plane: {source}"
    )]
    Untrusted {
        /// The address.
        address: ControlPlaneAddress,
        /// What was expected, what was found, and what to do.
        source: UntrustedServer,
    },
    /// The control plane refused the client certificate in the TLS handshake.
    #[error(
        "the control plane at {address} refused the client certificate ({alert:?}): renew an expired certificate by proof of possession; enroll again if another authority issued it"
    )]
    CertificateRefused {
        /// The address.
        address: ControlPlaneAddress,
        /// The alert.
        alert: AlertDescription,
    },
    /// The connection ended before the response.
    #[error(
        "connection to the control plane at {address} was lost before its response; the request may be in effect already, and may be repeated"
    )]
    Lost {
        /// The address.
        address: ControlPlaneAddress,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The response did not come in time.
    #[error(
        "the control plane at {address} has not responded in time; the request may be in effect already, and may be repeated"
    )]
    Slow {
        /// The address.
        address: ControlPlaneAddress,
    },
    /// The control plane rejected the request.
    #[error("{message}")]
    Rejected {
        /// The kind of error.
        code: EnrollmentErrorCode,
        /// The control plane's message.
        message: String,
    },
    /// The response is not one of this protocol.
    #[error(
        "{address} sent an invalid response ({problem}): is it the port of the machines' API, 15129?"
    )]
    InvalidResponse {
        /// The address.
        address: ControlPlaneAddress,
        /// What is invalid.
        problem: String,
    },
    /// The issued certificate is not for the requested key.
    #[error(
        "the control plane issued a certificate for another key than the requested one: see its log"
    )]
    OtherKey,
}

impl EnrollmentClientError {
    /// Whether the server was not the expected control plane.
    pub fn is_untrusted_server(&self) -> bool {
        matches!(self, Self::Untrusted { .. })
    }

    /// Whether a request was sent, and so may be in effect.
    pub fn was_sent(&self) -> bool {
        matches!(
            self,
            Self::Lost { .. }
                | Self::Slow { .. }
                | Self::CertificateRefused { .. }
                | Self::Rejected { .. }
                | Self::InvalidResponse { .. }
                | Self::OtherKey
        )
    }

    /// The failure in a few words, without advice, for an attempt that is repeated.
    pub fn brief(&self) -> String {
        match self {
            Self::Unreachable { address, source } => {
                format!("cannot reach https://{address}: {source}")
            }
            Self::Lost { address, .. } => format!("https://{address} closed the connection"),
            Self::Slow { address } => format!("https://{address} has not responded in time"),
            other => other.to_string(),
        }
    }

    /// Whether no control plane was reached, or none answered in time.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Lost { .. } | Self::Slow { .. })
    }

    /// Whether the control plane refused the client certificate because it has expired.
    pub fn is_expired_certificate(&self) -> bool {
        let expired = AlertDescription::CertificateExpired;
        matches!(self, Self::CertificateRefused { alert, .. } if *alert == expired)
    }

    /// Whether neither another replica nor a repetition can succeed.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Untrusted { .. }
            | Self::Lost { .. }
            | Self::Slow { .. }
            | Self::InvalidResponse { .. } => false,
            Self::Rejected { code, .. } => !code.is_temporary(),
            _ => true,
        }
    }
}
