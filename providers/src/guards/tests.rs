//! Tests of the guards with hand-written reports.

use std::time::Duration;

use ironmesh_catalog::{
    ConsulQuery, EndpointSource, EscapedSlashes, Health, Providers, Spot, Visibility,
};

use super::*;
use crate::provider::Stale;

const GRACE: Duration = Duration::from_secs(60);

/// The guards of one service, with the reports and the time that the test sets.
struct Place {
    guards: ProviderGuards,
    specification: Arc<MeshSpecification>,
    report: ProviderReport,
    now: Now,
}

pub(crate) fn name() -> ServiceName {
    "shop/store".parse().unwrap()
}

fn source() -> Source {
    (Provider::Consul, name())
}

pub(crate) fn set(last: &[u8]) -> Vec<Endpoint> {
    let one = |last: &u8| Endpoint::new(Provider::Consul, [10, 0, 0, *last].into());
    last.iter().map(one).collect()
}

pub(crate) fn service(consul: bool, drained: bool) -> Service {
    let query = ConsulQuery::of("store");
    let providers =
        Providers { registered: !consul, consul: consul.then_some(query), ..Providers::default() };
    Service {
        name: name(),
        account: name().to_string().parse().unwrap(),
        ports: Vec::new(),
        endpoints: EndpointSource::Providers(providers),
        mode: None,
        visibility: Visibility::Public,
        escaped_slashes: EscapedSlashes::Reject,
        max_connection_duration: None,
        drained,
        health: None,
        external: None,
        subsets: Vec::new(),
        upstreams: Vec::new(),
        spot: Spot {
            file: "p.toml".into(),
            line: 1,
            column: 1,
            end_line: 1,
            end_column: 2,
            bytes: (0, 1),
        },
    }
}

pub(crate) fn specification(services: impl IntoIterator<Item = Service>) -> Arc<MeshSpecification> {
    let services = services.into_iter().map(|one| (one.name.clone(), Arc::new(one)));
    Arc::new(MeshSpecification { services: services.collect(), ..MeshSpecification::default() })
}

impl Place {
    fn new(kept: impl IntoIterator<Item = KeptEndpoints>) -> Self {
        Self {
            guards: ProviderGuards::new(ShrinkRule { keep_share: 0.5, grace: GRACE }, kept),
            specification: specification([service(true, false)]),
            report: ProviderReport::default(),
            now: Now {
                timestamp: "2026-01-01T00:00:00Z".parse().unwrap(),
                instant: Instant::now(),
            },
        }
    }

    fn advance(&mut self) {
        let report = [(Provider::Consul, self.report.clone())];
        self.guards.advance(&self.specification, report, self.now);
    }

    fn sees(&mut self, endpoints: Vec<Endpoint>, is_authoritative: bool) {
        let learned_at = self.now.timestamp;
        let report = ServiceReport {
            endpoints: Arc::new(endpoints),
            index: 1,
            learned_at,
            is_authoritative,
            problems: Arc::default(),
            stale: None,
        };
        self.report.services.insert(name(), Arc::new(report));
        self.report.is_complete = true;
        self.advance();
    }

    fn passes(&mut self, time: Duration) {
        self.now.instant += time;
        self.now.timestamp += SignedDuration::try_from(time).unwrap();
        self.advance();
    }

    fn endpoints(&self) -> Vec<u8> {
        let found = self.guards.endpoints().0.get(&source());
        let last = |one: &Endpoint| match one.address {
            std::net::IpAddr::V4(address) => address.octets()[3],
            std::net::IpAddr::V6(_) => 0,
        };
        found.iter().flat_map(|all| healthy(all)).map(last).collect()
    }

    fn held(&self) -> Option<PendingShrink> {
        self.guards.statuses().get(&source())?.held
    }

    /// Returns what the store must save.
    fn kept(&mut self) -> Vec<KeptEndpoints> {
        self.guards.take_unsaved().0
    }
}

