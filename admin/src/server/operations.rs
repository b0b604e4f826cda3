//! The operations of the API: a route exists by its row here, with the permission that it needs.
//!
//! The table is the only place that decides who may do what. Handlers decide nothing about rights; where an answer
//! depends on them, as lines of policy do, they ask their principal.

use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use hyper::body::Body as _;
use tokio::time::timeout;

use super::error::{no_such_method, no_such_path};
use super::openapi::{Described, Description};
use super::principal::{Permission, Principal};
use super::work_queues::WorkQueues;
use super::{ApiError, Shared};

/// The most bytes of a question as JSON: all of [`ironmesh_analysis::Request::MAX_BYTES`], if every byte is escaped.
const MAX_BODY: usize = 512 << 10;

/// How long most requests may take.
const LIMIT: Duration = Duration::from_secs(60);

/// An operation of the API.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// Its name, unique among all.
    pub id: &'static str,
    /// The method of its requests.
    pub method: &'static Method,
    /// The path of its requests, with parameters in braces.
    pub path: &'static str,
    /// What it needs.
    pub permission: Permission,
    /// The most bytes of a request's body.
    pub max_body: usize,
    /// How long a request may take, including its upload.
    pub limit: Duration,
}

impl Operation {
    /// An operation that reads.
    pub(super) const fn get(id: &'static str, path: &'static str, permission: Permission) -> Self {
        Self { id, method: &Method::GET, path, permission, max_body: MAX_BODY, limit: LIMIT }
    }

    /// An operation with a body.
    pub(super) const fn post(id: &'static str, path: &'static str, permission: Permission) -> Self {
        Self { method: &Method::POST, ..Self::get(id, path, permission) }
    }

    /// The same operation with a body of up to `max_body` bytes, and this limit of its time.
    pub(super) const fn with_body(self, max_body: usize, limit: Duration) -> Self {
        Self { max_body, limit, ..self }
    }
}

/// The routes of the API, and the operations that they serve.
pub(super) struct Routes {
    router: Router<Shared>,
    operations: Vec<(Operation, Description)>,
}

impl Routes {
    pub(super) fn new() -> Self {
        Self { router: Router::new(), operations: Vec::new() }
    }

    /// Adds the route of an operation.
    pub(super) fn add<H, T>(mut self, operation: Operation, handler: H) -> Self
    where
        H: Described<T>,
        T: 'static,
    {
        let method =
            if *operation.method == Method::GET { MethodFilter::GET } else { MethodFilter::POST };
        let route = on(method, handler)
            .layer(DefaultBodyLimit::max(operation.max_body))
            .layer(middleware::from_fn_with_state(operation, authorize));
        self.router = self.router.route(operation.path, route);
        self.operations.push((operation, Description::of::<T, H>()));
        self
    }

    /// The router of all routes; what is none of them gets an error like theirs.
    pub(super) fn router(self) -> Router<Shared> {
        self.router.fallback(no_such_path).method_not_allowed_fallback(no_such_method)
    }

    /// The operations, in the order of the table.
    pub(super) fn operations(self) -> Vec<Operation> {
        self.operations.into_iter().map(|(operation, _)| operation).collect()
    }

    /// The operations, with what their handlers read and answer.
    pub(super) fn described(&self) -> &[(Operation, Description)] {
        &self.operations
    }
}

/// Compares the principal of a request with what its operation needs, and bounds its time.
async fn authorize(
    State(operation): State<Operation>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let Operation { id, permission, max_body, limit, .. } = operation;
    if permission != Permission::Probe {
        let principal: &Principal =
            request.extensions().get().ok_or_else(ApiError::unauthenticated)?;
        if !principal.may(permission) {
            return Err(ApiError::Forbidden(principal.rejection(permission, id)));
        }
    }
    // A client that announces too much would else keep its place until its time is over.
    if request.body().size_hint().lower() > max_body as u64 {
        return Err(ApiError::Http {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            message: format!("the body of `{id}` may have {max_body} bytes at most"),
        });
    }
    // Before the body is read: many large ones would fill the memory.
    let _large = if max_body > MAX_BODY { Some(WorkQueues::large_body(&request)?) } else { None };
    timeout(limit, next.run(request)).await.map_err(|_| ApiError::Http {
        status: StatusCode::REQUEST_TIMEOUT,
        message: format!(
            "`{id}` took longer than {} s. A change may still take effect: check before you repeat it",
            limit.as_secs()
        ),
    })
}
