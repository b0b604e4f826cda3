//! Why an attested document, or the trust for such documents, is rejected.

use std::error::Error;

use jiff::Timestamp;

use super::MAX_ATTESTED_DOCUMENT;
use super::content::MAX_NONCE;
use super::signed_data::MAX_CERTIFICATES;
use crate::tls::TlsError;

/// Certificates or a domain that make no verifier of attested documents.
#[derive(Debug, thiserror::Error)]
pub enum AttestedTrustError {
    /// The roots do not parse, or there is none.
    #[error(
        "roots of Azure's attested documents cannot be used: give at least one certificate in PEM"
    )]
    Roots(#[source] TlsError),
    /// The intermediates do not parse.
    #[error(
        "intermediates of Azure's attested documents cannot be read: give certificates in PEM, or none"
    )]
    Intermediates(#[source] Box<dyn Error + Send + Sync>),
    /// The signers' domain is no domain name.
    #[error(
        "`{domain}` is no domain of signers of attested documents: Azure's public cloud has `metadata.azure.com`"
    )]
    Domain {
        /// The text.
        domain: String,
    },
}

/// An attested document that proves nothing.
#[derive(Debug, thiserror::Error)]
pub enum AttestedDocumentError {
    /// It is longer than any valid document.
    #[error(
        "attested document is longer than {MAX_ATTESTED_DOCUMENT} bytes: {length}; send the text of IMDS unchanged"
    )]
    TooLong {
        /// Its length in bytes of base64.
        length: usize,
    },
    /// It is no base64.
    #[error("attested document is not base64: send the `signature` of IMDS unchanged")]
    Encoding(#[source] data_encoding::DecodeError),
    /// A part is not as in PKCS#7 in DER, or the document is truncated.
    #[error("attested document is no PKCS#7 signed data, at its {part}: request a new one of IMDS")]
    Structure {
        /// The first part that is missing or malformed.
        part: &'static str,
    },
    /// It has more certificates than any valid document.
    #[error("attested document has more than {MAX_CERTIFICATES} certificates")]
    TooManyCertificates,
    /// Not exactly one key signed it.
    #[error("attested document has {count} signers: Azure signs with exactly one")]
    Signers {
        /// The number of signers.
        count: usize,
    },
    /// It has signed attributes, which Azure does not use.
    #[error(
        "attested document has signed attributes, which Azure does not use: request a new one of IMDS"
    )]
    SignedAttributes,
    /// The certificate of its signer is not in it.
    #[error("attested document lacks the certificate of its signer: request a new one of IMDS")]
    NoSignerCertificate,
    /// The certificate of its signer does not parse.
    #[error("certificate of the signer of an attested document cannot be read")]
    Certificate(#[source] Box<dyn Error + Send + Sync>),
    /// It is signed in another way than RSA with SHA-256, SHA-384 or SHA-512.
    #[error(
        "attested document has an unsupported signature (key `{key}`, digest `{digest}`): RSA with SHA-256, SHA-384 or SHA-512 is accepted"
    )]
    UnsupportedAlgorithm {
        /// The object identifier of the signature algorithm.
        key: String,
        /// The object identifier of the digest algorithm.
        digest: String,
    },
    /// The signature is not by the signer's key over the content.
    #[error("attested document was altered, or its signer did not sign it")]
    Signature,
    /// Its signer has no name in Azure's domain.
    #[error(
        "attested document is signed by {names:?}, not by a name in `{domain}`: select the Azure cloud of the machine"
    )]
    OtherSigner {
        /// The DNS names of the signer.
        names: Vec<String>,
        /// The domain of Azure's signers.
        domain: String,
    },
    /// No known certificate is the issuer of one in the signer's chain.
    #[error(
        "attested document has no chain to a configured root: add the certificate of the signer's issuer (`{issuer}`) to the intermediates"
    )]
    UnknownIssuer {
        /// The issuer of the signer's certificate.
        issuer: String,
    },
    /// A certificate of the signer's chain is expired or not valid yet.
    #[error(
        "a certificate in the chain of an attested document is expired or not valid yet: check the clock of the control plane, and renew the intermediates"
    )]
    ChainTime(#[source] rustls::Error),
    /// A certificate of the signer's chain is not fit for its place.
    #[error(
        "certificate chain of an attested document is rejected: request a new document of IMDS, and check the configured intermediates and roots"
    )]
    Chain(#[source] rustls::Error),
    /// Its content is no JSON of the form that Azure uses.
    #[error("content of an attested document cannot be read")]
    Content(#[source] serde_json::Error),
    /// A required field is missing.
    #[error(
        "attested document has no `{field}`: request it with the API version 2021-02-01 or newer"
    )]
    MissingField {
        /// The field in Azure's JSON.
        field: &'static str,
    },
    /// A field does not parse.
    #[error("attested document has an unreadable `{field}`: `{value}`")]
    UnreadableField {
        /// The field in Azure's JSON.
        field: &'static str,
        /// Its start.
        value: String,
    },
    /// The expected nonce is not one that IMDS accepts.
    #[error("nonce has {length} characters: IMDS accepts 1 to {MAX_NONCE} letters and digits")]
    UnfitNonce {
        /// Its length in bytes.
        length: usize,
    },
    /// It was created for another nonce: it is replayed, or relayed for another key.
    #[error(
        "attested document was created for a different nonce: request a new one with the nonce of this challenge"
    )]
    OtherNonce,
    /// It was created in the future.
    #[error(
        "attested document is from the future (created {created_at}, now {now}): check the clock of the control plane"
    )]
    NotYetValid {
        /// When it was created.
        created_at: Timestamp,
        /// The time of the check.
        now: Timestamp,
    },
    /// It has expired.
    #[error("attested document expired at {expires_at} (now {now}): request a new one of IMDS")]
    Expired {
        /// When it expired.
        expires_at: Timestamp,
        /// The time of the check.
        now: Timestamp,
    },
}
