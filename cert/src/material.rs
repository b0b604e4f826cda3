//! The authority's material: root and intermediate with their keys, as they are created and stored.
//!
//! It checks that stored material still fits together, and never accesses the store itself.

use std::time::Duration;

use ironmesh_catalog::{Secret, TrustDomain};
use jiff::Timestamp;
use rcgen::{Issuer, KeyPair};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::facts::CertificateFacts;
use crate::inspect::{self, Failure};
use crate::issue::ServerNames;
use crate::profile::{self, Purpose};
use crate::validity::{IssuerSpan, Validity};

/// Root and intermediate with their keys, in PEM.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Material {
    pub(crate) root_certificate: String,
    root_key: Secret,
    pub(crate) intermediate_certificate: String,
    intermediate_key: Secret,
    /// The earlier intermediates that have not expired, the newest first: a revocation list of a certificate can only be
    /// signed by its issuer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    predecessors: Vec<Predecessor>,
}

/// An intermediate that signs no certificates any more.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Predecessor {
    certificate: String,
    key: Secret,
}

/// The part of the authority that signs leaves.
pub(crate) type Signer = Issuer<'static, KeyPair>;

impl Material {
    /// Creates a root, and an intermediate below it.
    pub(crate) fn generate(trust_domain: &TrustDomain, now: Timestamp) -> Result<Self, Failure> {
        let key = profile::new_key()?;
        let name = format!("ironmesh root {}", profile::short_id()?);
        let uri = profile::trust_domain_uri(trust_domain);
        let names = ServerNames::default();
        let validity = Validity::new(now, ROOT_LIFETIME, &IssuerSpan::for_root(now))?;
        let (content, _) = profile::content(Purpose::Root, &name, &uri, &names, &validity)?;
        let material = Self {
            root_certificate: content.self_signed(&key)?.pem(),
            root_key: Secret::new(key.serialize_pem()),
            // The next step creates it, below the root.
            intermediate_certificate: String::new(),
            intermediate_key: Secret::new(String::new()),
            predecessors: Vec::new(),
        };
        material.with_new_intermediate(trust_domain, now)
    }

    /// The same root with a new intermediate.
    pub(crate) fn with_new_intermediate(
        &self,
        trust_domain: &TrustDomain,
        now: Timestamp,
    ) -> Result<Self, Failure> {
        let root_key = KeyPair::from_pem(self.root_key.expose())?;
        let root = Issuer::from_ca_cert_pem(&self.root_certificate, root_key)?;
        let (begins, ends) = inspect::lifetime_of_pem(&self.root_certificate)?;
        let key = profile::new_key()?;
        let name = format!("ironmesh intermediate {}", profile::short_id()?);
        let uri = profile::trust_domain_uri(trust_domain);
        let names = ServerNames::default();
        let validity = Validity::new(now, INTERMEDIATE_LIFETIME, &IssuerSpan { begins, ends })?;
        let (content, _) = profile::content(Purpose::Intermediate, &name, &uri, &names, &validity)?;
        let replaced = Predecessor {
            certificate: self.intermediate_certificate.clone(),
            key: self.intermediate_key.clone(),
        };
        let is_of_use = |one: &Predecessor| {
            inspect::lifetime_of_pem(&one.certificate).is_ok_and(|(_, ends)| ends > now)
        };
        let predecessors = [replaced].into_iter().chain(self.predecessors.clone());
        let predecessors = predecessors.filter(is_of_use).take(MAX_PREDECESSORS).collect();
        Ok(Self {
            intermediate_certificate: content.signed_by(&key, &root)?.pem(),
            intermediate_key: Secret::new(key.serialize_pem()),
            predecessors,
            ..self.clone()
        })
    }

    /// Parses the output of [`Self::to_json`], and checks that its parts belong together.
    pub(crate) fn from_json(json: &[u8]) -> Result<Self, Failure> {
        let material: Self = serde_json::from_slice(json)?;
        let root = KeyPair::from_pem(material.root_key.expose())?;
        let intermediate = KeyPair::from_pem(material.intermediate_key.expose())?;
        inspect::check_is_signed_by(&material.root_certificate, &root, &root)?;
        inspect::check_is_signed_by(&material.intermediate_certificate, &intermediate, &root)?;
        for one in &material.predecessors {
            let key = KeyPair::from_pem(one.key.expose())?;
            inspect::check_is_signed_by(&one.certificate, &key, &root)?;
        }
        Ok(material)
    }

    pub(crate) fn to_json(&self) -> Result<Zeroizing<Vec<u8>>, Failure> {
        Ok(Zeroizing::new(serde_json::to_vec(self)?))
    }

    pub(crate) fn signer(&self) -> Result<Signer, Failure> {
        let key = KeyPair::from_pem(self.intermediate_key.expose())?;
        Ok(Issuer::from_ca_cert_pem(&self.intermediate_certificate, key)?)
    }

    /// All intermediates whose certificates may be valid, the current one first, each with its certificate.
    pub(crate) fn issuers(&self) -> Result<Vec<(&str, Signer)>, Failure> {
        let mut issuers = vec![(&*self.intermediate_certificate, self.signer()?)];
        for one in &self.predecessors {
            let key = KeyPair::from_pem(one.key.expose())?;
            issuers.push((&one.certificate, Issuer::from_ca_cert_pem(&one.certificate, key)?));
        }
        Ok(issuers)
    }

    /// The facts about the root. Nothing replaces it. Its issue date follows from its lifetime.
    pub(crate) fn root_facts(&self) -> Result<CertificateFacts, Failure> {
        let facts = inspect::facts_of_pem(&self.root_certificate)?;
        Ok(CertificateFacts { issued_at: facts.not_after.checked_sub(ROOT_LIFETIME).ok(), ..facts })
    }

    /// The facts about the intermediate. Its issue date is not known if it ends with the root.
    pub(crate) fn intermediate_facts(&self) -> Result<CertificateFacts, Failure> {
        let facts = inspect::facts_of_pem(&self.intermediate_certificate)?;
        let renew_at = Some(self.intermediate_renew_at()?).filter(|at| *at < Timestamp::MAX);
        let issued_at =
            renew_at.and_then(|_| facts.not_after.checked_sub(INTERMEDIATE_LIFETIME).ok());
        Ok(CertificateFacts { issued_at, renew_at, ..facts })
    }

    /// The time to replace the intermediate: when a third of a whole life is left. (The certificate does not
    /// contain its issue date.) Never, if it ends with the root, since a new one would end then, too.
    pub(crate) fn intermediate_renew_at(&self) -> Result<Timestamp, Failure> {
        let root_ends = inspect::lifetime_of_pem(&self.root_certificate)?.1;
        let ends = inspect::lifetime_of_pem(&self.intermediate_certificate)?.1;
        if ends >= root_ends {
            return Ok(Timestamp::MAX);
        }
        Ok(ends.checked_sub(INTERMEDIATE_LIFETIME / 3)?)
    }
}

/// The most earlier intermediates. They are replaced every three years, and more often only by a clock that is wrong.
const MAX_PREDECESSORS: usize = 8;

/// The lifetime of a root.
const ROOT_LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The lifetime of an intermediate. The third that is left when it is replaced is longer than any leaf's
/// life, so its issuer cuts no leaf's life short (except near the end of the root).
const INTERMEDIATE_LIFETIME: Duration = Duration::from_secs(5 * 365 * 86_400);
