//! The requests: routes, checks, and the calls of the `Enroller`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use ironmesh_catalog::ServiceSecret;
use ironmesh_cert::MachineRequest;
use ironmesh_cert::peer::VerifiedProxy;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::azure::enroll_azure;
use super::counters::RequestOutcome;
use super::credentials::EnrollmentCredentials;
use super::enroller::{Enrollment, EnrollmentError, ProxyRenewal, WorkloadRequest};
use super::http_error::{HttpError, answer};
use super::leave::{Question, ask, leave};
use super::nonces::NonceError;
use super::state::ListenerState;
use crate::api::{
    Challenge, EnrollRequest, Enrolled, ExpiredRenewalRequest, HealthAnswer, HealthReport,
    IssuedServiceCertificate, MAX_BODY, MAX_REASON, MAX_REPORTED_APPLICATIONS,
    MAX_REPORTED_BUCKETS, MAX_REPORTED_COUNT, MAX_REPORTED_FLOWS, RenewRequest,
    ReportedApplication, ServiceCertificateRequest, ServingAnswer, ServingReport, TrafficReport,
};
use crate::possession;
use ironmesh_listener::ClientSource;

/// A connected client.
pub(super) struct Client {
    pub(super) address: SocketAddr,
    pub(super) source: ClientSource,
    /// Its certificate in DER, which the TLS handshake has verified.
    pub(super) certificate: Option<Vec<u8>>,
    /// The credentials of its handshake.
    pub(super) credentials: Arc<EnrollmentCredentials>,
    /// Whether the head of its request has arrived.
    pub(super) has_sent_request: AtomicBool,
}

/// Answers one request, and counts the result.
pub(super) async fn respond(
    state: &Arc<ListenerState>,
    client: &Arc<Client>,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    client.has_sent_request.store(true, Ordering::Relaxed);
    match route(state, client, request).await {
        Ok((outcome, response)) => {
            state.counters.request(outcome);
            response
        }
        Err(error) => {
            let code = error.error.code();
            state.counters.request(RequestOutcome::Rejected(code));
            let address = client.address;
            tracing::debug!(%address, code = code.word(), reason = %error.error, "enrollment request rejected");
            if error.is_charged() {
                state.charge(client.source, code.word());
            }
            error.response()
        }
    }
}

async fn route(
    state: &Arc<ListenerState>,
    client: &Arc<Client>,
    request: Request<Incoming>,
) -> Result<(RequestOutcome, Response<Full<Bytes>>), HttpError> {
    let (head, body) = request.into_parts();
    let (outcome, enrolled) = match (head.method, head.uri.path()) {
        (Method::GET, "/v1/challenge") => {
            let nonce = state.nonces.issue().map_err(|_| {
                EnrollmentError::Unavailable("no random bytes for a challenge".to_owned())
            })?;
            return Ok((RequestOutcome::Challenged, answer(&Challenge { nonce })?));
        }
        (Method::POST, "/v1/enroll") => {
            (RequestOutcome::Enrolled, enroll(state, client, read(state, body).await?).await?)
        }
        (Method::POST, "/v1/enroll-azure") => {
            let request = read(state, body).await?;
            (RequestOutcome::EnrolledAzure, enroll_azure(state, client, request).await?)
        }
        (Method::POST, "/v1/renew") => {
            (RequestOutcome::Renewed, renew(state, client, read(state, body).await?).await?)
        }
        (Method::POST, "/v1/renew-expired") => {
            let request = read(state, body).await?;
            (RequestOutcome::RenewedExpired, renew_expired(state, client, request).await?)
        }
        (Method::POST, "/v1/service-certificates") => {
            let issued = issue_service_certificate(state, client, read(state, body).await?).await?;
            return Ok((RequestOutcome::ServiceCertificate, answer(&issued)?));
        }
        (Method::POST, "/v1/serving") => {
            let answered = record_serving(state, client, read(state, body).await?).await?;
            return Ok((RequestOutcome::Serving, answer(&answered)?));
        }
        (Method::POST, "/v1/health") => {
            let answered = record_health(state, client, read(state, body).await?).await?;
            return Ok((RequestOutcome::Health, answer(&answered)?));
        }
        (Method::POST, "/v1/leave") => {
            let result = leave(state, client, read(state, body).await?).await?;
            return Ok((RequestOutcome::Leaving, answer(&result)?));
        }
        (Method::POST, "/v1/rejoin") => {
            let status = ask(state, client, Question::Rejoin).await?;
            return Ok((RequestOutcome::Rejoined, answer(&status)?));
        }
        (Method::GET, "/v1/proxy") => {
            let status = ask(state, client, Question::Status).await?;
            return Ok((RequestOutcome::ProxyStatus, answer(&status)?));
        }
        (method, _) => {
            let paths = "GET /v1/challenge, /v1/proxy, POST /v1/enroll, /v1/enroll-azure, /v1/renew, /v1/renew-expired, /v1/service-certificates, /v1/serving, /v1/health, /v1/leave, /v1/rejoin";
            let problem = format!("{method} is not served at this path: this port has {paths}");
            return Err(HttpError::invalid(StatusCode::NOT_FOUND, problem));
        }
    };
    Ok((outcome, answer(&enrolled)?))
}

