//! Reads the node metadata of a proxy.
//!
//! Admission rejects a proxy whose node metadata is malformed. An unknown field does not reject it,
//! since the bootstrap may be newer than the control plane: it becomes a finding.

use ironmesh_catalog::{HostUpstream, NodeMetadata, Upstream};
use ironmesh_xds_wire::Node;
use serde_json::Value;

/// The most upstreams that a proxy may declare.
const MAX_UPSTREAMS: usize = 256;

/// The most unknown fields that a finding names, and the most characters of each.
const MAX_UNKNOWN: usize = 8;
const MAX_NAME: usize = 64;

/// The value of `ironmesh` in the metadata of `node`; the default where there is none.
pub(crate) fn node_metadata(node: &Node) -> Result<NodeMetadata, String> {
    let Some(stated) = node.metadata.clone() else { return Ok(NodeMetadata::default()) };
    let unknown = unknown_fields(&stated);
    let metadata: NodeMetadata = serde_json::from_value(stated).map_err(|error| {
        // The proxy chooses a part of this text, which reaches logs and terminals.
        let error = error.to_string().replace(char::is_control, " ");
        format!("`ironmesh` in the node metadata is malformed: {error}")
    })?;
    match metadata.upstreams.len() + metadata.hosts.len() {
        0..=MAX_UPSTREAMS => Ok(NodeMetadata { unknown, ..metadata }),
        many => Err(format!(
            "the node metadata declares {many} upstreams; the limit is {MAX_UPSTREAMS}"
        )),
    }
}

/// The names of the fields that [`NodeMetadata`] lacks, each once and escaped.
fn unknown_fields(stated: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    note_unknown("", stated, NodeMetadata::FIELDS, &mut unknown);
    for (list, fields) in [("upstreams", Upstream::FIELDS), ("hosts", HostUpstream::FIELDS)] {
        for item in stated.get(list).and_then(Value::as_array).into_iter().flatten() {
            note_unknown(&format!("{list}."), item, fields, &mut unknown);
        }
    }
    unknown
}

fn note_unknown(prefix: &str, object: &Value, known: &[&str], unknown: &mut Vec<String>) {
    let fields = object.as_object().into_iter().flat_map(|fields| fields.keys());
    for name in fields.filter(|name| !known.contains(&name.as_str())) {
        let name: String = name.chars().take(MAX_NAME).collect();
        let name = format!("{prefix}{}", name.escape_debug());
        if unknown.len() < MAX_UNKNOWN && !unknown.contains(&name) {
            unknown.push(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::CertificateSource;
    use serde_json::json;

    use super::*;

    fn node(metadata: Value) -> Node {
        Node { metadata: Some(metadata), ..Node::default() }
    }

    #[test]
    fn node_metadata_with_unknown_fields_is_read_and_names_them() {
        let stated = json!({
            "bind": "10.0.0.1",
            "colour": "green",
            "evil\u{1b}[2J\n": 1,
            "upstreams": [
                { "service": "a", "local_port": 1, "weight": 2 },
                { "service": "b", "local_port": 2, "weight": 3 },
            ],
            "hosts": [{ "host": "a.example", "port": 80, "local_port": 3, "tls": true }],
        });
        let read = node_metadata(&node(stated)).unwrap();
        assert_eq!(read.bind, Some("10.0.0.1".parse().unwrap()));
        assert_eq!((read.upstreams.len(), read.hosts.len()), (2, 1));
        let names = ["colour", r"evil\u{1b}[2J\n", "upstreams.weight", "hosts.tls"];
        assert_eq!(read.unknown, names);
    }

    #[test]
    fn node_metadata_with_many_unknown_fields_names_a_few() {
        let many = (0..1000).map(|n| (format!("{n:03}{}", "x".repeat(200)), Value::Null));
        let read = node_metadata(&node(Value::Object(many.collect()))).unwrap();
        assert_eq!(read.unknown.len(), MAX_UNKNOWN);
        assert!(read.unknown.iter().all(|name| name.len() == MAX_NAME));
    }

    #[test]
    fn node_metadata_with_a_malformed_known_field_is_rejected() {
        for bad in [
            json!({ "bind": 7 }),
            json!("x"),
            json!({ "access_log_dir": "log" }),
            json!({ "certificates": "vault" }),
            json!({ "bootstrap_version": -1 }),
            json!({ "control_plane": "10.0.0.9:15128" }),
            json!({ "upstreams": [{ "service": "a" }] }),
        ] {
            node_metadata(&node(bad)).unwrap_err();
        }
    }

    #[test]
    fn known_node_metadata_fields_equal_those_of_the_bootstrap() {
        // The literal is complete, so that a new field must be added to `FIELDS` too.
        let full = NodeMetadata {
            bind: Some("10.0.0.1".parse().unwrap()),
            app_address: Some("10.0.0.2".parse().unwrap()),
            upstreams: vec![Upstream {
                service: "a".parse().unwrap(),
                port: Some(80),
                local_port: 1,
            }],
            hosts: vec!["a.example:443=14443".parse().unwrap()],
            access_log_dir: Some("/var/log/envoy".parse().unwrap()),
            certificates: CertificateSource::Agent,
            bootstrap_version: 1,
            control_plane: vec!["10.0.0.9:15128".to_owned()],
            unknown: Vec::new(),
        };
        let written = serde_json::to_value(&full).unwrap();
        assert_eq!(written.as_object().unwrap().len(), NodeMetadata::FIELDS.len());
        assert_eq!(unknown_fields(&written), Vec::<String>::new());
        assert_eq!(node_metadata(&node(written)).unwrap(), full);
    }
}
