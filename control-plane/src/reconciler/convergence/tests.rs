use uuid::Uuid;

use super::*;

fn proxy(number: u128) -> ProxyId {
    ProxyId(Uuid::from_u128(number))
}

fn policy(number: u64) -> Generations {
    Generations { policy: number, ..Generations::default() }
}

fn begin(convergence: &mut Convergence, generations: Generations) {
    convergence.begin_pass(
        generations,
        &PolicyRevision(format!("r{}", generations.policy).into()),
        3,
    );
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pending(convergence: &Convergence) -> Vec<ProxyId> {
    convergence.pending_policy().map(|(proxy, _)| *proxy).collect()
}

/// Proxies 1 to 3 have ACKed revision 1.
fn settled() -> Convergence {
    let mut convergence = Convergence::default();
    begin(&mut convergence, policy(1));
    for number in 1..=3 {
        convergence.examine(proxy(number), Effect::Connected, Some(Lag::Updating), at(1));
        assert_eq!(pending(&convergence), [proxy(number)]);
        assert!(convergence.examine(proxy(number), Effect::None, None, at(1)));
    }
    convergence
}

#[test]
fn revision_counts_as_acked_by_proxies_that_it_does_not_touch() {
    let mut convergence = settled();
    begin(&mut convergence, policy(2));
    convergence.examine(proxy(1), Effect::Changed, Some(Lag::Updating), at(2));
    assert_eq!(pending(&convergence), [proxy(1)]);
    let laggard = &convergence.laggards()[&proxy(1)];
    assert_eq!((laggard.acked, laggard.pending, laggard.since), (policy(1), policy(2), at(2)));
    assert!(convergence.examine(proxy(1), Effect::None, None, at(3)));
    assert_eq!(pending(&convergence), []);
    assert!(!convergence.examine(proxy(1), Effect::None, None, at(3)), "no news");
}

#[test]
fn laggard_does_not_delay_a_revision_without_effect_on_it() {
    let mut convergence = settled();
    begin(&mut convergence, Generations { endpoints: 7, ..policy(1) });
    convergence.examine(proxy(1), Effect::Changed, Some(Lag::Updating), at(2));
    begin(&mut convergence, Generations { endpoints: 7, ..policy(2) });
    convergence.examine(proxy(2), Effect::Changed, Some(Lag::Held), at(3));
    convergence.examine(proxy(1), Effect::None, Some(Lag::Updating), at(3));
    assert_eq!(pending(&convergence), [proxy(2)]);
    let frozen = &convergence.laggards()[&proxy(1)];
    assert_eq!((frozen.since, frozen.pending.endpoints, frozen.pending.policy), (at(2), 7, 0));
    assert_eq!(frozen.acked, policy(1), "the endpoints of before");
}

#[test]
fn revision_is_not_acked_by_a_proxy_that_nacks_an_earlier_one() {
    let mut convergence = settled();
    begin(&mut convergence, policy(2));
    convergence.examine(proxy(1), Effect::Changed, Some(Lag::Nacked), at(2));
    // Its resources stay as they are.
    begin(&mut convergence, policy(3));
    convergence.examine(proxy(1), Effect::None, Some(Lag::Nacked), at(3));
    assert_eq!(pending(&convergence), [proxy(1)]);
    convergence.examine(proxy(1), Effect::None, None, at(4));
    assert_eq!(pending(&convergence), []);
}

#[test]
fn proxy_that_reconnects_must_ack_the_active_revision() {
    let mut convergence = settled();
    convergence.depart(proxy(1), true, false, at(2));
    let departed = Departed { since: at(2), acked: policy(1), pending: Generations::default() };
    assert_eq!(convergence.departed()[&proxy(1)], departed);
    begin(&mut convergence, policy(2));
    convergence.examine(proxy(1), Effect::Connected, Some(Lag::Updating), at(3));
    assert_eq!(pending(&convergence), [proxy(1)]);
    assert_eq!(convergence.laggards()[&proxy(1)].acked, policy(1));
    // It has ACKed nothing more when it leaves again.
    convergence.depart(proxy(1), true, false, at(4));
    assert_eq!(convergence.departed()[&proxy(1)].acked, policy(1));
    convergence.retain_departed(|_| false);
    assert!(convergence.departed().is_empty());
}

#[test]
fn revision_is_found_by_the_beginning_of_its_text() {
    let mut convergence = settled();
    begin(&mut convergence, policy(2));
    assert_eq!(convergence.find("r2"), Target::Active(2));
    assert_eq!(convergence.find("r1"), Target::Superseded(PolicyRevision("r2".into())));
    assert_eq!(convergence.find("r"), Target::Active(2), "the active one, if several begin so");
    assert_eq!((convergence.find(""), convergence.find("x")), (Target::Unknown, Target::Unknown));
    assert_eq!(convergence.revision_of(1).map(|one| &*one.0), Some("r1"));
    assert_eq!((convergence.revision_of(0), convergence.revision_of(3)), (None, None));
    // The same again is another change.
    convergence.begin_pass(policy(3), &PolicyRevision("r1".into()), 3);
    assert_eq!(convergence.find("r1"), Target::Active(3));
}

#[tokio::test(start_paused = true)]
async fn duration_lasts_from_the_first_change_to_the_last_ack() {
    let mut convergence = settled();
    convergence.end_pass();
    let observed = |convergence: &Convergence| {
        let mut text = String::new();
        let mut registry = prometheus_client::registry::Registry::default();
        for (kind, histogram) in convergence.durations().histograms() {
            registry.register(kind.word(), "", histogram.clone());
        }
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse::<f64>().unwrap()
        };
        (value("policy_count"), value("policy_sum"), value("endpoints_count"))
    };
    let (count, sum, endpoints) = observed(&convergence);
    begin(&mut convergence, policy(2));
    convergence.examine(proxy(1), Effect::Changed, Some(Lag::Updating), at(2));
    convergence.end_pass();
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    begin(&mut convergence, policy(3));
    convergence.examine(proxy(2), Effect::Changed, Some(Lag::Updating), at(4));
    convergence.examine(proxy(1), Effect::None, None, at(4));
    convergence.end_pass();
    assert_eq!(observed(&convergence), (count, sum, endpoints), "proxy 2 lags");
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    convergence.depart(proxy(2), true, false, at(5));
    convergence.end_pass();
    assert_eq!(observed(&convergence), (count + 1.0, sum + 3.0, endpoints));
}