/// Reads the body, within its limits of size and time.
async fn read<T: DeserializeOwned>(state: &ListenerState, body: Incoming) -> Result<T, HttpError> {
    let too_large = || {
        let problem = format!("request is larger than {MAX_BODY} bytes");
        HttpError::invalid(StatusCode::PAYLOAD_TOO_LARGE, problem)
    };
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    let collected = timeout(state.limits.request_time, Limited::new(body, MAX_BODY).collect());
    let collected = collected.await.map_err(|_| {
        HttpError::invalid(StatusCode::REQUEST_TIMEOUT, "request body did not arrive in time")
    })?;
    let body = collected.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => too_large(),
        None => HttpError::invalid(StatusCode::BAD_REQUEST, "request body is incomplete"),
    })?;
    // The error names positions, not content, which may be a token.
    serde_json::from_slice(&body.to_bytes()).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let problem = format!(
            "request body is not the expected JSON ({:?} error at line {line}, column {column})",
            error.classify()
        );
        HttpError::invalid(StatusCode::BAD_REQUEST, problem)
    })
}

async fn enroll(
    state: &Arc<ListenerState>,
    client: &Arc<Client>,
    request: EnrollRequest,
) -> Result<Enrolled, HttpError> {
    let (enroller, peer) = (Arc::clone(&state.enroller), client.address);
    let EnrollRequest { token, certificate_request, address, name } = request;
    let work = move || {
        let request = checked(&certificate_request)?;
        Ok(enroller.enroll(Enrollment { token, request, address, name }, peer)?)
    };
    state.queue.run(work).await
}

async fn renew(
    state: &Arc<ListenerState>,
    client: &Arc<Client>,
    request: RenewRequest,
) -> Result<Enrolled, HttpError> {
    let (enroller, client) = (Arc::clone(&state.enroller), Arc::clone(client));
    let work = move || {
        let proxy = presented(&client)?;
        let request = checked(&request.certificate_request)?;
        Ok(enroller.renew(ProxyRenewal { proxy, request }, client.address)?)
    };
    state.queue.run(work).await
}

async fn issue_service_certificate(
    state: &Arc<ListenerState>,
    client: &Arc<Client>,
    request: ServiceCertificateRequest,
) -> Result<IssuedServiceCertificate, HttpError> {
    let (enroller, client) = (Arc::clone(&state.enroller), Arc::clone(client));
    let work = move || {
        let proxy = presented(&client)?;
        let invalid = |problem: String| EnrollmentError::RequestInvalid(problem);
        let secret = request.secret.parse::<ServiceSecret>();
        let secret = secret.map_err(|error| invalid(error.to_string()))?;
        let request = checked(&request.csr)?;
        // Peers see the key of a service certificate as that of a workload: a proxy's key identifies its machine.
        if request.public_key() == proxy.public_key {
            let problem = "certificate signing request is for the key of the proxy: create another key for the service certificate";
            return Err(invalid(problem.to_owned()).into());
        }
        let request = WorkloadRequest { proxy, secret, request };
        Ok(enroller.issue_service_certificate(request, client.address)?)
    };
    state.queue.run(work).await
}

async fn record_serving(
    state: &Arc<ListenerState>,
    client: &Arc<Client>,
    report: ServingReport,
) -> Result<ServingAnswer, HttpError> {
    let (enroller, client) = (Arc::clone(&state.enroller), Arc::clone(client));
    let work = move || {
        let proxy = presented(&client)?;
        Ok(enroller.record_serving(&proxy, report, client.address)?)
    };
    state.queue.run(work).await
}

