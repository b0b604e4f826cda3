//! The document itself, made of the table of operations.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::{Method, StatusCode};
use ironmesh_api::ErrorBody;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::path::{
    HttpMethod, Operation as OperationObject, OperationBuilder, Parameter, ParameterIn, PathItem,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{Components, Schema};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    Content, Info, OpenApi, Paths, Ref, RefOr, Required, Response, ResponseBuilder,
};

use super::super::operations::{Operation, Routes};
use super::super::principal::Permission;
use super::super::session_cookie;
use super::Description;
use super::summaries::summary;

/// The name of the security scheme of tokens.
const TOKEN: &str = "token";

/// The name of the security scheme of operator certificates.
const CERTIFICATE: &str = "certificate";

/// The name of the security scheme of browsers' sessions.
const SESSION: &str = "session";

/// What the API is, for readers of the document.
const ABOUT: &str = "The API of a control plane. The admin socket, the admin port and `listen.api` serve it. \
    Each operation needs a permission (`x-permission`), which docs/reference/roles.md lists by role. \
    Only `listen.api` requires a credential: an operator certificate, a token, or the session of a browser.";

/// The OpenAPI document of all routes. Its keys are sorted, so that it depends on the table alone.
pub(in super::super) fn document(routes: &Routes) -> Value {
    let mut schemas = BTreeMap::from([(ErrorBody::name().into_owned(), error_schema())]);
    let mut paths = Paths::new();
    for (operation, description) in routes.described() {
        schemas.extend(description.schemas.iter().cloned());
        let item = PathItem::new(http_method(operation), object(operation, description));
        match paths.paths.get_mut(operation.path) {
            Some(path) => path.merge_operations(item),
            None => drop(paths.paths.insert(operation.path.to_owned(), item)),
        }
    }
    let mut components = Components::new();
    components.schemas = schemas;
    let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    components.add_security_scheme(TOKEN, token);
    let certificate =
        SecurityScheme::MutualTls { description: None, deprecated: None, extensions: None };
    components.add_security_scheme(CERTIFICATE, certificate);
    let cookie = SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::new(session_cookie::NAME)));
    components.add_security_scheme(SESSION, cookie);
    let mut info = Info::new("Ironmesh", env!("CARGO_PKG_VERSION"));
    info.description = Some(ABOUT.to_owned());
    let mut document = OpenApi::new(info, paths);
    document.components = Some(components);
    let mut document = json!(document);
    correct(&mut document);
    correct_queries(&mut document);
    document.sort_all_objects();
    document
}

fn error_schema() -> RefOr<Schema> {
    <ErrorBody as utoipa::PartialSchema>::schema()
}

fn http_method(operation: &Operation) -> HttpMethod {
    if *operation.method == Method::GET { HttpMethod::Get } else { HttpMethod::Post }
}

fn object(operation: &Operation, description: &Description) -> OperationObject {
    let Operation { id, path, permission, .. } = *operation;
    let area = path.trim_start_matches("/v1").split('/').nth(1).unwrap_or_default();
    let mut object = OperationBuilder::new()
        .operation_id(Some(id))
        .tag(area)
        .summary(summary(id))
        .extensions(Some([("x-permission", permission.word())].into_iter().collect()));
    if permission == Permission::Probe {
        object = object.security(SecurityRequirement::default());
    } else {
        for scheme in [TOKEN, CERTIFICATE, SESSION] {
            object = object.security(SecurityRequirement::new(scheme, [] as [&str; 0]));
        }
    }
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    for (name, schema) in names.zip(&description.path) {
        let mut parameter = Parameter::new(name);
        parameter.parameter_in = ParameterIn::Path;
        parameter.schema = Some(schema.clone());
        object = object.parameter(parameter);
    }
    for parameter in &description.query {
        object = object.parameter(parameter.clone());
    }
    if let Some(schema) = &description.body {
        let body = RequestBodyBuilder::new().required(Some(Required::True));
        let body = body.content("application/json", Content::new(Some(schema.clone())));
        object = object.request_body(Some(body.build()));
    }
    for (status, response) in responses(operation, description) {
        object = object.response(status.as_str(), response);
    }
    object.build()
}

