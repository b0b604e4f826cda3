//! Logins and sessions that this control plane does not know.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::State;
use ironmesh_api::{LinkRequest, LoginLink, LoginRequest, SessionList, SessionView};
use ironmesh_catalog::{Secret, TokenId};

use super::super::error::Body;
use super::super::logins::log_in;
use super::super::network::{NetworkClient, find_session};
use super::super::work_queues::{MAX_CONCURRENT_LOOK_UPS, MAX_QUEUED_LOOK_UPS};
use super::*;

/// It knows no link and no session, and waits for the test before it looks one up.
impl LoginAccess for Slow {
    fn sessions(&self, _: &Principal) -> SessionList {
        not_requested()
    }

    fn create_link(&self, _: &Principal, _: &LinkRequest) -> Result<LoginLink, ApiError> {
        not_requested()
    }

    fn knows_login(&self, _: &LoginRequest) -> Result<bool, ApiError> {
        Ok(false)
    }

    fn may_lack_session(&self, _: &Secret) -> bool {
        true
    }

    fn find_session(&self, _: &Secret) -> Result<bool, ApiError> {
        self.questions.answer();
        Ok(false)
    }

    fn log_in(&self, _: &LoginRequest, _: SocketAddr) -> Result<(Secret, SessionView), ApiError> {
        self.questions.answer();
        Err(ApiError::Unauthenticated("unknown".to_owned()))
    }

    fn revoke_session(&self, _: &Principal, _: &TokenId, _: bool) -> Result<SessionView, ApiError> {
        not_requested()
    }
}

/// A client of the network, and how many failures it has.
fn client() -> (Arc<NetworkClient>, Arc<AtomicUsize>) {
    let failures = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&failures);
    let charge = Box::new(move |_, _: &str| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let address = SocketAddr::from(([192, 0, 2, 1], 1000));
    (Arc::new(NetworkClient::new(address, None, charge)), failures)
}

/// Sends a hundred requests at once by `send`. All but those in the queue are answered before the first look-up ends; then
/// the queue is worked off by as many threads as it has.
async fn assert_bounded<F>(
    gate: &AnswerGate,
    queues: &WorkQueues,
    send: impl Fn() -> F,
) -> Vec<Result<(), ApiError>>
where
    F: Future<Output = Result<(), ApiError>> + Send + 'static,
{
    let mut requests = JoinSet::new();
    for _ in 0..100 {
        requests.spawn(send());
    }
    for _ in MAX_QUEUED_LOOK_UPS..100 {
        let answer = requests.join_next().await.unwrap().unwrap();
        assert!(matches!(answer, Err(ApiError::Busy(_))), "{answer:?}");
    }
    // A client with a credential is not delayed.
    queues.log_in(|| Ok(())).await.unwrap();
    gate.open();
    let answers = requests.join_all().await;
    assert_eq!(answers.len(), MAX_QUEUED_LOOK_UPS);
    let most = gate.state.lock().unwrap().most_at_once;
    assert!((1..=MAX_CONCURRENT_LOOK_UPS).contains(&most), "{most} at once");
    answers
}

#[tokio::test]
async fn flood_of_unknown_links_has_a_bounded_queue_of_its_own() {
    let slow = idle();
    let (gate, queues, (client, failures)) =
        (Arc::clone(&slow.questions), WorkQueues::default(), client());
    let slow: Shared = Arc::new(slow);
    let send = || {
        let request = Body(LoginRequest::Link(Secret::new("x".to_owned())));
        let client = Some(Extension(Arc::clone(&client)));
        let answer = log_in(State(Arc::clone(&slow)), client, Extension(queues.clone()), request);
        async { answer.await.map(|_| ()) }
    };
    for answer in assert_bounded(&gate, &queues, send).await {
        assert!(matches!(answer, Err(ApiError::Unauthenticated(_))), "{answer:?}");
    }
    assert_eq!(failures.load(Ordering::Relaxed), MAX_QUEUED_LOOK_UPS);
}

#[tokio::test]
async fn flood_of_unknown_sessions_has_the_same_queue_and_is_charged() {
    let slow = idle();
    let (gate, queues, (client, failures)) =
        (Arc::clone(&slow.questions), WorkQueues::default(), client());
    let slow: Shared = Arc::new(slow);
    let send = || {
        let (slow, queues, client) = (Arc::clone(&slow), queues.clone(), Arc::clone(&client));
        async move {
            let token = Secret::new("x".to_owned());
            find_session(&slow, &queues, &client, token).await
        }
    };
    for answer in assert_bounded(&gate, &queues, send).await {
        answer.unwrap();
    }
    assert_eq!(failures.load(Ordering::Relaxed), MAX_QUEUED_LOOK_UPS);
}
