//! The overlay: what experts merge into Envoy's bootstrap.
//!
//! Messages merge field by field, lists are appended, and other values are replaced, as Envoy merges `--config-yaml`.
//! What the mesh owns cannot be changed: the identity of the node, the control plane, the admin interface, and the
//! clusters and listeners of Ironmesh.

use serde_json::{Map, Value};

/// The reason why an overlay cannot be merged into the bootstrap.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverlayError {
    /// It sets what the mesh owns.
    #[error("bootstrap overlay: `{0}` belongs to the mesh: remove it from the overlay")]
    Owned(String),
    /// It has another type than the bootstrap.
    #[error("bootstrap overlay: `{path}` must be {expected}")]
    WrongType {
        /// The path in the bootstrap.
        path: String,
        /// The type, with its article.
        expected: &'static str,
    },
}

/// The fields that the mesh owns, with everything in them.
const OWNED: [&str; 7] = [
    "node.id",
    "node.cluster",
    "node.metadata.ironmesh",
    "admin.address",
    "dynamic_resources",
    "hds_config",
    "static_resources.secrets",
];

/// The prefix of the names that the mesh gives to its own clusters and listeners.
const OWN_NAMES: &str = "ironmesh-";

/// The lists in which the mesh has entries of its own, by their `name`.
const NAMED_LISTS: [&str; 2] = ["static_resources.clusters", "static_resources.listeners"];

/// Merges `overlay` into the bootstrap.
pub(super) fn merge(bootstrap: &mut Value, overlay: &Value) -> Result<(), OverlayError> {
    let Value::Object(overlay) = overlay else {
        let path = "the whole file".to_owned();
        return Err(OverlayError::WrongType { path, expected: "a mapping" });
    };
    match bootstrap {
        Value::Object(bootstrap) => merge_mapping(bootstrap, overlay, ""),
        // (The bootstrap is a mapping.)
        _ => Ok(()),
    }
}

fn merge_mapping(
    bootstrap: &mut Map<String, Value>,
    overlay: &Map<String, Value>,
    parent: &str,
) -> Result<(), OverlayError> {
    for (written, new) in overlay {
        // Envoy accepts both spellings of a field, and of two it would use one.
        let snake = snake_case(written);
        let path = if parent.is_empty() { snake.clone() } else { format!("{parent}.{snake}") };
        if OWNED.contains(&&*path) {
            return Err(OverlayError::Owned(path));
        }
        if NAMED_LISTS.contains(&&*path) {
            check_names(new, &path)?;
        }
        let key = if bootstrap.contains_key(&snake) { snake } else { written.clone() };
        match (bootstrap.get_mut(&key), new) {
            (Some(Value::Object(old)), Value::Object(new)) => merge_mapping(old, new, &path)?,
            (Some(Value::Object(_)), _) => {
                return Err(OverlayError::WrongType { path, expected: "a mapping" });
            }
            (Some(Value::Array(old)), Value::Array(new)) => old.extend_from_slice(new),
            (Some(Value::Array(_)), _) => {
                return Err(OverlayError::WrongType { path, expected: "a list" });
            }
            // Also a mapping that the bootstrap does not have: nothing in it is the mesh's, because every parent of
            // an owned field is in the bootstrap, except for secrets.
            _ => {
                bootstrap.insert(key, new.clone());
            }
        }
    }
    Ok(())
}

/// Fails if an entry of the list has a name as the mesh's own have.
fn check_names(list: &Value, path: &str) -> Result<(), OverlayError> {
    let names = list.as_array().into_iter().flatten().filter_map(|entry| entry.get("name"));
    let mut names = names.filter_map(Value::as_str);
    match names.find(|name| name.starts_with(OWN_NAMES)) {
        Some(name) => Err(OverlayError::Owned(format!("{path}[{name}]"))),
        None => Ok(()),
    }
}

/// The field's name in snake case.
fn snake_case(key: &str) -> String {
    let mut snake = String::with_capacity(key.len());
    for character in key.chars() {
        if character.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bootstrap() -> Value {
        json!({
            "node": { "id": "1", "cluster": "shop", "metadata": { "ironmesh": {} } },
            "admin": { "address": { "pipe": {} } },
            "dynamic_resources": { "ads_config": {} },
            "static_resources": {
                "listeners": [],
                "clusters": [{ "name": "ironmesh-control-plane" }],
            },
        })
    }

    #[test]
    fn mappings_merge_lists_are_appended_and_values_replaced() {
        let overlay = json!({
            "node": { "locality": { "zone": "1" }, "metadata": { "team": "shop" } },
            "admin": { "ignore_global_conn_limit": true },
            "staticResources": { "clusters": [{ "name": "statsd" }] },
            "stats_config": { "use_all_default_tags": false },
        });
        let mut merged = bootstrap();
        merge(&mut merged, &overlay).unwrap();
        let expected = json!({
            "node": {
                "id": "1",
                "cluster": "shop",
                "metadata": { "ironmesh": {}, "team": "shop" },
                "locality": { "zone": "1" },
            },
            "admin": { "address": { "pipe": {} }, "ignore_global_conn_limit": true },
            "dynamic_resources": { "ads_config": {} },
            "static_resources": {
                "listeners": [],
                "clusters": [{ "name": "ironmesh-control-plane" }, { "name": "statsd" }],
            },
            "stats_config": { "use_all_default_tags": false },
        });
        assert_eq!(merged, expected);
    }

    #[test]
    fn overlay_of_what_the_mesh_owns_is_an_error_with_the_path() {
        for (overlay, path) in [
            (json!({ "node": { "id": "2" } }), "node.id"),
            (json!({ "node": { "metadata": { "ironmesh": {} } } }), "node.metadata.ironmesh"),
            (json!({ "admin": { "address": {} } }), "admin.address"),
            (json!({ "dynamic_resources": {} }), "dynamic_resources"),
            (json!({ "dynamicResources": {} }), "dynamic_resources"),
            (json!({ "static_resources": { "secrets": [] } }), "static_resources.secrets"),
            (
                json!({ "staticResources": { "clusters": [{ "name": "ironmesh-control-plane" }] } }),
                "static_resources.clusters[ironmesh-control-plane]",
            ),
        ] {
            let mut merged = bootstrap();
            let error = merge(&mut merged, &overlay).unwrap_err();
            assert_eq!(error, OverlayError::Owned(path.to_owned()), "{overlay}");
        }
        for (overlay, path) in [
            (json!([]), "the whole file"),
            (json!({ "node": "vm1" }), "node"),
            (json!({ "admin": [] }), "admin"),
            (json!({ "static_resources": { "clusters": {} } }), "static_resources.clusters"),
        ] {
            let error = merge(&mut bootstrap(), &overlay).unwrap_err().to_string();
            assert!(error.contains(&format!("`{path}` must be a")), "{error}");
        }
    }
}