#[test]
fn shrinkage_is_held_back_until_the_grace_ends() {
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    assert_eq!((place.endpoints(), place.held()), (vec![1, 2, 3], None));
    place.sees(set(&[]), true);
    assert_eq!(place.endpoints(), [1, 2, 3]);
    let held = place.held().unwrap();
    assert_eq!((held.before, held.left), (3, 0));
    assert_eq!(held.until, Some(place.now.timestamp + SignedDuration::from_secs(60)));
    assert_eq!(place.guards.deadline(), Some(place.now.instant + GRACE));
    // A new endpoint is used at once, and the grace period continues.
    place.passes(GRACE / 2);
    place.sees(set(&[4]), true);
    assert_eq!(place.endpoints(), [1, 2, 3, 4]);
    assert_eq!(place.held().unwrap().until, held.until);
    place.passes(GRACE / 2);
    assert_eq!((place.endpoints(), place.held()), (vec![4], None));
    assert_eq!(place.guards.deadline(), None);
}

#[test]
fn non_authoritative_shrinkage_is_held_back_indefinitely() {
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    place.sees(set(&[]), false);
    place.passes(GRACE * 100);
    assert_eq!((place.endpoints(), place.held().unwrap().until), (vec![1, 2, 3], None));
    // The grace period begins with the first authoritative report.
    place.sees(set(&[]), true);
    place.passes(GRACE / 2);
    assert_eq!(place.endpoints(), [1, 2, 3]);
    place.passes(GRACE / 2);
    assert!(place.endpoints().is_empty());
}

#[test]
fn returning_endpoints_end_the_hold() {
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    place.sees(set(&[]), true);
    place.sees(set(&[1, 2]), true);
    assert_eq!((place.endpoints(), place.held()), (vec![1, 2], None));
    place.passes(GRACE);
    assert_eq!(place.endpoints(), [1, 2]);
}

#[test]
fn operator_accept_applies_only_to_a_held_back_removal() {
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    assert_eq!(place.guards.accept(&name(), place.now), Err(AcceptError::NothingHeld));
    assert_eq!(place.endpoints(), [1, 2, 3]);
    place.sees(set(&[]), false);
    place.guards.accept(&name(), place.now).unwrap();
    assert_eq!((place.endpoints(), place.held()), (vec![], None));
    // The accepted set is the base of later comparisons.
    place.passes(GRACE);
    assert_eq!((place.endpoints(), place.held()), (vec![], None));
}

#[test]
fn removal_accepted_at_a_peer_covers_no_larger_and_no_later_one() {
    let accepted = |at: Timestamp, left| {
        let left = BTreeMap::from([(Provider::Consul, left)]);
        BTreeMap::from([(name(), EndpointAcceptance { at, left })])
    };
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    place.passes(GRACE);
    place.sees(set(&[]), false);
    let learned_at = place.guards.statuses()[&source()].learned_at;
    let later = learned_at + GRACE;
    for (at, left) in [(later, 1), (learned_at, 0)] {
        place.guards.follow_accepted(accepted(at, left), place.now);
        assert_eq!(place.endpoints(), [1, 2, 3], "{left}");
    }
    place.guards.follow_accepted(accepted(later, 0), place.now);
    assert_eq!((place.endpoints(), place.held()), (vec![], None));

    // The provider of this control plane may report it after the acceptance.
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    place.guards.follow_accepted(accepted(later, 1), place.now);
    place.sees(set(&[]), true);
    assert_eq!(place.endpoints(), [1, 2, 3]);
    place.sees(set(&[2]), true);
    assert_eq!((place.endpoints(), place.held()), (vec![2], None));
}

