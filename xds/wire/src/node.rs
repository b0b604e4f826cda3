//! The node of a client, reduced to the fields in use: Envoy's node has 61 KB, nearly all of it a
//! list of extensions.

use std::fmt;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::r#type::v3::SemanticVersion;
use envoy_types::pb::google::protobuf::{Value, value::Kind};
use serde_json::{Map, Number};

/// A client as it describes itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Its id.
    pub id: String,
    /// The value of `ironmesh` in its metadata, if any.
    pub metadata: Option<serde_json::Value>,
    /// Its Envoy version, if it reports one.
    pub envoy_version: Option<EnvoyVersion>,
}

/// The maximum length of an id, in bytes; Envoy's are a UUID, or that with an address and a domain.
const MAX_ID: usize = 512;

/// The maximum size of the metadata as JSON, in bytes: some hundred upstreams.
const MAX_METADATA: usize = 64 << 10;

impl Node {
    /// Why the node is invalid, if it is: it is stored, and shown to people.
    pub fn fault(&self) -> Option<&'static str> {
        if self.id.len() > MAX_ID {
            return Some("the node id is longer than 512 bytes");
        }
        if self.id.contains(char::is_control) {
            return Some("the node id has control characters");
        }
        let metadata = self.metadata.as_ref();
        let is_large = metadata.is_some_and(|metadata| metadata.to_string().len() > MAX_METADATA);
        is_large.then_some("the node's metadata `ironmesh` is larger than 64 KiB")
    }
}

/// The version of an Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvoyVersion {
    /// 1, so far.
    pub major: u32,
    /// The number of the quarterly release.
    pub minor: u32,
    /// The number of the fix.
    pub patch: u32,
}

impl fmt::Display for EnvoyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl From<core::Node> for Node {
    fn from(node: core::Node) -> Self {
        let metadata = node.metadata.and_then(|mut metadata| metadata.fields.remove("ironmesh"));
        let envoy_version = match node.user_agent_version_type {
            Some(core::node::UserAgentVersionType::UserAgentBuildVersion(build))
                if node.user_agent_name == "envoy" =>
            {
                build.version.map(|version| EnvoyVersion {
                    major: version.major_number,
                    minor: version.minor_number,
                    patch: version.patch,
                })
            }
            _ => None,
        };
        Self { id: node.id, metadata: metadata.map(json), envoy_version }
    }
}

impl From<&Node> for core::Node {
    fn from(node: &Node) -> Self {
        let version = node.envoy_version.map(|version| core::BuildVersion {
            version: Some(SemanticVersion {
                major_number: version.major,
                minor_number: version.minor,
                patch: version.patch,
            }),
            metadata: None,
        });
        Self {
            id: node.id.clone(),
            user_agent_name: version.as_ref().map_or_else(String::new, |_| "envoy".to_owned()),
            user_agent_version_type: version
                .map(core::node::UserAgentVersionType::UserAgentBuildVersion),
            ..Self::default()
        }
    }
}

/// Converts a protobuf value to JSON. prost's recursion limit bounds its depth (100).
fn json(value: Value) -> serde_json::Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(bool)) => bool.into(),
        Some(Kind::NumberValue(number)) => whole(number).map_or_else(|| number.into(), Into::into),
        Some(Kind::StringValue(text)) => text.into(),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(json).collect(),
        Some(Kind::StructValue(fields)) => fields
            .fields
            .into_iter()
            .map(|(key, value)| (key, json(value)))
            .collect::<Map<_, _>>()
            .into(),
    }
}

/// The number as an integer, if it is whole: protobuf has doubles only, but ports and counts are
/// whole.
fn whole(number: f64) -> Option<Number> {
    let text = number.to_string();
    text.parse::<i64>().ok().map(Number::from)
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::google::protobuf::Struct;

    use super::*;

    /// Invariant 10: a node is stored for the life of its stream, and shown on terminals.
    #[test]
    fn node_with_oversized_or_control_text_is_rejected() {
        let node = |id: &str, text: usize| Node {
            id: id.to_owned(),
            metadata: Some(serde_json::Value::String("x".repeat(text))),
            envoy_version: None,
        };
        assert_eq!(node(&"x".repeat(512), 60 << 10).fault(), None);
        for (bad, words) in [
            (node(&"x".repeat(513), 0), "longer than"),
            (node("x\u{1b}[2J", 0), "control"),
            (node("x", 64 << 10), "larger than"),
        ] {
            assert!(bad.fault().is_some_and(|fault| fault.contains(words)), "{words}");
        }
    }

    #[test]
    fn node_keeps_only_the_fields_in_use() {
        let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
        let port = Value { kind: Some(Kind::NumberValue(14001.0)) };
        let fields = [("bind".to_owned(), text("10.0.0.1")), ("port".to_owned(), port)].into();
        let metadata = Value { kind: Some(Kind::StructValue(Struct { fields })) };
        let version = SemanticVersion { major_number: 1, minor_number: 40, patch: 0 };
        let node = Node::from(core::Node {
            id: "n".to_owned(),
            metadata: Some(Struct { fields: [("ironmesh".to_owned(), metadata)].into() }),
            user_agent_name: "envoy".to_owned(),
            user_agent_version_type: Some(core::node::UserAgentVersionType::UserAgentBuildVersion(
                core::BuildVersion { version: Some(version), metadata: None },
            )),
            ..core::Node::default()
        });
        assert_eq!(
            node.metadata.clone().unwrap(),
            serde_json::json!({ "bind": "10.0.0.1", "port": 14001 })
        );
        assert_eq!(node.envoy_version.unwrap().to_string(), "1.40.0");
        let again = Node::from(core::Node::from(&node));
        assert_eq!(again, Node { metadata: None, ..node }, "what it is, without what it wants");
    }
}