/// The responses of an operation: those of its handler, and the errors that can occur.
fn responses(operation: &Operation, description: &Description) -> BTreeMap<StatusCode, Response> {
    // A bad credential, a foreign host, a lack of time, a defect, and a full queue.
    let mut errors = BTreeSet::from([
        StatusCode::UNAUTHORIZED,
        StatusCode::MISDIRECTED_REQUEST,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::INTERNAL_SERVER_ERROR,
        StatusCode::SERVICE_UNAVAILABLE,
    ]);
    if operation.permission != Permission::Probe {
        errors.insert(StatusCode::FORBIDDEN);
    }
    if *operation.method == Method::POST {
        // The state does not allow the change, or a page of another site sends it.
        errors.extend([StatusCode::CONFLICT, StatusCode::FORBIDDEN]);
    }
    errors.extend(&description.errors);
    let error = Content::new(Some(Ref::from_schema_name(ErrorBody::name())));
    let errors = errors.into_iter().map(|status| (status, error.clone(), "application/json"));
    let own = description.responses.iter().cloned();
    // The later replaces the earlier.
    errors
        .chain(own)
        .map(|(status, content, content_type)| {
            let reason = status.canonical_reason().unwrap_or_default();
            let response =
                ResponseBuilder::new().description(reason).content(content_type, content);
            (status, response.build())
        })
        .collect()
}

/// Corrects what derived schemas have: the names of the formats of unsigned integers, which get their bounds, the length of
/// tuples, and the form of descriptions, which are doc comments of the code.
fn correct(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let unsigned = match fields.get("format").and_then(Value::as_str) {
                Some("u-int8") => Some(("uint8", u64::from(u8::MAX))),
                Some("u-int16") => Some(("uint16", u64::from(u16::MAX))),
                Some("u-int32") => Some(("uint32", u64::from(u32::MAX))),
                Some("u-int64") => Some(("uint64", u64::MAX)),
                _ => None,
            };
            if let Some((format, bound)) = unsigned {
                fields.insert("format".to_owned(), format.into());
                fields.entry("maximum").or_insert(bound.into());
            }
            if let Some(length) = fields.get("prefixItems").and_then(Value::as_array).map(Vec::len)
            {
                fields.insert("minItems".to_owned(), length.into());
            }
            if let Some(Value::String(description)) = fields.get_mut("description") {
                let paragraphs = description.split("\n\n").map(|one| one.replace('\n', " "));
                let text = paragraphs.collect::<Vec<_>>().join("\n\n");
                *description = super::descriptions::for_readers(&text);
            }
            fields.values_mut().for_each(correct);
        }
        Value::Array(items) => items.iter_mut().for_each(correct),
        _ => {}
    }
}

/// The schema of a parameter of a query, which can be absent and never null.
fn without_null(schema: &mut Value) {
    let is_null = |one: &Value| *one == "null" || one["type"] == "null";
    for key in ["type", "oneOf"] {
        if let Some(kinds) = schema.get_mut(key).and_then(Value::as_array_mut) {
            kinds.retain(|one| !is_null(one));
            if let [only] = &mut kinds[..] {
                let only = only.take();
                if key == "type" {
                    schema[key] = only;
                } else {
                    *schema = only;
                }
            }
        }
    }
}

/// Corrects the queries of all operations.
fn correct_queries(document: &mut Value) {
    let paths = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    let operations = paths.filter_map(Value::as_object_mut).flat_map(|path| path.values_mut());
    for operation in operations {
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            if let Some(schema) = parameter.get_mut("schema") {
                without_null(schema);
            }
        }
    }
}
