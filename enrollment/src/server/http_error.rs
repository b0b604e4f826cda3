//! The responses of HTTP: JSON of an answer or of an error, with its status.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::Full;
use serde::Serialize;

use super::enroller::EnrollmentError;
use crate::api::{EnrollmentErrorBody, EnrollmentErrorCode};

/// An error with its HTTP status.
#[derive(Debug)]
pub(super) struct HttpError {
    pub(super) status: StatusCode,
    pub(super) error: EnrollmentError,
}

impl HttpError {
    /// An invalid request with a status of its own.
    pub(super) fn invalid(status: StatusCode, problem: impl Into<String>) -> Self {
        Self { status, error: EnrollmentError::RequestInvalid(problem.into()) }
    }

    /// Whether it counts as a failure of its source: not, if the control plane is the cause.
    pub(super) fn is_charged(&self) -> bool {
        !matches!(self.error.code(), EnrollmentErrorCode::Busy | EnrollmentErrorCode::Unavailable)
    }

    pub(super) fn response(&self) -> Response<Full<Bytes>> {
        let body = EnrollmentErrorBody { error: self.error.to_string(), code: self.error.code() };
        json(self.status, serde_json::to_vec(&body).unwrap_or_default())
    }
}

impl From<EnrollmentError> for HttpError {
    fn from(error: EnrollmentError) -> Self {
        let status = match error.code() {
            EnrollmentErrorCode::RequestInvalid | EnrollmentErrorCode::Unknown => {
                StatusCode::BAD_REQUEST
            }
            EnrollmentErrorCode::TokenRejected
            | EnrollmentErrorCode::AddressRejected
            | EnrollmentErrorCode::CertificateRejected
            | EnrollmentErrorCode::AttestationRejected
            | EnrollmentErrorCode::MachineRejected
            | EnrollmentErrorCode::Revoked => StatusCode::FORBIDDEN,
            EnrollmentErrorCode::ChallengeRejected => StatusCode::CONFLICT,
            EnrollmentErrorCode::Busy | EnrollmentErrorCode::Unavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        Self { status, error }
    }
}

/// The response with an answer.
pub(super) fn answer(answer: &impl Serialize) -> Result<Response<Full<Bytes>>, HttpError> {
    let body = serde_json::to_vec(answer)
        .map_err(|error| EnrollmentError::Unavailable(error.to_string()))?;
    Ok(json(StatusCode::OK, body))
}

fn json(status: StatusCode, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let content_type = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
