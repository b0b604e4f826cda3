//! Resources without their secrets, for people and tools that inspect a client's set.

use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    Secret, TlsCertificate, secret,
};
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use envoy_types::pb::google::protobuf::Any;
use prost::Message;

use crate::resource::{Resource, ResourceType, any};

/// The placeholder for a secret.
const REDACTED: &str = "[redacted]";

impl Resource {
    /// The content, with secrets replaced by `[redacted]`. A secret resource keeps only parts known
    /// to be public, whatever Envoy's next version adds.
    pub fn redacted(&self) -> Option<Any> {
        let response = DeltaDiscoveryResponse::decode(self.delta_entry().clone()).ok()?;
        let body = response.resources.into_iter().next()?.resource?;
        if self.resource_type() != ResourceType::Secret {
            return Some(body);
        }
        let Secret { name, r#type } = Secret::decode(&*body.value).ok()?;
        let public = r#type.and_then(|kind| match kind {
            secret::Type::TlsCertificate(certificate) => {
                let public = TlsCertificate {
                    certificate_chain: certificate.certificate_chain,
                    private_key: certificate.private_key.map(|_| DataSource {
                        specifier: Some(Specifier::InlineString(REDACTED.to_owned())),
                        ..DataSource::default()
                    }),
                    ..TlsCertificate::default()
                };
                Some(secret::Type::TlsCertificate(public))
            }
            roots @ secret::Type::ValidationContext(_) => Some(roots),
            _ => None,
        });
        Some(any(&Secret { name, r#type: public }))
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
        GenericSecret, TlsSessionTicketKeys,
    };

    use super::*;

    fn inline(text: &str) -> DataSource {
        let specifier = Some(Specifier::InlineBytes(text.as_bytes().to_vec()));
        DataSource { specifier, ..DataSource::default() }
    }

    #[test]
    fn redacted_secret_keeps_only_public_parts() {
        let certificate = TlsCertificate {
            certificate_chain: Some(inline("the chain")),
            private_key: Some(inline("SECRET")),
            pkcs12: Some(inline("SECRET")),
            password: Some(inline("SECRET")),
            ..TlsCertificate::default()
        };
        let keys = TlsSessionTicketKeys { keys: vec![inline("SECRET")] };
        let generic = GenericSecret { secret: Some(inline("SECRET")), ..GenericSecret::default() };
        for (kind, kept) in [
            (secret::Type::TlsCertificate(certificate), "the chain"),
            (secret::Type::SessionTicketKeys(keys), "its name"),
            (secret::Type::GenericSecret(generic), "its name"),
        ] {
            let resource =
                Resource::new(&Secret { name: "its name".to_owned(), r#type: Some(kind) });
            let entry = String::from_utf8_lossy(resource.delta_entry());
            assert!(entry.contains("SECRET"));
            let redacted = resource.redacted().unwrap();
            let text = String::from_utf8_lossy(&redacted.value).into_owned();
            assert!(text.contains(kept) && !text.contains("SECRET"), "{text}");
        }
    }
}
