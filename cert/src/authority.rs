//! The built-in certificate authority: a root, and the intermediate that signs.
//!
//! It stores its material before it uses it, so that it never signs with a key that a crash can lose; only an
//! ephemeral authority stores nothing. The module `issue` owns the leaf certificates.

use std::error::Error;

use ironmesh_catalog::{CertificateStore, StoreError, TrustBundle, TrustDomain};
use jiff::Timestamp;
use zeroize::Zeroizing;

use crate::facts::CertificateFacts;
use crate::inspect::{self, Failure};
use crate::material::{Material, Signer};
use crate::profile;
use crate::validity::IssuerSpan;

/// The certificate authority of one mesh.
#[derive(Debug)]
pub struct Authority {
    trust_domain: TrustDomain,
    material: Material,
    /// The material as it is stored; empty if it is not.
    stored: Zeroizing<Vec<u8>>,
    signer: Signer,
    root: IssuerSpan,
    intermediate: IssuerSpan,
    intermediate_renew_at: Timestamp,
    root_facts: CertificateFacts,
    intermediate_facts: CertificateFacts,
}

impl Authority {
    /// Opens the stored authority, or creates one at the first start of the mesh.
    pub fn open(
        store: &dyn CertificateStore,
        trust_domain: &TrustDomain,
        now: Timestamp,
    ) -> Result<Self, AuthorityError> {
        let Some(kept) = store.authority()?.map(Zeroizing::new) else {
            let material = Material::generate(trust_domain, now).map_err(AuthorityError::Make)?;
            let kept = Self::keep(store, trust_domain, None, &material)?;
            // Another control plane of a new mesh may have been faster.
            return kept.map_or_else(|| Self::open(store, trust_domain, now), Ok);
        };
        let mut authority = Self::of_stored(&kept, trust_domain, now)?;
        authority.renew_intermediate(store, now)?;
        Ok(authority)
    }

    /// The authority with this stored material.
    fn of_stored(
        kept: &[u8],
        trust_domain: &TrustDomain,
        now: Timestamp,
    ) -> Result<Self, AuthorityError> {
        let material = Material::from_json(kept).map_err(AuthorityError::Damaged)?;
        let names = inspect::uri_names_of_pem(&material.root_certificate)
            .map_err(AuthorityError::Damaged)?;
        if names != [profile::trust_domain_uri(trust_domain)] {
            return Err(AuthorityError::OtherTrustDomain {
                found: names.join(", "),
                expected: trust_domain.clone(),
            });
        }
        let authority = Self::new(trust_domain, material).map_err(AuthorityError::Damaged)?;
        if now >= authority.root.ends {
            return Err(AuthorityError::Expired { at: authority.root.ends });
        }
        Ok(Self { stored: Zeroizing::new(kept.to_vec()), ..authority })
    }

    /// Uses the material that is stored now, if another control plane has stored different material. Returns whether it
    /// has. After an error, the current material stays.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, or if what it has is not an authority of this mesh.
    pub fn follow(
        &mut self,
        store: &dyn CertificateStore,
        now: Timestamp,
    ) -> Result<bool, AuthorityError> {
        let Some(kept) = store.authority()?.map(Zeroizing::new) else { return Ok(false) };
        if kept == self.stored {
            return Ok(false);
        }
        *self = Self::of_stored(&kept, &self.trust_domain, now)?;
        Ok(true)
    }

    /// Generates an authority that is not stored, and ends with the process.
    ///
    /// Validations and tests need certificates that belong together, but no mesh that outlives them.
    pub fn ephemeral(trust_domain: &TrustDomain, now: Timestamp) -> Result<Self, AuthorityError> {
        let material = Material::generate(trust_domain, now).map_err(AuthorityError::Make)?;
        Self::new(trust_domain, material).map_err(AuthorityError::Make)
    }

