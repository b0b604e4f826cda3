//! Documents of a test CA with Azure's names: accepted, and rejected for each reason.

pub(super) mod documents;

use jiff::SignedDuration;

use super::*;
use documents::{Document, TestCa, now, sequence, tlv};

const NONCE: &str = "0123456789abcdef0123456789abcdef";

/// The outcome of a document that one test changed.
fn verify(change: impl FnOnce(&mut Document)) -> Result<AttestedMachine, AttestedDocumentError> {
    let mut document = Document::new(NONCE);
    change(&mut document);
    TestCa::shared().verifier().verify(&document.encode(), NONCE, now())
}

fn content_with(from: &str, to: &str) -> Result<AttestedMachine, AttestedDocumentError> {
    verify(|document| {
        assert!(document.content.contains(from), "{}", document.content);
        document.content = document.content.replace(from, to);
    })
}

fn bytes() -> Vec<u8> {
    data_encoding::BASE64.decode(Document::new(NONCE).encode().as_bytes()).unwrap()
}

fn verify_bytes(bytes: &[u8]) -> Result<AttestedMachine, AttestedDocumentError> {
    let text = data_encoding::BASE64.encode(bytes);
    TestCa::shared().verifier().verify(&text, NONCE, now())
}

#[test]
fn document_of_azure_names_its_machine() {
    let machine = verify(|_| ()).unwrap();
    assert_eq!(machine.vm_id.to_string(), "02aab8a4-74ef-476e-8182-f6d2ba4166a6");
    assert_eq!(machine.subscription_id.to_string(), "8d10da13-8125-4ba9-a717-bf7490507b3d");
    assert_eq!(machine.created_at, now() - SignedDuration::from_secs(1));
    assert_eq!(machine.expires_at, now() + SignedDuration::from_hours(6));
}

/// Azure's sample has `sha256WithRSAEncryption` as its digest algorithm; others have `sha256`.
#[test]
fn digest_algorithm_of_either_form_is_accepted() {
    verify(|document| document.digest_algorithm = documents::SHA256).unwrap();
    verify(|document| document.digest_algorithm = documents::SHA256_WITH_RSA).unwrap();
    verify(|document| document.signature_algorithm = documents::SHA256_WITH_RSA).unwrap();
}

#[test]
fn other_algorithms_are_rejected() {
    for change in [
        |document: &mut Document| document.digest_algorithm = documents::SHA1,
        |document: &mut Document| document.signature_algorithm = documents::SHA384_WITH_RSA,
        |document: &mut Document| document.signature_algorithm = documents::SHA256,
    ] {
        let error = verify(change).unwrap_err();
        let is_unsupported = matches!(error, AttestedDocumentError::UnsupportedAlgorithm { .. });
        assert!(is_unsupported, "{error:?}");
    }
    let error = verify(|document| document.signature_algorithm = documents::SHA384_WITH_RSA);
    let text = error.unwrap_err().to_string();
    assert!(text.contains("`1.2.840.113549.1.1.12`"), "{text}");
}

/// Both algorithms name another hash than the one that was signed.
#[test]
fn signature_over_another_hash_is_rejected() {
    let error = verify(|document| {
        document.digest_algorithm = documents::SHA384_WITH_RSA;
        document.signature_algorithm = documents::SHA384_WITH_RSA;
    });
    let error = error.unwrap_err();
    assert!(matches!(error, AttestedDocumentError::Signature), "{error:?}");
}

#[test]
fn replayed_document_of_another_nonce_is_rejected() {
    let error = verify(|document| *document = Document::new("1111111111")).unwrap_err();
    assert!(matches!(error, AttestedDocumentError::OtherNonce), "{error:?}");
}

#[test]
fn nonce_that_imds_rejects_is_an_error_of_the_caller() {
    let verifier = TestCa::shared().verifier();
    let too_long = "a".repeat(33);
    for nonce in ["", "no-sign", too_long.as_str()] {
        let error = verifier.verify(&Document::new(nonce).encode(), nonce, now()).unwrap_err();
        assert!(matches!(error, AttestedDocumentError::UnfitNonce { .. }), "{error:?}");
    }
}

#[test]
fn expired_document_is_rejected() {
    let text = Document::new(NONCE).encode();
    let verifier = TestCa::shared().verifier();
    let late = now() + SignedDuration::from_hours(6);
    assert!(verifier.verify(&text, NONCE, late - SignedDuration::from_secs(1)).is_ok());
    let error = verifier.verify(&text, NONCE, late).unwrap_err();
    assert!(matches!(error, AttestedDocumentError::Expired { .. }), "{error:?}");
}

