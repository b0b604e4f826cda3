//! The enrollment of a machine that Azure attests, with at most one wait for a look-up of the machine.

use std::sync::Arc;

use tokio::time::Instant;

use super::enroller::{AzureAnswer, AzureEnrollment, EnrollmentError};
use super::http_error::HttpError;
use super::nonces::NonceError;
use super::requests::{Client, checked};
use super::state::ListenerState;
use crate::api::{AzureEnrollRequest, Enrolled};
use crate::attestation::attestation_nonce;

/// Enrolls the machine. The wait for a look-up holds neither a worker nor a place in the queue.
pub(super) async fn enroll_azure(
    state: &Arc<ListenerState>,
    client: &Arc<Client>,
    request: AzureEnrollRequest,
) -> Result<Enrolled, HttpError> {
    let received_at = Instant::now();
    // First, so that each attempt costs a challenge.
    state.nonces.redeem(&request.challenge).map_err(|error| match error {
        NonceError::Rejected => EnrollmentError::ChallengeRejected,
        NonceError::Full => EnrollmentError::Busy("too many enrollments: try again".to_owned()),
    })?;
    let request = Arc::new(request);
    let attempt = async |is_looked_up| {
        let (enroller, peer, request) =
            (Arc::clone(&state.enroller), client.address, Arc::clone(&request));
        let work = move || {
            let certificate_request = checked(&request.certificate_request)?;
            let enrollment = AzureEnrollment {
                nonce: attestation_nonce(&request.challenge, certificate_request.public_key()),
                document: request.document.clone(),
                request: certificate_request,
                address: request.address,
                name: request.name.clone(),
                received_at,
                is_looked_up,
            };
            Ok(enroller.enroll_azure(&enrollment, peer)?)
        };
        state.queue.run(work).await
    };
    let look_up = match attempt(false).await? {
        AzureAnswer::Enrolled(enrolled) => return Ok(*enrolled),
        AzureAnswer::LookUp(look_up) => look_up,
    };
    let Ok(_permit) = state.look_ups.try_acquire() else {
        let problem = "too many machines are looked up in Azure: try again";
        return Err(EnrollmentError::Busy(problem.to_owned()).into());
    };
    look_up.await?;
    match attempt(true).await? {
        AzureAnswer::Enrolled(enrolled) => Ok(*enrolled),
        AzureAnswer::LookUp(_) => {
            let problem = "machine is not known yet: try again";
            Err(EnrollmentError::Unavailable(problem.to_owned()).into())
        }
    }
}
