//! The node of an Envoy 1.40: 61 KB, nearly all of it a list of extensions that all clients share.

use std::sync::OnceLock;

use bytes::{BufMut, Bytes, BytesMut};
use ironmesh_xds_wire::pb::envoy::config::core::v3::node::UserAgentVersionType;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{BuildVersion, Extension, Locality, Node};
use ironmesh_xds_wire::pb::envoy::r#type::v3::SemanticVersion;
use ironmesh_xds_wire::pb::google::protobuf::{ListValue, Struct, Value, value::Kind};
use prost::Message;

use crate::messages::Variant;

/// The number of extensions that Envoy 1.40 lists, and the length of its whole node.
const EXTENSIONS: usize = 516;
const LENGTH: usize = 61_088;

/// The node field of a request, in two pieces: the client's own fields, and the shared extensions.
pub(crate) fn field(
    variant: Variant,
    id: &str,
    cluster: &str,
    zone: &str,
    metadata: &serde_json::Value,
) -> [Bytes; 2] {
    let fields = [("ironmesh".to_owned(), value(metadata))].into();
    let version = SemanticVersion { major_number: 1, minor_number: 40, patch: 0 };
    let own = Node {
        id: id.to_owned(),
        cluster: cluster.to_owned(),
        metadata: Some(Struct { fields }),
        locality: Some(Locality {
            region: "lab".to_owned(),
            zone: zone.to_owned(),
            sub_zone: String::new(),
        }),
        user_agent_name: "envoy".to_owned(),
        user_agent_version_type: Some(UserAgentVersionType::UserAgentBuildVersion(BuildVersion {
            version: Some(version),
            metadata: None,
        })),
        ..Node::default()
    };
    let own = own.encode_to_vec();
    let shared = extensions();
    let mut begin = BytesMut::with_capacity(own.len() + 8);
    let number = match variant {
        Variant::Delta => 1,
        Variant::Sotw => 2,
    };
    begin.put_u8(number << 3 | 2);
    prost::encoding::encode_varint((own.len() + shared.len()) as u64, &mut begin);
    begin.put_slice(&own);
    [begin.freeze(), shared]
}

fn extensions() -> Bytes {
    static SHARED: OnceLock<Bytes> = OnceLock::new();
    let make = || {
        let each = LENGTH / EXTENSIONS - 53;
        let extensions = (0..EXTENSIONS).map(|number| Extension {
            name: format!("envoy.filters.http.of_number_{number:0each$}"),
            category: "envoy.filters.http".to_owned(),
            ..Extension::default()
        });
        Node { extensions: extensions.collect(), ..Node::default() }.encode_to_vec().into()
    };
    SHARED.get_or_init(make).clone()
}

fn value(json: &serde_json::Value) -> Value {
    let kind = match json {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(bool) => Kind::BoolValue(*bool),
        serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        serde_json::Value::String(text) => Kind::StringValue(text.clone()),
        serde_json::Value::Array(values) => {
            Kind::ListValue(ListValue { values: values.iter().map(value).collect() })
        }
        serde_json::Value::Object(fields) => Kind::StructValue(Struct {
            fields: fields.iter().map(|(key, field)| (key.clone(), value(field))).collect(),
        }),
    };
    Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_field_has_the_size_and_identity_of_an_envoy_node() {
        let metadata = serde_json::json!({ "bind": "10.0.0.1" });
        let field = field(Variant::Delta, "one", "default/store", "a", &metadata).concat();
        assert!((LENGTH - 2000..LENGTH + 2000).contains(&field.len()), "{}", field.len());
        let mut body = &field[1..];
        let length = prost::encoding::decode_varint(&mut body).unwrap();
        assert_eq!(length, body.len() as u64);
        let node = Node::decode(body).unwrap();
        assert_eq!((&*node.id, node.extensions.len()), ("one", EXTENSIONS));
        let parsed = ironmesh_xds_wire::Node::from(node);
        assert_eq!(parsed.metadata, Some(metadata));
    }
}
