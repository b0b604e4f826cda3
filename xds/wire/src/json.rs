//! Resources as canonical proto-JSON, for people and for golden tests. Keys are never shown.

use prost::{Message, Name};
use prost_reflect::{DynamicMessage, SerializeOptions};
use serde_json::Value;

use crate::descriptors::pool;
use crate::resource::Resource;

impl Resource {
    /// The content as JSON, with what is secret in it replaced by `[redacted]`.
    pub fn to_json(&self) -> Value {
        self.content().unwrap_or(Value::Null)
    }

    fn content(&self) -> Option<Value> {
        let body = self.redacted()?;
        json(body.type_url.rsplit('/').next()?, &body.value)
    }
}

/// A message without secrets as JSON.
pub fn message_json<M: Message + Name>(message: &M) -> Value {
    json(&M::full_name(), &message.encode_to_vec()).unwrap_or(Value::Null)
}

fn json(name: &str, bytes: &[u8]) -> Option<Value> {
    let message = DynamicMessage::decode(pool().get_message_by_name(name)?, bytes).ok()?;
    message.serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new()).ok()
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
    use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
        Secret, TlsCertificate, secret,
    };

    use super::*;

    #[test]
    fn private_key_is_omitted_from_json_and_debug() {
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
