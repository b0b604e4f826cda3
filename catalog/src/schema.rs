//! The schemas of types that are text in JSON, for the OpenAPI document of the API. All other types derive theirs.

use std::borrow::Cow;

use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

use crate::{
    Code, Domain, DriverName, IpRange, Labels, LogDirectives, Name, ObjectRef, OperatorName,
    OutsideAuthority, OutsideHost, PolicyRevision, ProxyId, ProxyName, Secret, ServiceAccount,
    ServiceName, SilenceId, SpiffeId, TokenId,
};

/// Implements the schema of types that are text.
macro_rules! text {
    ($($type:ident: $text:expr, $description:literal;)*) => {$(
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                let text: ObjectBuilder = $text;
                text.schema_type(Type::String).description(Some($description)).into()
            }
        }

        impl ToSchema for $type {
            fn name() -> Cow<'static, str> {
                stringify!($type).into()
            }
        }
    )*};
}

/// A [`Name`].
macro_rules! label {
    () => {
        "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
    };
}

/// What a [`ProxyName`] and an [`OperatorName`] are, whatever their length.
macro_rules! hostname {
    () => {
        "[a-z0-9]([a-z0-9._-]*[a-z0-9])?"
    };
}

text! {
    Name: pattern(concat!("^", label!(), "$")), "A DNS label.";
    ServiceName: pattern(concat!("^(", label!(), "/)?", label!(), "$")), "The name of a service: `namespace/name`. Requests may omit the namespace `default`.";
    ServiceAccount: pattern(concat!("^(", label!(), "/)?", label!(), "$")), "The name of a service account: `namespace/name`. Requests may omit the namespace `default`.";
    Domain: pattern(concat!("^", label!(), "([.]", label!(), ")*$")), "A DNS domain.";
    DriverName: pattern(concat!("^", label!(), "$")), "The name of a sidecar driver.";
    ProxyName: pattern(concat!("^", hostname!(), "$")).max_length(Some(ProxyName::MAX_LENGTH)), "The name of a proxy.";
    OperatorName: pattern(concat!("^", hostname!(), "$")).max_length(Some(OperatorName::MAX_LENGTH)), "The name of an operator.";
    ProxyId: format(SchemaFormat::KnownFormat(KnownFormat::Uuid)), "The UUID of a proxy.";
    TokenId: pattern("^[0-9a-f]{16}$"), "The public part of a token.";
    SilenceId: pattern("^[0-9a-f]{8}$"), "The name of a silence.";
    Code: pattern("^IM[0-9]{4}$"), "The code of a finding.";
    ObjectRef: ObjectBuilder::new().max_length(Some(ObjectRef::MAX_BYTES)), "An object of the mesh: its kind and name.";
    IpRange: ObjectBuilder::new(), "A range of IP addresses, such as `10.1.0.0/16`.";
    LogDirectives: ObjectBuilder::new(), "A level of the log, with levels of targets.";
    PolicyRevision: ObjectBuilder::new(), "A revision of policy.";
    SpiffeId: pattern("^spiffe://"), "A SPIFFE ID.";
    Secret: ObjectBuilder::new(), "A secret.";
    OutsideHost: ObjectBuilder::new(), "A host outside of the mesh: a DNS name or an IP address.";
    OutsideAuthority: ObjectBuilder::new(), "A host outside of the mesh, and a port.";
}

fn pattern(pattern: &str) -> ObjectBuilder {
    ObjectBuilder::new().pattern(Some(pattern))
}

fn format(format: SchemaFormat) -> ObjectBuilder {
    ObjectBuilder::new().format(Some(format))
}

impl PartialSchema for Labels {
    fn schema() -> RefOr<Schema> {
        let values = AdditionalProperties::from(ObjectBuilder::new().schema_type(Type::String));
        ObjectBuilder::new()
            .description(Some("Labels, by which policy selects endpoints and proxies."))
            .additional_properties(Some(values))
            .into()
    }
}

impl ToSchema for Labels {
    fn name() -> Cow<'static, str> {
        "Labels".into()
    }
}