#[test]
fn proxy_lost_before_its_ack_is_pending_until_the_next_revision() {
    let mut convergence = settled();
    let lost = |convergence: &Convergence, policy| -> Vec<_> {
        convergence.lost_while_pending(policy).map(|(proxy, _)| *proxy).collect()
    };
    convergence.depart(proxy(3), true, false, at(2));
    begin(&mut convergence, policy(2));
    convergence.examine(proxy(1), Effect::Changed, Some(Lag::Updating), at(3));
    convergence.examine(proxy(2), Effect::Changed, Some(Lag::Updating), at(3));
    convergence.depart(proxy(1), true, false, at(4));
    convergence.examine(proxy(2), Effect::None, None, at(4));
    convergence.depart(proxy(2), true, false, at(5));
    assert_eq!(lost(&convergence, 2), [proxy(1)], "the others left before it, or with it");
    begin(&mut convergence, policy(3));
    assert_eq!(lost(&convergence, 3), []);
    convergence.examine(proxy(1), Effect::Connected, Some(Lag::Updating), at(6));
    assert_eq!((lost(&convergence, 2), pending(&convergence)), (vec![], vec![proxy(1)]));
}

#[test]
fn proxy_that_crashes_again_before_a_pass_stays_lost() {
    let mut convergence = settled();
    begin(&mut convergence, policy(2));
    convergence.examine(proxy(1), Effect::Changed, Some(Lag::Updating), at(2));
    convergence.depart(proxy(1), true, false, at(3));
    let lost = convergence.departed()[&proxy(1)];
    convergence.depart(proxy(1), false, false, at(4));
    assert_eq!(convergence.departed()[&proxy(1)], lost);
    assert_eq!(convergence.lost_while_pending(2).count(), 1);
    // One that no pass ever saw has ACKed nothing, and received nothing.
    convergence.depart(proxy(9), false, false, at(4));
    let none = Generations::default();
    let unseen = Departed { since: at(4), acked: none, pending: none };
    assert_eq!(convergence.departed()[&proxy(9)], unseen);
}

#[test]
fn proxy_that_acks_and_leaves_between_two_passes_has_acked() {
    let mut convergence = settled();
    begin(&mut convergence, policy(2));
    for (number, lag) in [(1, Lag::Updating), (2, Lag::Held)] {
        convergence.examine(proxy(number), Effect::Changed, Some(lag), at(2));
        convergence.depart(proxy(number), true, true, at(3));
    }
    assert_eq!(convergence.departed()[&proxy(1)].acked, policy(2));
    let lost: Vec<_> = convergence.lost_while_pending(2).map(|(proxy, _)| *proxy).collect();
    assert_eq!(lost, [proxy(2)], "a part of its set was withheld");
}

#[test]
fn duration_ends_with_a_nack_and_ignores_connections() {
    let mut convergence = settled();
    let observed = |convergence: &Convergence| -> Vec<_> {
        let kinds = convergence.durations.kinds.iter();
        kinds.map(|one| (one.kind, one.since.is_some())).collect()
    };
    assert!(observed(&convergence).iter().all(|(_, is_running)| !is_running));
    begin(&mut convergence, policy(2));
    convergence.examine(proxy(1), Effect::Changed, Some(Lag::Updating), at(2));
    convergence.end_pass();
    assert_eq!(observed(&convergence)[0], (Kind::Policy, true));
    convergence.examine(proxy(1), Effect::None, Some(Lag::Nacked), at(3));
    convergence.end_pass();
    assert_eq!(observed(&convergence)[0], (Kind::Policy, false));
    convergence.depart(proxy(2), true, false, at(4));
    convergence.examine(proxy(2), Effect::Connected, Some(Lag::Updating), at(5));
    assert!(observed(&convergence).iter().all(|(_, is_running)| !is_running));
}