#[test]
fn document_from_the_future_is_rejected_beyond_the_clock_skew() {
    let text = Document::new(NONCE).encode();
    let verifier = TestCa::shared().verifier();
    let created = now() - SignedDuration::from_secs(1);
    assert!(verifier.verify(&text, NONCE, created - MAX_CLOCK_SKEW).is_ok());
    let early = created - MAX_CLOCK_SKEW - SignedDuration::from_secs(1);
    let error = verifier.verify(&text, NONCE, early).unwrap_err();
    assert!(matches!(error, AttestedDocumentError::NotYetValid { .. }), "{error:?}");
}

#[test]
fn certificate_outside_its_validity_is_rejected() {
    let text = Document::new(NONCE).encode();
    let verifier = TestCa::shared().verifier();
    for years in [-3, 3] {
        let time = now() + SignedDuration::from_hours(years * 365 * 24);
        let error = verifier.verify(&text, NONCE, time).unwrap_err();
        assert!(matches!(error, AttestedDocumentError::ChainTime(_)), "{error:?}");
    }
}

#[test]
fn signer_needs_a_name_in_the_domain() {
    for name in ["metadata.azure.com", "eastus.metadata.azure.com", "A.METADATA.azure.com"] {
        verify(|document| document.signer = TestCa::shared().signer(name)).unwrap();
    }
    for name in ["metadata.azure.com.example.org", "xmetadata.azure.com", "metadata.azure.us"] {
        let error = verify(|document| document.signer = TestCa::shared().signer(name));
        match error.unwrap_err() {
            AttestedDocumentError::OtherSigner { names, .. } => assert_eq!(names, [name]),
            error => panic!("{name}: {error:?}"),
        }
    }
}

#[test]
fn chain_of_another_authority_is_rejected() {
    let other = TestCa::new("other");
    let error = verify(|document| document.signer = other.signer("metadata.azure.com"));
    match error.unwrap_err() {
        AttestedDocumentError::UnknownIssuer { issuer } => {
            assert_eq!(issuer, "CN=other intermediate");
        }
        error => panic!("{error:?}"),
    }
    // Names are free to choose: an authority with the names of the real one signed nothing of its own.
    let same_names = TestCa::new("test");
    let error = verify(|document| {
        document.signer = same_names.signer("metadata.azure.com");
        document.certificates.push(same_names.intermediate_der());
    });
    let error = error.unwrap_err();
    assert!(matches!(error, AttestedDocumentError::Chain(_)), "{error:?}");
}

#[test]
fn intermediate_comes_from_the_document_or_the_configuration() {
    let ca = TestCa::shared();
    let bare = ca.verifier_with("");
    let mut document = Document::new(NONCE);
    let error = bare.verify(&document.encode(), NONCE, now()).unwrap_err();
    assert!(matches!(error, AttestedDocumentError::UnknownIssuer { .. }), "{error:?}");
    // The signer's certificate is not always the first one.
    document.certificates.push(ca.intermediate_der());
    bare.verify(&document.encode(), NONCE, now()).unwrap();
}

#[test]
fn document_without_its_signers_certificate_is_rejected() {
    let error = verify(|document| {
        document.has_signer_certificate = false;
        document.certificates.push(TestCa::shared().intermediate_der());
    });
    let error = error.unwrap_err();
    assert!(matches!(error, AttestedDocumentError::NoSignerCertificate), "{error:?}");
}

#[test]
fn document_needs_exactly_one_signer() {
    for count in [0, 2] {
        match verify(|document| document.signers = count).unwrap_err() {
            AttestedDocumentError::Signers { count: found } => assert_eq!(found, count),
            error => panic!("{error:?}"),
        }
    }
}

#[test]
fn signed_attributes_are_rejected() {
    let error = verify(|document| document.attributes = tlv(0xa0, &sequence(&[]))).unwrap_err();
    assert!(matches!(error, AttestedDocumentError::SignedAttributes), "{error:?}");
}

#[test]
fn altered_content_or_signature_is_rejected() {
    let original = bytes();
    let id = b"02aab8a4";
    let position = original.windows(id.len()).position(|window| window == id).unwrap();
    for n in [position, original.len() - 1] {
        let mut altered = original.clone();
        altered[n] ^= 1;
        let error = verify_bytes(&altered).unwrap_err();
        assert!(matches!(error, AttestedDocumentError::Signature), "{error:?}");
    }
}

