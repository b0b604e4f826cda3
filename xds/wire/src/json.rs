//! Resources as canonical proto-JSON, for people and for golden tests. Keys are never shown.

use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use prost::Message;
use prost_reflect::{DynamicMessage, SerializeOptions};
use serde_json::Value;

use crate::descriptors::pool;
use crate::resource::{Resource, ResourceType};

impl Resource {
    /// The content as JSON, with what is secret in it replaced by `[redacted]`.
    pub fn to_json(&self) -> Value {
        let mut value = self.content().unwrap_or(Value::Null);
        if self.resource_type() == ResourceType::Secret {
            redact(&mut value);
        }
        value
    }

    fn content(&self) -> Option<Value> {
        let response = DeltaDiscoveryResponse::decode(self.delta_entry().clone()).ok()?;
        let body = response.resources.into_iter().next()?.resource?;
        let name = body.type_url.rsplit('/').next()?;
        let message =
            DynamicMessage::decode(pool().get_message_by_name(name)?, &*body.value).ok()?;
        message.serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new()).ok()
    }
}

/// A secret may hold certificates, which anyone may see, and keys, which nobody may.
fn redact(secret: &mut Value) {
    let key = secret.pointer_mut("/tlsCertificate/privateKey");
    if let Some(Value::Object(source)) = key {
        for value in source.values_mut() {
            *value = "[redacted]".into();
        }
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
    use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
        Secret, TlsCertificate, secret,
    };

    use super::*;

    #[test]
    fn a_key_is_not_shown() {
        let inline = |text: &str| {
            Some(DataSource {
                specifier: Some(Specifier::InlineString(text.to_owned())),
                ..DataSource::default()
            })
        };
        let certificate = TlsCertificate {
            certificate_chain: inline("the chain"),
            private_key: inline("the key"),
            ..TlsCertificate::default()
        };
        let resource = Resource::new(&Secret {
            name: "service-cert:default/a".to_owned(),
            r#type: Some(secret::Type::TlsCertificate(certificate)),
        });
        let text = resource.to_json().to_string();
        assert!(text.contains("the chain") && !text.contains("the key"), "{text}");
        assert!(!format!("{resource:?}").contains("the key"));
    }
}