async fn record_health(
    state: &Arc<ListenerState>,
    client: &Arc<Client>,
    report: HealthReport,
) -> Result<HealthAnswer, HttpError> {
    let is_short = |one: &ReportedApplication| {
        one.reason
            .as_ref()
            .is_none_or(|reason| reason.chars().take(MAX_REASON + 1).count() <= MAX_REASON)
    };
    if report.applications.len() > MAX_REPORTED_APPLICATIONS
        || !report.applications.iter().all(is_short)
    {
        let problem = format!(
            "a report has at most {MAX_REPORTED_APPLICATIONS} applications, with a reason of at most {MAX_REASON} characters each"
        );
        return Err(EnrollmentError::RequestInvalid(problem).into());
    }
    if !report.traffic.as_ref().is_none_or(TrafficReport::is_within_bounds) {
        let problem = format!(
            "a report has traffic of at most {MAX_REPORTED_FLOWS} service ports in each direction, {MAX_REPORTED_BUCKETS} buckets of latencies, and counts up to {MAX_REPORTED_COUNT}"
        );
        return Err(EnrollmentError::RequestInvalid(problem).into());
    }
    let (enroller, client) = (Arc::clone(&state.enroller), Arc::clone(client));
    let work = move || {
        let proxy = presented(&client)?;
        Ok(enroller.record_health(&proxy, report, client.address)?)
    };
    state.queue.run(work).await
}

/// The proxy that the client certificate of the TLS handshake identifies.
pub(super) fn presented(client: &Client) -> Result<VerifiedProxy, EnrollmentError> {
    let certificate = client.certificate.as_ref().ok_or_else(|| {
        let problem = "this request needs the proxy's current client certificate in the TLS handshake; renew an expired one at /v1/renew-expired";
        EnrollmentError::CertificateRejected(problem.to_owned())
    })?;
    client.credentials.proxies.connected(certificate).map_err(|error| rejected(&error))
}

async fn renew_expired(
    state: &Arc<ListenerState>,
    client: &Arc<Client>,
    request: ExpiredRenewalRequest,
) -> Result<Enrolled, HttpError> {
    // First, so that each attempt costs a challenge.
    state.nonces.redeem(&request.nonce).map_err(|error| match error {
        NonceError::Rejected => EnrollmentError::ChallengeRejected,
        NonceError::Full => {
            EnrollmentError::Busy("too many renewals of expired certificates: try again".to_owned())
        }
    })?;
    let (enroller, client) = (Arc::clone(&state.enroller), Arc::clone(client));
    let work = move || {
        let renewal = proved(&request, &client.credentials, Timestamp::now())?;
        Ok(enroller.renew_expired(renewal, client.address)?)
    };
    state.queue.run(work).await
}

/// Checks the proof of possession: the certificate is this mesh's, the request is for its key, and the key has signed
/// nonce, request, certificate and control plane.
fn proved(
    request: &ExpiredRenewalRequest,
    credentials: &EnrollmentCredentials,
    now: Timestamp,
) -> Result<ProxyRenewal, EnrollmentError> {
    let proxy = credentials.proxies.verify(&request.certificate, now);
    let proxy: VerifiedProxy = proxy.map_err(|error| rejected(&error))?;
    let certificate_request = checked(&request.certificate_request)?;
    if certificate_request.public_key() != proxy.public_key {
        let problem = "certificate signing request is for another key than the expired certificate: use the same key; for a new key, enroll the machine again (with a token, or in Azure after a reimage)";
        return Err(EnrollmentError::CertificateRejected(problem.to_owned()));
    }
    let statement = possession::statement(
        &request.nonce,
        &request.certificate_request,
        &proxy.certificate,
        &credentials.control_plane,
    );
    let is_signed = statement.is_some_and(|statement| {
        possession::is_signed(&proxy.public_key, &statement, &request.signature)
    });
    if !is_signed {
        let problem = "signature is not that of the expired certificate's key over this request";
        return Err(EnrollmentError::CertificateRejected(problem.to_owned()));
    }
    Ok(ProxyRenewal { proxy, request: certificate_request })
}

pub(super) fn checked(certificate_request: &str) -> Result<MachineRequest, EnrollmentError> {
    MachineRequest::parse(certificate_request)
        .map_err(|error| EnrollmentError::RequestInvalid(error.to_string()))
}

fn rejected(error: &ironmesh_cert::UnverifiedProxy) -> EnrollmentError {
    EnrollmentError::CertificateRejected(error.to_string())
}