#[test]
fn acceptance_at_a_peer_ends_before_a_later_removal() {
    let accepted = |now: Now| {
        let left = BTreeMap::from([(Provider::Consul, 0)]);
        BTreeMap::from([(name(), EndpointAcceptance { at: now.timestamp, left })])
    };
    let late = GRACE * 60;
    // This control plane never saw the removal, and its provider reports its endpoints once.
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    let kept = place.kept();
    place.passes(GRACE);
    place.guards.follow_accepted(accepted(place.now), place.now);
    place.passes(late);
    place.sees(set(&[]), true);
    assert_eq!(place.endpoints(), [1, 2, 3]);

    // It held the removal back when it was accepted, and learned of that late.
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    place.passes(GRACE);
    place.sees(set(&[]), false);
    let accepted_then = accepted(place.now);
    place.passes(late);
    place.guards.follow_accepted(accepted_then, place.now);
    assert_eq!((place.endpoints(), place.held()), (vec![], None));

    // It was stopped meanwhile, and reads the acceptance before or after the first report.
    for reads_first in [true, false] {
        let mut place = Place::new(kept.clone());
        place.passes(GRACE);
        let accepted = accepted(place.now);
        place.passes(late);
        if reads_first {
            place.guards.follow_accepted(accepted.clone(), place.now);
        }
        place.sees(set(&[]), true);
        place.guards.follow_accepted(accepted, place.now);
        assert_eq!((place.endpoints(), place.held()), (vec![], None), "{reads_first}");
    }
}

#[test]
fn removals_of_a_drained_service_are_not_held_back() {
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    place.sees(set(&[]), true);
    place.specification = specification([service(true, true)]);
    place.advance();
    assert_eq!((place.endpoints(), place.held()), (vec![], None));
}

#[test]
fn stored_endpoints_are_used_and_guarded_after_restart() {
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    let kept = place.kept();
    assert_eq!(kept.len(), 1);
    assert_eq!(place.kept(), [], "kept once");

    let mut place = Place::new(kept);
    place.advance();
    assert_eq!(place.endpoints(), [1, 2, 3]);
    assert_eq!(place.guards.unreported().collect::<Vec<_>>(), [source()]);
    place.sees(set(&[]), true);
    assert_eq!(place.endpoints(), [1, 2, 3]);
    assert_eq!(place.guards.unreported().count(), 0);
    assert_eq!(place.kept(), [], "a hold does not change the saved state");
    place.passes(GRACE);
    assert_eq!(place.kept()[0].endpoints, Arc::default());
}

#[test]
fn service_without_a_query_is_forgotten_in_memory_and_store() {
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    place.kept();
    place.specification = specification([service(false, false)]);
    place.report.services.clear();
    place.advance();
    assert!(place.endpoints().is_empty());
    assert_eq!(place.guards.take_unsaved(), (vec![], vec![source()]));
    place.guards.put_back([source()]);
    assert_eq!(place.guards.take_unsaved(), (vec![], vec![source()]));
}

#[test]
fn shrinkage_of_tag_registered_endpoints_is_held_back() {
    let mut place = Place::new([]);
    place.specification = specification([service(false, false)]);
    place.sees(set(&[1, 2]), true);
    place.report.services.clear();
    place.advance();
    assert_eq!(place.endpoints(), [1, 2]);
    place.passes(GRACE);
    assert!(place.endpoints().is_empty());
    assert!(place.guards.statuses().is_empty());
}

#[test]
fn stale_provider_keeps_endpoints_and_is_reported() {
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    let stale = Stale { since: place.now.timestamp, reason: "no agent answers".to_owned() };
    place.report.stale = Some(stale);
    place.advance();
    place.passes(GRACE * 100);
    assert_eq!(place.endpoints(), [1, 2, 3]);
    let findings = crate::findings(&place.guards, &OrdMap::new());
    let words: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert!(words.len() == 1 && words[0].contains("no agent answers"), "{words:?}");
}

#[test]
fn flapping_endpoint_gets_no_traffic_and_is_stored_unchanged() {
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    for _ in 0..3 {
        place.passes(Duration::from_secs(1));
        place.sees(set(&[2, 3]), true);
        place.passes(Duration::from_secs(1));
        place.sees(set(&[1, 2, 3]), true);
    }
    assert_eq!(place.endpoints(), [2, 3]);
    let found = place.guards.endpoints().0.get(&source()).unwrap();
    assert_eq!(found[0].health, Health::Unhealthy);
    assert_eq!(place.kept()[0].endpoints, Arc::new(set(&[1, 2, 3])));
    assert_eq!(crate::findings(&place.guards, &OrdMap::new()).len(), 1);
    place.passes(Duration::from_secs(30));
    assert_eq!(place.endpoints(), [1, 2, 3]);
}

