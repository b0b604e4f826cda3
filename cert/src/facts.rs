//! What operators see of a certificate of the control plane or of its authority.

use jiff::Timestamp;

/// The facts about one certificate, without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Its common name.
    pub name: String,
    /// Its SPIFFE ID.
    pub subject: String,
    /// Its serial number, in lower-case hexadecimal.
    pub serial: String,
    /// When it was issued; none if that is not known.
    pub issued_at: Option<Timestamp>,
    /// When it expires.
    pub not_after: Timestamp,
    /// When the control plane replaces it; none if it never does.
    pub renew_at: Option<Timestamp>,
}
