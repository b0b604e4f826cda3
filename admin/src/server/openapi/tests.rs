use std::collections::BTreeSet;

use serde_json::Value;

use super::summaries::SUMMARIES;
use super::*;

/// Each operation of the document: its path, its method, and the object.
fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().iter();
            methods.map(|(method, operation)| (path.as_str(), method.as_str(), operation))
        })
        .collect()
}

#[test]
fn document_has_the_operations_of_the_table() {
    let document = document(&routes::routes());
    let described: BTreeSet<_> = operations(&document)
        .into_iter()
        .map(|(path, method, operation)| {
            let id = operation["operationId"].as_str().unwrap();
            (id.to_owned(), method.to_uppercase(), path.to_owned())
        })
        .collect();
    let table = routes::operations().into_iter().map(|operation| {
        (operation.id.to_owned(), operation.method.to_string(), operation.path.to_owned())
    });
    assert_eq!(described, table.collect());
}

#[test]
fn each_operation_has_one_summary() {
    let ids: Vec<_> = routes::operations().into_iter().map(|operation| operation.id).collect();
    let known: Vec<_> = SUMMARIES.iter().map(|(id, _)| *id).collect();
    for id in &ids {
        assert!(known.contains(id), "`{id}` has no summary in summaries.rs");
    }
    for id in known {
        assert!(ids.contains(&id), "the table has no operation `{id}`");
    }
}

#[test]
fn document_is_the_same_each_time() {
    let first = document(&routes::routes()).to_string();
    for _ in 0..20 {
        assert_eq!(document(&routes::routes()).to_string(), first);
    }
}

#[test]
fn no_two_types_share_a_name_in_the_document() {
    let mut all = std::collections::BTreeMap::new();
    for (operation, description) in routes::routes().described() {
        for (name, schema) in &description.schemas {
            let schema = serde_json::json!(schema);
            let known = all.entry(name.clone()).or_insert_with(|| schema.clone());
            assert_eq!(*known, schema, "two types are named `{name}`: see `{}`", operation.id);
        }
    }
}

#[test]
fn all_references_and_path_parameters_are_defined() {
    let document = document(&routes::routes());
    let text = document.to_string();
    for rest in text.split("\"$ref\":\"#").skip(1) {
        let pointer = rest.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "`{pointer}` is not defined");
    }
    for (path, _, operation) in operations(&document) {
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let count = parameters.filter(|one| one["in"] == "path").count();
        assert_eq!(count, path.matches('{').count(), "{path}");
    }
}

#[test]
fn operation_states_its_permission_and_errors() {
    let document = document(&routes::routes());
    let revoke = &document["paths"]["/v1/proxies/{id}/revoke"]["post"];
    assert_eq!(revoke["x-permission"], "change the mesh");
    assert_eq!(revoke["security"].as_array().unwrap().len(), 3);
    let statuses: Vec<_> = revoke["responses"].as_object().unwrap().keys().collect();
    assert_eq!(
        statuses,
        ["200", "400", "401", "403", "404", "408", "409", "413", "415", "421", "422", "500", "503"]
    );
    assert_eq!(document["paths"]["/healthz"]["get"]["security"], serde_json::json!([{}]));
}

#[test]
fn integers_have_bounds_and_queries_are_never_null() {
    let document = document(&routes::routes());
    let port = &document["components"]["schemas"]["ServicePort"]["properties"]["port"];
    assert_eq!((&port["format"], &port["maximum"]), (&"uint16".into(), &65_535.into()));
    let pair =
        &document["components"]["schemas"]["CreatedTokens"]["properties"]["enrollment"]["items"];
    assert_eq!((&pair["minItems"], &pair["items"]), (&2.into(), &false.into()));
    let text = document.to_string();
    assert!(!text.contains("u-int"), "an unsigned integer has no bound");
    for (path, _, operation) in operations(&document) {
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        for parameter in parameters.filter(|one| one["in"] == "query") {
            assert!(!parameter.to_string().contains("null"), "{path}: {parameter}");
        }
    }
}

/// Adds the descriptions of a part of the document.
fn descriptions<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("description").and_then(Value::as_str));
            fields.values().for_each(|value| descriptions(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| descriptions(value, found)),
        _ => {}
    }
}

/// Readers of the document do not have the code.
#[test]
fn descriptions_name_no_items_of_the_code() {
    let document = document(&routes::routes());
    let mut found = Vec::new();
    descriptions(&document, &mut found);
    assert!(found.len() > 500, "{}", found.len());
    for text in found {
        let is_of_code = ["[`", "](", "crate::", "MAX_", "self::", "super::"];
        let part = is_of_code.iter().find(|part| text.contains(**part));
        assert_eq!(part, None, "{text}");
        // (An IPv6 address has `::`, too.)
        let path = text.split('`').skip(1).step_by(2).find(|code| {
            code.contains("::") && code.starts_with(|c: char| c.is_ascii_alphabetic())
        });
        assert_eq!(path, None, "{text}");
    }
}

#[test]
fn bounds_of_requests_are_those_that_the_control_plane_checks() {
    let document = document(&routes::routes());
    for (pointer, bound) in [
        ("BootstrapRequest/properties/proxies/maxItems", ironmesh_api::MAX_ENROLLMENTS as u64),
        ("RevokeRequest/properties/proxies/maxItems", ironmesh_api::MAX_REVOCATIONS as u64),
        ("CredentialRequest/properties/lifetime/maximum", ironmesh_api::MAX_CREDENTIAL_LIFETIME),
        ("TokenRequest/properties/ttl/maximum", ironmesh_api::MAX_TOKEN_TTL),
        ("TokenRequest/properties/count/maximum", ironmesh_api::MAX_TOKENS as u64),
    ] {
        let found = document.pointer(&format!("/components/schemas/{pointer}"));
        assert_eq!(found, Some(&bound.into()), "{pointer}");
    }
}
