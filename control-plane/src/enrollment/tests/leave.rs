//! Leaving, rejoining and reading the own state.

use ironmesh_catalog::{JournalKind, JournalQuery, PolicyRevision};
use ironmesh_enrollment::{Leave, ProxySync};
use ironmesh_xds_server::simulated::SimulatedClient;
use ironmesh_xds_wire::Node;
use tokio::time::{Duration, Instant, advance};

use super::super::leave::LEAVE_WAIT;
use super::*;
use crate::reconciler::convergence::{Effect, Generations, Lag};

/// A world with an enrolled machine, its certificate, and the sender of convergence.
fn joined() -> (World, VerifiedProxy, watch::Sender<Convergence>) {
    let mut world = world();
    let sender = watch::Sender::new(Convergence::default());
    let enroller = world.another_control_plane();
    world.enroller = Arc::new(MachineEnrollment { convergence: sender.subscribe(), ..enroller });
    let token = world.token();
    let enrolled = world.join(&token, &request(), peer(5), AT_ONCE).unwrap();
    (world, verified(&enrolled.certificate), sender)
}

impl World {
    fn leave(&self, proxy: &VerifiedProxy) -> Result<Leave, EnrollmentError> {
        self.enroller.begin_leave(proxy, peer(5), self.now)
    }

    /// The outcomes of the journal's entries of a kind, with their messages.
    fn entries(&self, kind: JournalKind) -> Vec<(bool, Option<String>)> {
        self.enroller.journal.flush();
        let query = JournalQuery { kind: Some(kind), ..JournalQuery::default() };
        let entries = self.enroller.journal.page(&query).unwrap().entries;
        entries.into_iter().map(|entry| (entry.is_rejected(), entry.message)).collect()
    }
}

/// Publishes the pass of a leave that touches these callers, and which of them have ACKed it.
fn publish(sender: &watch::Sender<Convergence>, leaves: u64, callers: &[(ProxyId, bool)]) {
    sender.send_modify(|convergence| {
        let generations = Generations { policy: 1, leaves, ..Generations::default() };
        convergence.begin_pass(generations, &PolicyRevision("a1".into()), callers.len());
        for (id, has_acked) in callers {
            let lag = (!has_acked).then_some(Lag::Updating);
            convergence.examine(*id, Effect::Changed, lag, Timestamp::now());
        }
        convergence.end_pass();
    });
}

fn caller(number: u128) -> ProxyId {
    ProxyId(uuid::Uuid::from_u128(number))
}

#[tokio::test(start_paused = true)]
async fn leave_waits_for_the_callers_and_not_for_the_leaving_proxy() {
    let (world, proxy, sender) = joined();
    let Leave { now, wait } = world.leave(&proxy).unwrap();
    assert!(!now.acked && now.laggards.is_empty(), "not published yet");
    let own = (proxy.identity.proxy, false);
    let answer = tokio::spawn(wait);
    publish(&sender, 1, &[own, (caller(1), true), (caller(2), false)]);
    tokio::task::yield_now().await;
    assert!(!answer.is_finished());
    publish(&sender, 1, &[(caller(2), true)]);
    let begin = Instant::now();
    let result = answer.await.unwrap();
    assert!(result.acked && result.laggards.is_empty() && !result.revoked);
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert_eq!(result.leaving_since, world.now);

    // A repeated request sets no new mark, and is answered at once.
    let again = world.leave(&proxy).unwrap().now;
    assert_eq!(again, result);
    assert_eq!(world.entries(JournalKind::Leave), [(false, None)]);
    // Laggards of later changes of other kinds do not count.
    publish(&sender, 1, &[(caller(3), false)]);
    assert!(world.leave(&proxy).unwrap().now.acked);
}

#[tokio::test(start_paused = true)]
async fn leave_names_a_bounded_number_of_laggards_after_15_seconds() {
    let (world, proxy, sender) = joined();
    let Leave { wait, .. } = world.leave(&proxy).unwrap();
    let callers: Vec<_> = (1..=25).map(|number| (caller(number), false)).collect();
    publish(&sender, 1, &callers);
    let begin = Instant::now();
    let answer = tokio::spawn(wait);
    tokio::task::yield_now().await;
    advance(LEAVE_WAIT).await;
    let result = answer.await.unwrap();
    assert!(!result.acked);
    assert_eq!((result.laggards.len(), result.more_laggards), (10, 15));
    assert_eq!(begin.elapsed(), LEAVE_WAIT);
}

#[test]
fn proxy_rejoins_and_reads_its_own_state() {
    let (world, proxy, sender) = joined();
    let status = || world.enroller.own_status(&proxy, peer(5), world.now).unwrap();
    world.leave(&proxy).unwrap();
    let record = world.record(proxy.identity.proxy);
    let first = status();
    assert_eq!((first.sync, first.leaving_since), (ProxySync::Disconnected, Some(world.now)));
    assert_eq!(first.name, record.display_name());
    assert_eq!(first.certificate_expires_at, record.certificate_expires_at);
    let rejoined = world.enroller.end_leave(&proxy, peer(5), world.now).unwrap();
    assert_eq!(rejoined.leaving_since, None);
    world.enroller.end_leave(&proxy, peer(5), world.now).unwrap();
    let entries = world.entries(JournalKind::Leave);
    assert_eq!(entries.len(), 2, "the second rejoin changes nothing: {entries:?}");

    publish(&sender, 0, &[]);
    let id = record.id.to_string();
    let node = Node { id: id.clone(), ..Node::default() };
    let _stream = SimulatedClient::connect(&world.enroller.hub, &id, node);
    assert_eq!(status().active_revision.as_deref(), Some("a1"));
    publish(&sender, 0, &[(record.id, false)]);
    assert_eq!(status().sync, ProxySync::Updating);
}

#[test]
fn proxy_that_leaves_for_good_is_revoked_once() {
    let (world, proxy, _sender) = joined();
    world.leave(&proxy).unwrap();
    world.enroller.revoke_at_own_request(&proxy, peer(5), world.now).unwrap();
    let record = world.record(proxy.identity.proxy);
    assert_eq!(record.revoked.as_ref().unwrap().reason.as_deref(), Some("left the mesh"));
    assert_eq!(world.enroller.leaves.since(record.id), None);
    let left = Some("left the mesh".to_owned());
    assert_eq!(world.entries(JournalKind::Revoke), [(false, left)]);
    // The response was lost.
    let again = world.leave(&proxy).unwrap().now;
    assert!(again.revoked && again.acked);
    let error = world.enroller.end_leave(&proxy, peer(5), world.now).unwrap_err();
    assert!(matches!(error, EnrollmentError::Revoked(_)), "{error:?}");
}

#[test]
fn revoked_unknown_and_copied_certificates_do_not_leave() {
    let (world, proxy, _sender) = joined();
    let id = proxy.identity.proxy;
    let mut other_key = proxy.clone();
    other_key.public_key = request().public_key().to_vec();
    assert!(matches!(world.leave(&other_key), Err(EnrollmentError::CertificateRejected(_))));
    assert_eq!(world.findings(), ["IM0742"]);
    assert_eq!(world.entries(JournalKind::Leave).len(), 1, "a rejection");
    world.enroller.register.revoke(&[id], &Revocation::by_operator(world.now, None)).unwrap();
    assert!(matches!(world.leave(&proxy), Err(EnrollmentError::Revoked(_))));
    let (elsewhere, ..) = joined();
    assert!(matches!(elsewhere.leave(&proxy), Err(EnrollmentError::CertificateRejected(_))));
    assert_eq!(world.enroller.leaves.since(id), None);
}
