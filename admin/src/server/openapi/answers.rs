//! The answers of handlers besides JSON with status 200.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, SET_COOKIE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{Content, RefOr};

use super::super::work_queues::JsonBody;
use super::{Description, Output};

/// The response to the creation of an object.
pub(in super::super) struct Created<T>(pub(in super::super) JsonBody<T>);

impl<T> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, self.0).into_response()
    }
}

impl<T: ToSchema> Output for Created<T> {
    fn describe(description: &mut Description) {
        let schema = description.refer::<T>();
        description.respond(StatusCode::CREATED, schema, "application/json");
    }
}

/// An answer that sets or removes the cookie of a session.
pub(in super::super) struct WithCookie<T> {
    pub(in super::super) cookie: HeaderValue,
    pub(in super::super) body: JsonBody<T>,
}

impl<T> IntoResponse for WithCookie<T> {
    fn into_response(self) -> Response {
        ([(SET_COOKIE, self.cookie)], self.body).into_response()
    }
}

impl<T: ToSchema> Output for WithCookie<T> {
    fn describe(description: &mut Description) {
        JsonBody::<T>::describe(description);
    }
}

/// The report of readiness, whose status tells whether the control plane is ready.
pub(in super::super) struct ReadinessReport {
    pub(in super::super) is_ready: bool,
    pub(in super::super) report: JsonBody<ironmesh_api::Readiness>,
}

impl IntoResponse for ReadinessReport {
    fn into_response(self) -> Response {
        let status = if self.is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, self.report).into_response()
    }
}

impl Output for ReadinessReport {
    fn describe(description: &mut Description) {
        let schema = description.refer::<ironmesh_api::Readiness>();
        for status in [StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE] {
            description.respond(status, schema.clone(), "application/json");
        }
    }
}

/// The metrics, in the OpenMetrics text format.
pub(in super::super) struct OpenMetrics(pub(in super::super) Bytes);

impl OpenMetrics {
    const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
}

impl IntoResponse for OpenMetrics {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, Self::CONTENT_TYPE)], self.0).into_response()
    }
}

impl Output for OpenMetrics {
    fn describe(description: &mut Description) {
        description.respond_with_text(Self::CONTENT_TYPE);
    }
}

/// The bytes of a file.
pub(in super::super) struct OctetStream(pub(in super::super) axum::body::Body);

impl OctetStream {
    const CONTENT_TYPE: &str = "application/octet-stream";
}

impl IntoResponse for OctetStream {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, Self::CONTENT_TYPE)], self.0).into_response()
    }
}

impl Output for OctetStream {
    fn describe(description: &mut Description) {
        description.responses.push((
            StatusCode::OK,
            Content::new(None::<RefOr<Schema>>),
            Self::CONTENT_TYPE,
        ));
    }
}

/// A stream of server-sent events.
pub(in super::super) struct EventStream(pub(in super::super) axum::body::Body);

impl EventStream {
    const CONTENT_TYPE: &str = "text/event-stream";
}

impl IntoResponse for EventStream {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, Self::CONTENT_TYPE), (CACHE_CONTROL, "no-store")], self.0).into_response()
    }
}

impl Output for EventStream {
    /// The schema is that of one event.
    fn describe(description: &mut Description) {
        let text = || ObjectBuilder::new().schema_type(Type::String);
        let event = ObjectBuilder::new()
            .schema_type(Type::Object)
            .property("id", text())
            .property("event", text())
            .property("data", text())
            .required("event")
            .required("data");
        description.respond(StatusCode::OK, Schema::from(event).into(), Self::CONTENT_TYPE);
    }
}

/// The document.
pub(in super::super) struct Document(pub(super) &'static str);

impl IntoResponse for Document {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

impl Output for Document {
    fn describe(description: &mut Description) {
        let object = ObjectBuilder::new().schema_type(Type::Object);
        description.respond(StatusCode::OK, object.into(), "application/json");
    }
}
