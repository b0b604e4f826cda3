//! The shape of every certificate: names, extensions, serial number, validity.
//!
//! This module sets every field. Defaults of the certificate library (validity from 1975 to 4096, a name of
//! its own) never reach a certificate. It signs nothing.

use std::fmt::Write as _;

use aws_lc_rs::rand;
use ironmesh_catalog::TrustDomain;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
    SerialNumber,
};

use crate::issue::ServerNames;
use crate::validity::{Validity, to_offset};

/// The purpose of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Root,
    Intermediate,
    Service,
    Proxy,
    Operator,
    ControlPlane,
}

impl Purpose {
    fn is_ca(self) -> IsCa {
        match self {
            // The path length is not limited, so that the root may one day sign its successor.
            Self::Root => IsCa::Ca(BasicConstraints::Unconstrained),
            Self::Intermediate => IsCa::Ca(BasicConstraints::Constrained(0)),
            Self::Service | Self::Proxy | Self::Operator | Self::ControlPlane => IsCa::ExplicitNoCa,
        }
    }

    fn key_usages(self) -> Vec<KeyUsagePurpose> {
        match self {
            Self::Root | Self::Intermediate => {
                vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign]
            }
            Self::Service | Self::Proxy | Self::Operator | Self::ControlPlane => {
                vec![KeyUsagePurpose::DigitalSignature]
            }
        }
    }

    fn extended_key_usages(self) -> Vec<ExtendedKeyUsagePurpose> {
        match self {
            // Those of an operator are in an extension of their own: the library cannot write all of them.
            Self::Root | Self::Intermediate | Self::Operator => Vec::new(),
            Self::Service => {
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
            }
            Self::Proxy => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Self::ControlPlane => vec![ExtendedKeyUsagePurpose::ServerAuth],
        }
    }

    fn custom_extensions(self) -> Vec<CustomExtension> {
        match self {
            Self::Operator => vec![operator_usages()],
            _ => Vec::new(),
        }
    }
}

/// The extended key usage of operators: 2.25.190149258129560097179937007371323080512, below the arc for UUIDs (ITU-T X.667),
/// in DER without its tag and length. A proxy's certificate is for clients too, and must give no operator's access.
pub(crate) const OPERATOR_USAGE: [u8; 20] = [
    0x69, 0x82, 0x9e, 0x8d, 0xb5, 0x8f, 0xca, 0xab, 0x8a, 0xb1, 0xdf, 0x9b, 0xbf, 0x8e, 0xc3, 0xc5,
    0xe9, 0xb9, 0xfe, 0x40,
];

/// The usage of TLS clients (RFC 5280, section 4.2.1.12): 1.3.6.1.5.5.7.3.2.
const CLIENT_AUTH: [u8; 8] = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];

/// Tags of DER (X.690, section 8.9 and 8.19).
const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// The extension of extended key usages (2.5.29.37) of an operator: a client of TLS, which verifiers require, and
/// [`OPERATOR_USAGE`].
fn operator_usages() -> CustomExtension {
    // Each length is below 128, so that it has one byte (X.690, section 8.1.3.4).
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    let mut usages = Vec::new();
    for usage in [&CLIENT_AUTH[..], &OPERATOR_USAGE] {
        usages.extend([OBJECT_IDENTIFIER, length(usage)]);
        usages.extend(usage);
    }
    usages.splice(0..0, [SEQUENCE, length(&usages)]);
    CustomExtension::from_oid_content(&[2, 5, 29, 37], usages)
}

/// The content of a certificate for `purpose`, with its serial number.
pub(crate) fn content(
    purpose: Purpose,
    common_name: &str,
    uri: &str,
    names: &ServerNames,
    validity: &Validity,
) -> Result<(CertificateParams, Serial), ContentError> {
    let serial = Serial::random()?;
    let mut content = CertificateParams::default();
    content.serial_number = Some(SerialNumber::from_slice(&serial.0));
    content.not_before = to_offset(validity.not_before)?;
    content.not_after = to_offset(validity.not_after)?;
    content.distinguished_name = DistinguishedName::new();
    content.distinguished_name.push(DnType::CommonName, common_name);
    content.subject_alt_names = vec![SanType::URI(uri.try_into()?)];
    for host in &names.hosts {
        let host = Ia5String::try_from(host.as_str())?;
        content.subject_alt_names.push(SanType::DnsName(host));
    }
    content.subject_alt_names.extend(names.addresses.iter().copied().map(SanType::IpAddress));
    content.is_ca = purpose.is_ca();
    content.key_usages = purpose.key_usages();
    content.extended_key_usages = purpose.extended_key_usages();
    content.custom_extensions = purpose.custom_extensions();
    content.use_authority_key_identifier_extension = true;
    Ok((content, serial))
}

/// The trust domain as a URI, as a signing certificate names it (SPIFFE X.509-SVID, section 4.1: a signing
/// certificate has no path in its ID).
pub(crate) fn trust_domain_uri(trust_domain: &TrustDomain) -> String {
    format!("spiffe://{trust_domain}")
}

/// Creates a key: ECDSA P-256, the only kind in the mesh.
pub(crate) fn new_key() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
}

/// A serial number: 126 random bits.
pub(crate) struct Serial([u8; 16]);

impl Serial {
    fn random() -> Result<Self, ContentError> {
        let mut bytes = [0; 16];
        rand::fill(&mut bytes).map_err(|_| ContentError::Random)?;
        // Positive and always of one length (RFC 5280, section 4.1.2.2).
        bytes[0] = bytes[0] & 0x7f | 0x40;
        Ok(Self(bytes))
    }

    pub(crate) fn to_hex(&self) -> String {
        hex(&self.0)
    }
}

/// Eight random hexadecimal digits, by which operators distinguish authorities.
pub(crate) fn short_id() -> Result<String, ContentError> {
    let mut bytes = [0; 4];
    rand::fill(&mut bytes).map_err(|_| ContentError::Random)?;
    Ok(hex(&bytes))
}

/// The content of a certificate could not be encoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContentError {
    #[error("no random bytes")]
    Random,
    #[error("time cannot be written into a certificate")]
    Time(#[from] time::error::ComponentRange),
    #[error("name cannot be written into a certificate")]
    Name(#[from] rcgen::Error),
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
