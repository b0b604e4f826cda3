//! The requests of a proxy about itself: it leaves, rejoins, or reads its state.

use std::sync::Arc;

use ironmesh_cert::peer::VerifiedProxy;

use super::enroller::{EnrollmentError, Leave, LeaveWait};
use super::http_error::HttpError;
use super::requests::{Client, presented};
use super::state::ListenerState;
use crate::api::{LeaveRequest, LeaveResult, ProxyStatus};

/// What a proxy asks about itself, besides leaving.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question {
    Rejoin,
    Status,
}

/// Marks the proxy as leaving, waits for its callers, and then revokes it if it asks for that.
///
/// The wait holds neither a worker nor a place in the queue. If too many leaves wait, this one does not.
pub(super) async fn leave(
    state: &Arc<ListenerState>,
    client: &Arc<Client>,
    request: LeaveRequest,
) -> Result<LeaveResult, HttpError> {
    let (enroller, peer) = (Arc::clone(&state.enroller), client.address);
    let begin = move |proxy: &VerifiedProxy| Ok(enroller.leave(proxy, peer)?);
    let Leave { now, wait } = with_proxy(state, client, begin).await?;
    let result = waited(state, now, wait, request).await?;
    if !request.revoke || result.revoked {
        return Ok(result);
    }
    let (enroller, peer) = (Arc::clone(&state.enroller), client.address);
    let revoke = move |proxy: &VerifiedProxy| Ok(enroller.revoke_left(proxy, peer)?);
    with_proxy(state, client, revoke).await?;
    Ok(LeaveResult { revoked: true, ..result })
}

async fn waited(
    state: &ListenerState,
    now: LeaveResult,
    wait: LeaveWait,
    request: LeaveRequest,
) -> Result<LeaveResult, EnrollmentError> {
    if now.acked {
        return Ok(now);
    }
    match state.leaves.try_acquire() {
        Ok(_permit) => Ok(wait.await),
        // A revocation closes the connections of callers that do not know of the leave yet.
        Err(_) if request.revoke => Err(EnrollmentError::Busy(
            "control plane has too many proxies that leave: try again".to_owned(),
        )),
        Err(_) => Ok(now),
    }
}

/// Answers another request of the proxy about itself.
pub(super) async fn ask(
    state: &Arc<ListenerState>,
    client: &Arc<Client>,
    question: Question,
) -> Result<ProxyStatus, HttpError> {
    let (enroller, peer) = (Arc::clone(&state.enroller), client.address);
    let work = move |proxy: &VerifiedProxy| {
        Ok(match question {
            Question::Rejoin => enroller.rejoin(proxy, peer),
            Question::Status => enroller.proxy_status(proxy, peer),
        }?)
    };
    with_proxy(state, client, work).await
}

/// Runs `work` on a blocking thread for the proxy that the client certificate identifies.
async fn with_proxy<T: Send + 'static>(
    state: &Arc<ListenerState>,
    client: &Arc<Client>,
    work: impl FnOnce(&VerifiedProxy) -> Result<T, HttpError> + Send + 'static,
) -> Result<T, HttpError> {
    let client = Arc::clone(client);
    state.queue.run(move || work(&presented(&client)?)).await
}
