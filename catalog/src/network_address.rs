//! The schemas of addresses: types of the standard library, whose fields name these in their place.

use std::borrow::Cow;

use utoipa::openapi::schema::{AnyOf, ObjectBuilder, Schema, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

/// An IP address in JSON: the schema of a field of type [`std::net::IpAddr`].
#[derive(Debug)]
pub struct IpAddress;

/// An IP address and a port in JSON: the schema of a field of type [`std::net::SocketAddr`].
#[derive(Debug)]
pub struct SocketAddress;

impl PartialSchema for IpAddress {
    fn schema() -> RefOr<Schema> {
        let known = |version| {
            let format = SchemaFormat::KnownFormat(version);
            let text = ObjectBuilder::new().schema_type(Type::String).format(Some(format));
            RefOr::from(Schema::Object(text.build()))
        };
        let mut either = AnyOf::new();
        either.items = vec![known(KnownFormat::Ipv4), known(KnownFormat::Ipv6)];
        either.description = Some("An IP address.".to_owned());
        Schema::AnyOf(either).into()
    }
}

impl ToSchema for IpAddress {
    fn name() -> Cow<'static, str> {
        "IpAddress".into()
    }
}

impl PartialSchema for SocketAddress {
    fn schema() -> RefOr<Schema> {
        let description =
            "An IP address and a port, such as `10.0.0.1:15003` or `[2001:db8::1]:15003`.";
        ObjectBuilder::new().schema_type(Type::String).description(Some(description)).into()
    }
}

impl ToSchema for SocketAddress {
    fn name() -> Cow<'static, str> {
        "SocketAddress".into()
    }
}
