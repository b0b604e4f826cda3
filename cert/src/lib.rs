//! The certificate manager: the built-in certificate authority, the certificates that it issues, and the
//! identities of peers.
//!
//! This crate owns the authority's keys in memory, the shape of every certificate of the mesh, the TLS
//! configuration of the control plane's listeners, and the verification of servers by SPIFFE ID. It never
//! stores anything on disk itself (the [`CertificateStore`] does), never decides who may have a certificate,
//! opens no socket, and reads no clock: the time is an argument.
//!
//! ```text
//! CertificateStore ──► Authority ──► proxy certificates          (for a CSR; clients only)
//!        ▲                 ├───────► workload certificates       (for a CSR; one proxy of an account)
//!        │                 ├───────► control plane certificates  ──► tls::server_config
//!        │                 └───────► revocation lists            (one per issuer, numbered)
//!        └──────────── ServiceCertificates (one per account, stored before published)
//! ```
//!
//! Start reading at [`Authority`].
//!
//! [`CertificateStore`]: ironmesh_catalog::CertificateStore

mod attested;
mod authority;
mod bearer_token;
mod expired_proxy;
mod facts;
mod inspect;
mod issue;
mod material;
pub mod peer;
mod profile;
mod renewal;
mod request;
mod revocation_lists;
mod service_certificates;
mod spiffe_verifier;
pub mod tls;
mod validity;
mod workload;

pub use attested::{
    AZURE_SIGNER_DOMAIN, AttestedDocumentError, AttestedDocumentVerifier, AttestedMachine,
    AttestedTrustError, MAX_ATTESTED_DOCUMENT, azure_roots,
};
pub use authority::{Authority, AuthorityError};
pub use bearer_token::{BearerToken, TokenUsage, UnreadableTokenId, token_id_digits};
pub use expired_proxy::{ExpiredProxyVerifier, UnverifiedProxy};
pub use facts::CertificateFacts;
pub use inspect::UnfitCertificate;
pub use issue::{
    CONTROL_PLANE_LIFETIME, ControlPlaneCertificate, ENROLLED_PROXY_LIFETIME, IssueError,
    OperatorCertificate, PROXY_LIFETIME, ProxyCertificate, RENEWAL_GRACE, ServerNames,
    WorkloadCertificate,
};
pub use renewal::{ClockReading, Renewal};
pub use request::{MachineRequest, RequestError, generate_proxy_key_and_csr, proxy_csr};
pub use service_certificates::{EnsureOutcome, KeepError, ServiceCertificates};
pub use spiffe_verifier::{SpiffeServerVerifier, UnexpectedServer};
pub use workload::{UnusableWorkloadCertificate, WorkloadLeaf};

#[cfg(test)]
mod memory_store;
#[cfg(test)]
mod tests;
