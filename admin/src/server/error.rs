//! The errors of API requests, and their responses.
//!
//! Each response of the API that is no success has the same body, also those of the HTTP library's own checks.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ironmesh_api::ErrorBody;
use ironmesh_catalog::{Name, ServiceName};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::rejection::{of_body, of_query, of_question};

/// The error of an admin API request.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The request is invalid.
    #[error("{0}")]
    BadRequest(String),
    /// The request has no valid credential.
    #[error("{0}")]
    Unauthenticated(String),
    /// The principal has no right to do this.
    #[error("{0}")]
    Forbidden(String),
    /// The named object does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The present state does not allow the change.
    #[error("{0}")]
    Conflict(String),
    /// HTTP itself rejects the request: its method, its type or its size.
    #[error("{message}")]
    Http {
        /// The status of the response.
        status: StatusCode,
        /// What is wrong, and what to do.
        message: String,
    },
    /// The control plane is busy, or not ready.
    #[error("{0}")]
    Busy(String),
    /// The control plane failed.
    #[error("{0}")]
    Internal(String),
}

impl ApiError {
    /// The error of a request without a credential.
    pub(super) fn unauthenticated() -> Self {
        Self::Unauthenticated(
            "this listener needs a credential: an operator certificate, or `Authorization: Bearer` with a token; \
             an admin creates them by `ironmesh operator`"
                .to_owned(),
        )
    }

    fn http(status: StatusCode, message: impl Into<String>) -> Self {
        Self::Http { status, message: message.into() }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Http { status, .. } => *status,
            Self::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = (status, Json(ErrorBody { error: self.to_string() })).into_response();
        if status == StatusCode::UNAUTHORIZED {
            // RFC 9110, section 11.6.1: a 401 names a scheme.
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// A JSON object. Derived types accept an array of all their fields, too, which is a mistake of the client: `[null]` would
/// be a valid request where all keys are optional.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// A body in JSON.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let body: Result<Json<Object<T>>, JsonRejection> = Json::from_request(request, state).await;
        body.map(|Json(Object(body))| Self(body)).map_err(|rejected| of_body(&rejected))
    }
}

/// The one parameter of a path.
#[derive(Debug)]
pub(super) struct Parameter<T>(pub(super) T);

impl<S, T> FromRequestParts<S> for Parameter<T>
where
    S: Send + Sync,
    T: FromStr<Err: Display>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let text: String = path_of(parts, state).await?;
        text.parse().map(Self).map_err(|invalid: T::Err| ApiError::BadRequest(invalid.to_string()))
    }
}

/// The service that a path names by its namespace and its name.
#[derive(Debug)]
pub(super) struct ServiceInPath(pub(super) ServiceName);

impl<S: Send + Sync> FromRequestParts<S> for ServiceInPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let (namespace, name): (String, String) = path_of(parts, state).await?;
        let name = Name::new(&namespace)
            .and_then(|namespace| Ok(ServiceName::new(namespace, Name::new(&name)?)));
        name.map(Self).map_err(|invalid| ApiError::BadRequest(invalid.to_string()))
    }
}

async fn path_of<T, S>(parts: &mut Parts, state: &S) -> Result<T, ApiError>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    let path: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, state).await;
    path.map(|Path(parameters)| parameters)
        .map_err(|rejected| ApiError::http(rejected.status(), rejected.body_text()))
}

/// The parameters of a query.
#[derive(Debug)]
pub(super) struct InQuery<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for InQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query: Result<Query<T>, QueryRejection> = Query::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(|rejected| of_query(&rejected))
    }
}

/// A question in the query, as JSON.
#[derive(Debug)]
pub(super) struct Question<T>(pub(super) T);

/// The query of a question.
#[derive(Debug, Deserialize)]
struct QuestionQuery {
    question: String,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Question<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let InQuery(QuestionQuery { question }) = InQuery::from_request_parts(parts, state).await?;
        serde_json::from_str(&question)
            .map(|Object(question)| Self(question))
            .map_err(|error| of_question(&error))
    }
}

/// The response to a path that does not exist.
pub(super) async fn no_such_path(request: Request) -> ApiError {
    let path: String = request.uri().path().chars().take(SHOWN).collect();
    ApiError::NotFound(format!("the API has no path `{}`", path.escape_debug()))
}

/// The response to a method that a path does not have. The router adds `Allow`.
pub(super) async fn no_such_method(request: Request) -> ApiError {
    let method: String = request.method().as_str().chars().take(SHOWN).collect();
    ApiError::http(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("this path has no method `{}`: `Allow` names those it has", method.escape_debug()),
    )
}

/// How many characters of a request an error repeats.
const SHOWN: usize = 64;
