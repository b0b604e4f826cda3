//! Certificate revocation lists (CRLs): one for each intermediate whose certificates may be valid.
//!
//! BoringSSL refuses all certificates of an issuer without a list, with a list that is not valid yet, or with one whose
//! time is over (docs/decisions/0078). So every issuer has a list, and no date in it follows from a clock.
//!
//! This module never decides which certificates are revoked, and stores nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_lc_rs::digest;
use ironmesh_catalog::RevocationLists;
use jiff::Timestamp;
use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber};

use crate::authority::Authority;
use crate::inspect::{self, Failure};
use crate::issue::IssueError;
use crate::profile::hex;
use crate::validity::to_offset;

/// The date of the list with the number zero: 2020-01-01. Each further list is a second newer, so that no list is ever
/// dated in the future, whatever the clock was when it was signed.
const EPOCH: Timestamp = Timestamp::constant(1_577_836_800, 0);

/// How long after the end of its issuer a list is valid.
const AFTER_ISSUER: Duration = Duration::from_secs(20 * 365 * 86_400);

impl Authority {
    /// The lists in which these serial numbers are revoked, given those that were signed before. If nothing differs, they
    /// are returned unchanged: a signature is random, and the same input must give the same bytes.
    pub fn revocation_lists(
        &self,
        serials: &BTreeSet<String>,
        before: Option<&RevocationLists>,
    ) -> Result<RevocationLists, IssueError> {
        self.sign_lists(serials, before).map_err(IssueError::Sign)
    }

    fn sign_lists(
        &self,
        serials: &BTreeSet<String>,
        before: Option<&RevocationLists>,
    ) -> Result<RevocationLists, Failure> {
        let issuers = self.issuers()?;
        let digests: Result<Vec<_>, Failure> =
            issuers.iter().map(|(certificate, _)| certificate_digest(certificate)).collect();
        let digests = digests?;
        let is_same =
            |known: &&RevocationLists| known.serials == *serials && known.issuers == digests;
        if let Some(known) = before.filter(is_same) {
            return Ok(known.clone());
        }
        let number = before.map_or(0, |known| known.number) + 1;
        let this_update = EPOCH.checked_add(Duration::from_secs(number))?;
        let revoked: Result<Vec<_>, Failure> = serials
            .iter()
            .map(|serial| {
                Ok(RevokedCertParams {
                    serial_number: serial_number(serial).ok_or("not a serial number")?,
                    revocation_time: to_offset(this_update)?,
                    reason_code: None,
                    invalidity_date: None,
                })
            })
            .collect();
        let revoked_certs = revoked?;
        let mut pem = String::new();
        for (certificate, signer) in &issuers {
            let (_, ends) = inspect::lifetime_of_pem(certificate)?;
            let list = CertificateRevocationListParams {
                this_update: to_offset(this_update)?,
                next_update: to_offset(ends.checked_add(AFTER_ISSUER)?)?,
                crl_number: SerialNumber::from(number),
                issuing_distribution_point: None,
                revoked_certs: revoked_certs.clone(),
                key_identifier_method: KeyIdMethod::Sha256,
            };
            pem.push_str(&list.signed_by(signer)?.pem()?);
        }
        let last_listed = before.map(|known| known.last_listed.clone()).unwrap_or_default();
        let (serials, issuers, pem) = (serials.clone(), digests, pem.into());
        Ok(RevocationLists { number, serials, issuers, pem, last_listed })
    }
}

fn certificate_digest(pem: &str) -> Result<String, Failure> {
    let certificate = inspect::certificates(pem)?.into_iter().next().ok_or("no certificate")?;
    Ok(hex(digest::digest(&digest::SHA256, &certificate).as_ref()))
}

/// The serial number of this text in hexadecimal.
fn serial_number(text: &str) -> Option<SerialNumber> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    let (pairs, []) = digits.as_deref()?.as_chunks::<2>() else { return None };
    let bytes: Vec<_> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    (!bytes.is_empty()).then(|| SerialNumber::from(bytes))
}