/// No single altered byte yields a different machine: either the byte is not signed and not used, or the
/// document is rejected.
#[test]
fn altered_byte_never_yields_another_machine() {
    let original = bytes();
    let machine = verify_bytes(&original).unwrap();
    for n in 0..original.len() {
        let mut altered = original.clone();
        altered[n] ^= 0x20;
        if let Ok(found) = verify_bytes(&altered) {
            assert_eq!(found, machine, "byte {n}");
        }
    }
}

#[test]
fn truncated_document_is_rejected_at_every_length() {
    let original = bytes();
    for length in 0..original.len() {
        let error = verify_bytes(&original[..length]).unwrap_err();
        assert!(matches!(error, AttestedDocumentError::Structure { .. }), "{length}: {error:?}");
    }
    let error = verify_bytes(&[original.as_slice(), b"x"].concat()).unwrap_err();
    assert!(matches!(error, AttestedDocumentError::Structure { part: "end" }), "{error:?}");
}

#[test]
fn oversized_document_is_rejected_before_it_is_decoded() {
    let text = "!".repeat(MAX_ATTESTED_DOCUMENT + 1);
    let error = TestCa::shared().verifier().verify(&text, NONCE, now()).unwrap_err();
    assert!(matches!(error, AttestedDocumentError::TooLong { .. }), "{error:?}");
    let error = TestCa::shared().verifier().verify("!", NONCE, now()).unwrap_err();
    assert!(matches!(error, AttestedDocumentError::Encoding(_)), "{error:?}");
}

#[test]
fn document_with_too_many_certificates_is_rejected() {
    let one = TestCa::shared().intermediate_der();
    let error = verify(|document| document.certificates = vec![one; 8]).unwrap_err();
    assert!(matches!(error, AttestedDocumentError::TooManyCertificates), "{error:?}");
}

#[test]
fn missing_fields_are_named() {
    let fields = [
        ("\"nonce\"", "nonce"),
        ("\"vmId\"", "vmId"),
        ("\"subscriptionId\"", "subscriptionId"),
        ("\"timeStamp\"", "timeStamp"),
        ("\"createdOn\"", "timeStamp.createdOn"),
        ("\"expiresOn\"", "timeStamp.expiresOn"),
    ];
    for (name, expected) in fields {
        match content_with(name, "\"ignored\"").unwrap_err() {
            AttestedDocumentError::MissingField { field } => assert_eq!(field, expected),
            error => panic!("{name}: {error:?}"),
        }
    }
}

#[test]
fn unreadable_fields_are_named() {
    let values = [
        ("02aab8a4-74ef-476e-8182-f6d2ba4166a6", "web-1"),
        ("02aab8a4-74ef-476e-8182-f6d2ba4166a6", "00000000-0000-0000-0000-000000000000"),
        ("8d10da13-8125-4ba9-a717-bf7490507b3d", ""),
        (" -0000\",\"expiresOn", "\",\"expiresOn"),
    ];
    for (from, to) in values {
        let error = content_with(from, to).unwrap_err();
        assert!(matches!(error, AttestedDocumentError::UnreadableField { .. }), "{error:?}");
    }
    let error = content_with("{", "[").unwrap_err();
    assert!(matches!(error, AttestedDocumentError::Content(_)), "{error:?}");
}

#[test]
fn reimaged_machine_derives_its_next_proxy_id() {
    let machine = verify(|_| ()).unwrap();
    let first = machine.proxy_id(None);
    assert_eq!(first, machine.proxy_id(None));
    let second = machine.proxy_id(Some(first));
    let other = AttestedMachine { vm_id: machine.subscription_id, ..machine };
    let ids = [first, second, machine.proxy_id(Some(second)), other.proxy_id(None)];
    assert_eq!(std::collections::BTreeSet::from(ids).len(), 4);
    assert_eq!(first.0.get_version_num(), 8);
}

#[test]
fn trust_without_roots_or_domain_is_rejected() {
    let none = TrustBundle { roots: String::new() };
    let error = AttestedDocumentVerifier::new(&none, "", AZURE_SIGNER_DOMAIN).unwrap_err();
    assert!(matches!(error, AttestedTrustError::Roots(_)), "{error:?}");
    let roots = TestCa::shared().roots();
    let error = AttestedDocumentVerifier::new(&roots, "x", AZURE_SIGNER_DOMAIN).unwrap_err();
    assert!(matches!(error, AttestedTrustError::Intermediates(_)), "{error:?}");
    // A top-level domain, or none, would accept every server's certificate.
    for domain in ["", "com", ".com", "*.azure.com"] {
        let error = AttestedDocumentVerifier::new(&roots, "", domain).unwrap_err();
        assert!(matches!(error, AttestedTrustError::Domain { .. }), "{error:?}");
    }
}
