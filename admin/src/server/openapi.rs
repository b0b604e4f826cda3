//! The OpenAPI document of the API, which describes each operation by the types of its handler.
//!
//! What a handler extracts is what the operation reads, and what it returns is its response. So the document cannot declare
//! what no handler uses, and a handler without a description does not compile.

mod answers;
mod descriptions;
mod document;
mod summaries;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use axum::extract::{Extension, Request, State};
use axum::handler::Handler;
use axum::http::StatusCode;
use utoipa::openapi::path::{Parameter as ParameterObject, ParameterIn};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Content, Ref, RefOr};
use utoipa::{IntoParams, PartialSchema, ToSchema};

pub(super) use answers::{
    Created, Document, EventStream, OctetStream, OpenMetrics, ReadinessReport, WithCookie,
};
pub(super) use document::document;

use super::error::{Body, InQuery, Parameter, Question, ServiceInPath};
use super::principal::Principal;
use super::work_queues::{Changes, JsonBody, Reads};
use super::{ApiError, Shared, routes};

/// The document as JSON: it is the same as long as the process runs.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| document(&routes::routes()).to_string());

/// What a handler reads and answers.
#[derive(Default)]
pub(super) struct Description {
    /// The schemas of the path's parameters, in their order.
    path: Vec<RefOr<Schema>>,
    query: Vec<ParameterObject>,
    body: Option<RefOr<Schema>>,
    /// The responses that have no [`ironmesh_api::ErrorBody`].
    responses: Vec<(StatusCode, Content, &'static str)>,
    errors: Vec<StatusCode>,
    /// The named schemas to which the others refer.
    schemas: Vec<(String, RefOr<Schema>)>,
}

impl Description {
    /// The description of a handler.
    pub(super) fn of<T, H: Described<T>>() -> Self {
        let mut description = Self::default();
        H::describe(&mut description);
        description
    }

    /// A reference to the schema of a type.
    fn refer<T: ToSchema>(&mut self) -> RefOr<Schema> {
        let name = T::name().into_owned();
        self.schemas.push((name.clone(), T::schema()));
        T::schemas(&mut self.schemas);
        Ref::from_schema_name(name).into()
    }

    /// Adds a response that is text.
    pub(super) fn respond_with_text(&mut self, content_type: &'static str) {
        self.respond(StatusCode::OK, String::schema(), content_type);
    }

    fn respond(&mut self, status: StatusCode, schema: RefOr<Schema>, content_type: &'static str) {
        self.responses.push((status, Content::new(Some(schema)), content_type));
    }
}

/// A handler that describes itself.
pub(super) trait Described<T>: Handler<T, Shared> {
    /// Adds what the handler reads and answers.
    fn describe(description: &mut Description);
}

/// What a handler extracts from a request.
pub(super) trait Input {
    /// Adds what is read of the request.
    fn describe(description: &mut Description);
}

/// What a handler answers.
pub(super) trait Output {
    /// Adds the responses.
    fn describe(description: &mut Description);
}

macro_rules! describe_handlers {
    ($($input:ident),*) => {
        impl<H, F, O, M, $($input),*> Described<(M, $($input,)*)> for H
        where
            H: Handler<(M, $($input,)*), Shared> + Fn($($input),*) -> F,
            F: Future<Output = O>,
            O: Output,
            $($input: Input,)*
        {
            fn describe(description: &mut Description) {
                $($input::describe(description);)*
                O::describe(description);
            }
        }
    };
}

impl<H, F, O> Described<((),)> for H
where
    H: Handler<((),), Shared> + Fn() -> F,
    F: Future<Output = O>,
    O: Output,
{
    fn describe(description: &mut Description) {
        O::describe(description);
    }
}

describe_handlers!(A);
describe_handlers!(A, B);
describe_handlers!(A, B, C);
describe_handlers!(A, B, C, D);
describe_handlers!(A, B, C, D, E);

impl<S> Input for State<S> {
    fn describe(_: &mut Description) {}
}

impl<T> Input for Extension<T> {
    fn describe(_: &mut Description) {}
}

impl Input for Principal {
    fn describe(_: &mut Description) {}
}

/// For its headers and its client.
impl Input for Request {
    fn describe(_: &mut Description) {}
}

impl Input for Reads {
    fn describe(_: &mut Description) {}
}

impl Input for Changes {
    fn describe(_: &mut Description) {}
}

impl<T: Input> Input for Option<T> {
    fn describe(description: &mut Description) {
        T::describe(description);
    }
}

impl<T: ToSchema> Input for Body<T> {
    fn describe(description: &mut Description) {
        description.body = Some(description.refer::<T>());
        description.errors.extend([
            StatusCode::BAD_REQUEST,
            // An object that the body names.
            StatusCode::NOT_FOUND,
            StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            StatusCode::UNPROCESSABLE_ENTITY,
        ]);
    }
}

impl<T: Input, E> Input for Result<T, E> {
    fn describe(description: &mut Description) {
        T::describe(description);
    }
}

impl<T: ToSchema> Input for Parameter<T> {
    fn describe(description: &mut Description) {
        let schema = description.refer::<T>();
        description.path.push(schema);
        description.errors.extend([StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND]);
    }
}

impl Input for ServiceInPath {
    fn describe(description: &mut Description) {
        Parameter::<ironmesh_catalog::Name>::describe(description);
        Parameter::<ironmesh_catalog::Name>::describe(description);
    }
}

impl<T: IntoParams> Input for InQuery<T> {
    fn describe(description: &mut Description) {
        description.query.extend(T::into_params(|| Some(ParameterIn::Query)));
        // The second is for an object that the query names.
        description.errors.extend([StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND]);
    }
}

impl<T: ToSchema> Input for Question<T> {
    fn describe(description: &mut Description) {
        let content = Content::new(Some(description.refer::<T>()));
        let question = ParameterObject::builder()
            .name("question")
            .parameter_in(ParameterIn::Query)
            .required(utoipa::openapi::Required::True)
            .description(Some("The question, as JSON."))
            .content("application/json", content);
        description.query.push(question.build());
        description.errors.push(StatusCode::BAD_REQUEST);
    }
}

impl<T: Output> Output for Result<T, ApiError> {
    fn describe(description: &mut Description) {
        T::describe(description);
    }
}

impl<T: ToSchema> Output for JsonBody<T> {
    fn describe(description: &mut Description) {
        let schema = description.refer::<T>();
        description.respond(StatusCode::OK, schema, "application/json");
    }
}

impl Output for &'static str {
    fn describe(description: &mut Description) {
        description.respond_with_text("text/plain");
    }
}

/// `/v1/openapi.json`.
pub(super) async fn openapi(_: Principal) -> Document {
    Document(&DOCUMENT)
}