    /// Replaces the intermediate by a new one below the same root if less than a third of its life is left,
    /// or if it is not valid yet and a new one is. Returns whether it did. After an error, the current one
    /// stays.
    pub fn renew_intermediate(
        &mut self,
        store: &dyn CertificateStore,
        now: Timestamp,
    ) -> Result<bool, AuthorityError> {
        let Self { root, intermediate, .. } = self;
        let begins_too_late = now < intermediate.begins && root.begins < intermediate.begins;
        if now < self.intermediate_renew_at && !begins_too_late {
            return Ok(false);
        }
        let material = self
            .material
            .with_new_intermediate(&self.trust_domain, now)
            .map_err(AuthorityError::Make)?;
        match Self::keep(store, &self.trust_domain, Some(&self.stored), &material)? {
            Some(renewed) => {
                *self = renewed;
                Ok(true)
            }
            // Another control plane was faster: all sign with its intermediate.
            None => self.follow(store, now),
        }
    }

    /// The time from which [`Self::renew_intermediate`] replaces the intermediate.
    #[cfg(test)]
    pub(crate) fn intermediate_renew_at(&self) -> Timestamp {
        self.intermediate_renew_at
    }

    /// The trust domain whose identities it issues.
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    /// The trust bundle of peers: the root.
    pub fn trust_bundle(&self) -> TrustBundle {
        TrustBundle { roots: self.material.root_certificate.clone() }
    }

    /// The facts about the root.
    pub fn root_facts(&self) -> &CertificateFacts {
        &self.root_facts
    }

    /// The facts about the intermediate.
    pub fn intermediate_facts(&self) -> &CertificateFacts {
        &self.intermediate_facts
    }

    pub(crate) fn signer(&self) -> &Signer {
        &self.signer
    }

    pub(crate) fn intermediate(&self) -> &str {
        &self.material.intermediate_certificate
    }

    /// All intermediates whose certificates may be valid, the current one first, each with its certificate.
    pub(crate) fn issuers(&self) -> Result<Vec<(&str, Signer)>, Failure> {
        self.material.issuers()
    }

    /// The time from which its leaf certificates are valid.
    pub(crate) fn begins(&self) -> Timestamp {
        self.intermediate.begins
    }

    /// The period in which its leaf certificates can be valid.
    pub(crate) fn span(&self) -> &IssuerSpan {
        &self.intermediate
    }

    /// Stores new material in place of `old`, and only then uses it. None if the store has different material by now.
    fn keep(
        store: &dyn CertificateStore,
        trust_domain: &TrustDomain,
        old: Option<&[u8]>,
        material: &Material,
    ) -> Result<Option<Self>, AuthorityError> {
        let json = material.to_json().map_err(AuthorityError::Make)?;
        // Parsed as at the next start, so that unreadable material is never stored.
        let material = Material::from_json(&json).map_err(AuthorityError::Make)?;
        let authority = Self::new(trust_domain, material).map_err(AuthorityError::Make)?;
        let is_kept = store.replace_authority(old, &json)?;
        Ok(is_kept.then(|| Self { stored: json, ..authority }))
    }

    fn new(trust_domain: &TrustDomain, material: Material) -> Result<Self, Failure> {
        Ok(Self {
            trust_domain: trust_domain.clone(),
            signer: material.signer()?,
            root: span(&material.root_certificate)?,
            intermediate: span(&material.intermediate_certificate)?,
            intermediate_renew_at: material.intermediate_renew_at()?,
            root_facts: material.root_facts()?,
            intermediate_facts: material.intermediate_facts()?,
            material,
            stored: Zeroizing::default(),
        })
    }
}

fn span(pem: &str) -> Result<IssuerSpan, Failure> {
    let (begins, ends) = inspect::lifetime_of_pem(pem)?;
    Ok(IssuerSpan { begins, ends })
}

/// The authority could not be opened or renewed.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stored material does not parse, or its parts do not belong together.
    #[error(
        "certificate authority in the store cannot be read: restore the state folder from your backup"
    )]
    Damaged(#[source] Box<dyn Error + Send + Sync>),
    /// The authority is that of another mesh.
    #[error(
        "certificate authority in the store has the trust domain `{found}`, not `{expected}`: the first start fixes the trust domain"
    )]
    OtherTrustDomain {
        /// The trust domain of the authority, as a URI.
        found: String,
        /// The configured trust domain.
        expected: TrustDomain,
    },
    /// The root has expired.
    #[error("root certificate of the certificate authority has expired: `{at}`")]
    Expired {
        /// The end of its validity.
        at: Timestamp,
    },
    /// New keys or certificates could not be created.
    #[error("certificate authority cannot issue its own certificates")]
    Make(#[source] Box<dyn Error + Send + Sync>),
}