#[test]
fn endpoint_since_is_its_first_appearance() {
    let mut place = Place::new([]);
    place.sees(set(&[1]), true);
    let first = place.now.timestamp;
    place.passes(GRACE);
    place.sees(set(&[1, 2]), true);
    let since = place.guards.statuses().get(&source()).unwrap().since.clone();
    let dates: Vec<_> = since.values().copied().collect();
    assert_eq!(dates, [first, place.now.timestamp]);
}

#[test]
fn grace_restarts_after_the_provider_was_stale() {
    let stale = |place: &Place| {
        Some(Stale { since: place.now.timestamp, reason: "no agent answers".to_owned() })
    };
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    place.sees(set(&[1]), true);
    place.report.stale = stale(&place);
    place.advance();
    place.passes(GRACE * 100);
    assert_eq!((place.endpoints(), place.held().unwrap().until), (vec![1, 2, 3], None));
    // After the recovery, the grace period restarts.
    place.report.stale = None;
    place.advance();
    place.passes(GRACE / 2);
    assert_eq!(place.endpoints(), [1, 2, 3]);
    place.passes(GRACE / 2);
    assert_eq!(place.endpoints(), [1]);
}

#[test]
fn non_authoritative_report_only_adds_endpoints() {
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3, 4]), true);
    // An agent lost its memory, and instances register again one by one.
    for known in [&[][..], &[1], &[1, 2, 3], &[1, 2, 3, 5]] {
        place.sees(set(known), false);
        assert!(place.endpoints().starts_with(&[1, 2, 3, 4]), "{known:?}: {:?}", place.endpoints());
    }
    assert_eq!(place.endpoints(), [1, 2, 3, 4, 5]);
    place.sees(set(&[1, 2, 3, 5]), true);
    assert_eq!((place.endpoints(), place.held()), (vec![1, 2, 3, 5], None));
}

#[test]
fn endpoint_seen_only_during_a_hold_is_dropped_at_once() {
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3, 4]), true);
    for new_endpoint in 5..50 {
        place.sees(set(&[new_endpoint]), false);
        assert_eq!(place.endpoints(), [1, 2, 3, 4, new_endpoint]);
        assert_eq!(place.held().unwrap().before, 4);
    }
    place.sees(set(&[50, 51]), true);
    assert_eq!(place.endpoints(), [50, 51], "half of the earlier ones");
}

#[test]
fn hold_pauses_until_a_changed_query_is_answered() {
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    place.sees(set(&[]), true);
    assert!(place.guards.deadline().is_some());
    // The query in policy has changed, and has no answer yet.
    place.report.services.clear();
    place.report.is_complete = false;
    place.advance();
    assert_eq!((place.endpoints(), place.guards.deadline()), (vec![1, 2, 3], None));
    assert_eq!(place.guards.accept(&name(), place.now), Err(AcceptError::NothingReported));
    place.sees(set(&[7, 8]), true);
    assert_eq!((place.endpoints(), place.held()), (vec![7, 8], None));
}

#[test]
fn held_back_changes_do_not_count_as_flapping() {
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    for _ in 0..10 {
        place.sees(set(&[]), true);
        place.sees(set(&[1, 2, 3]), true);
    }
    assert_eq!(place.endpoints(), [1, 2, 3]);
}

#[test]
fn first_empty_report_counts_only_if_authoritative() {
    let mut place = Place::new([]);
    place.sees(set(&[]), false);
    assert_eq!(place.guards.endpoints(), &GuardedEndpoints::default());
    assert_eq!(place.guards.unreported().count(), 0, "the provider has reported it");
    place.sees(set(&[]), true);
    assert_eq!(place.guards.endpoints().0.len(), 1);
}

#[test]
fn endpoint_drained_during_a_hold_is_not_used_again() {
    let mut place = Place::new([]);
    place.sees(set(&[1, 2, 3]), true);
    place.sees(set(&[1]), false);
    let mut draining = set(&[1]);
    draining[0].health = Health::Draining;
    place.sees(draining, false);
    assert_eq!((place.endpoints(), place.held().unwrap().before), (vec![2, 3], 2));
    place.sees(set(&[]), false);
    assert_eq!(place.endpoints(), [2, 3]);
}
