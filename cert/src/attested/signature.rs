//! The signature of an attested document: RSA (PKCS#1 v1.5) over the content itself.

use aws_lc_rs::signature::{
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RsaParameters, UnparsedPublicKey,
};
use x509_parser::asn1_rs::Oid;
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{
    OID_NIST_HASH_SHA256, OID_NIST_HASH_SHA384, OID_NIST_HASH_SHA512, OID_PKCS1_RSAENCRYPTION,
    OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA,
};

use super::AttestedDocumentError;
use super::signed_data::SignedData;

/// Checks that the key of `signer` signed the content.
pub(super) fn verify(
    signed: &SignedData<'_>,
    signer: &X509Certificate<'_>,
) -> Result<(), AttestedDocumentError> {
    let key = signer.public_key();
    let is_rsa = key.algorithm.algorithm == OID_PKCS1_RSAENCRYPTION;
    let parameters = parameters(&signed.signature_algorithm, &signed.digest_algorithm);
    let Some(parameters) = parameters.filter(|_| is_rsa) else {
        return Err(AttestedDocumentError::UnsupportedAlgorithm {
            key: signed.signature_algorithm.to_string(),
            digest: signed.digest_algorithm.to_string(),
        });
    };
    UnparsedPublicKey::new(parameters, &key.subject_public_key.data)
        .verify(signed.content, signed.signature)
        .map_err(|_| AttestedDocumentError::Signature)
}

/// The verification of a signature and a digest algorithm, which must name the same hash.
fn parameters(signature: &Oid<'_>, digest: &Oid<'_>) -> Option<&'static RsaParameters> {
    // The digest algorithm of Azure's documents is that of a *signature* (`sha256WithRSAEncryption`), against
    // PKCS#7.
    let hash = digest_hash(digest).or_else(|| signature_hash(digest))?;
    // PKCS#7 leaves the hash to the digest algorithm; other signers name it here as well.
    if *signature != OID_PKCS1_RSAENCRYPTION && signature_hash(signature)? != hash {
        return None;
    }
    Some(match hash {
        Hash::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
        Hash::Sha384 => &RSA_PKCS1_2048_8192_SHA384,
        Hash::Sha512 => &RSA_PKCS1_2048_8192_SHA512,
    })
}

fn digest_hash(algorithm: &Oid<'_>) -> Option<Hash> {
    let hashes = [
        (OID_NIST_HASH_SHA256, Hash::Sha256),
        (OID_NIST_HASH_SHA384, Hash::Sha384),
        (OID_NIST_HASH_SHA512, Hash::Sha512),
    ];
    hashes.into_iter().find(|(id, _)| algorithm == id).map(|(_, hash)| hash)
}

fn signature_hash(algorithm: &Oid<'_>) -> Option<Hash> {
    let hashes = [
        (OID_PKCS1_SHA256WITHRSA, Hash::Sha256),
        (OID_PKCS1_SHA384WITHRSA, Hash::Sha384),
        (OID_PKCS1_SHA512WITHRSA, Hash::Sha512),
    ];
    hashes.into_iter().find(|(id, _)| algorithm == id).map(|(_, hash)| hash)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}
