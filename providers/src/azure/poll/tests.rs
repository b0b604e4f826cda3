//! Tests of the polling schedule, and of answers that lack entries.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::{AddressFamily, AzureMachines};
use reqwest::StatusCode;

use super::super::error::RequestError;
use super::super::id::ResourceId;
use super::super::lists::{Fetched, ListOutcome};
use super::super::machines::{Entries, Interface, Machine, ScaleSet, State, Tags};
use super::*;

const NAMESPACE: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute";

fn id(rest: &str) -> ResourceId {
    ResourceId::parse(&format!("{NAMESPACE}/{rest}")).unwrap()
}

fn set(n: usize) -> ScaleSet {
    let id = id(&format!("virtualMachineScaleSets/set{n}"));
    ScaleSet { id, is_flexible: false, tags: Tags::new(), capacity: 1 }
}

fn sets(count: usize) -> Contents {
    let good = (0..count).map(|n| (set(n).id, set(n))).collect();
    Contents::ScaleSets(Entries { good, unreadable: Vec::new() })
}

/// A running machine of a scale set.
fn machine(id: ResourceId) -> Machine {
    Machine {
        id,
        vm_id: None,
        region: "westeurope".into(),
        zone: None,
        fault_domain: None,
        tags: Tags::new(),
        state: State {
            provisioning: "succeeded".into(),
            power: Some("running".into()),
            health: None,
        },
        is_in_scale_set: false,
        interfaces: Vec::new(),
        os_disk: None,
    }
}

/// The machines of a list.
fn machine_list(machines: impl IntoIterator<Item = Machine>) -> Contents {
    let good = machines.into_iter().map(|machine| (machine.id.clone(), machine)).collect();
    Contents::Machines(Entries { good, unreadable: Vec::new() })
}

/// The machines of the first scale set with these numbers.
fn machines(numbers: impl IntoIterator<Item = usize>) -> Contents {
    let one = |n: usize| machine(id(&format!("virtualMachineScaleSets/set0/virtualMachines/{n}")));
    machine_list(numbers.into_iter().map(one))
}

fn query(n: usize) -> AzureQuery {
    AzureQuery {
        machines: AzureMachines::ScaleSet(Some(format!("set{n}").into())),
        subscription: Some("s".into()),
        resource_group: Some("g".into()),
        tags: BTreeMap::new(),
        port: Some(80),
        address_family: AddressFamily::Ipv4,
        join: None,
    }
}

fn following(services: usize, options: &AzureOptions) -> Poll {
    let mut poll = Poll::new(options);
    let queries = (0..services).map(|n| (format!("service{n}").parse().unwrap(), vec![query(n)]));
    poll.follow(queries.collect(), Timestamp::UNIX_EPOCH);
    poll
}

fn answer(contents: Contents) -> ListOutcome {
    ListOutcome { answer: Ok(Fetched { contents, is_of_graph: false }), calls: 1 }
}

/// A failure that cost this many calls.
fn failure(error: RequestError, calls: usize) -> ListOutcome {
    ListOutcome { answer: Err(error), calls }
}

fn status_error(status: StatusCode) -> RequestError {
    let (code, text, advice) = ("SoItIs".to_owned(), "so it is".to_owned(), String::new());
    RequestError::Status { status, code, text, advice }
}

#[tokio::test]
async fn poll_period_grows_with_the_number_of_scale_sets() {
    let options = AzureOptions::default();
    for (count, wanted) in [(1, 30), (6, 30), (20, 97), (100, 504), (300, 1504)] {
        let mut poll = following(count, &options);
        let (list, _) = poll.next().unwrap();
        assert!(matches!(list, List::ScaleSets(_)), "{list:?}");
        assert_eq!(poll.next().map(|(list, _)| list), None, "nothing else is known");
        poll.take(&list, answer(sets(count)), false, Timestamp::UNIX_EPOCH);
        let Periods { machines, interfaces } = poll.periods(false);
        assert!(machines.as_secs().abs_diff(wanted) <= 2, "{count}: {machines:?}");
        // Within the budget, interfaces are requested every ten minutes.
        assert_eq!(interfaces, INTERFACES.max(if count > 50 { machines * 4 } else { machines }));
        let slower = Periods { machines: machines * SLOWER, interfaces: interfaces * SLOWER };
        assert_eq!(poll.periods(true), slower);
    }
}

#[tokio::test]
async fn machine_missing_on_shifted_pages_is_checked_again() {
    let mut poll = following(1, &AzureOptions::default());
    let (list, _) = poll.next().unwrap();
    poll.take(&list, answer(sets(1)), false, Timestamp::UNIX_EPOCH);
    let (list, _) = poll.next().unwrap();
    poll.take(&list, answer(machines(0..4)), false, Timestamp::UNIX_EPOCH);
    let known = |poll: &Poll| poll.lists.machines(&list).unwrap().good.len();
    // Two machines vanish, and one is back in the repeated answer.
    poll.take(&list, answer(machines([0, 3])), false, Timestamp::UNIX_EPOCH);
    assert_eq!(known(&poll), 4, "an incomplete answer removes no machine");
    poll.take(&list, answer(machines([0, 1])), false, Timestamp::UNIX_EPOCH);
    assert_eq!(known(&poll), 3, "only the machine that both answers lack is removed");
    poll.take(&list, answer(machines(0..6)), false, Timestamp::UNIX_EPOCH);
    assert_eq!(known(&poll), 6, "new machines count at once");
}

#[tokio::test]
async fn throttled_poll_waits_and_keeps_reporting_the_reason() {
    let mut poll = following(1, &AzureOptions::default());
    let (list, _) = poll.next().unwrap();
    let error = RequestError::Status {
        status: StatusCode::TOO_MANY_REQUESTS,
        code: "TooManyRequests".to_owned(),
        text: "so many".to_owned(),
        advice: String::new(),
    };
    poll.take(&list, failure(error, 1), false, Timestamp::UNIX_EPOCH);
    let (wait, now) = (Duration::from_secs(120), Instant::now());
    let throttled = failure(RequestError::Throttled(wait), 0);
    poll.take(&list, throttled, false, Timestamp::UNIX_EPOCH);
    assert!(poll.deadline().unwrap() >= now + wait);
    let report = poll.news().unwrap().report;
    let reasons: Vec<_> = report.troubles.values().map(|stale| stale.reason.clone()).collect();
    assert!(matches!(&*reasons, [reason] if reason.contains("so many")), "{reasons:?}");
    assert!(report.stale.is_none() && !report.is_complete);
}

#[tokio::test]
async fn query_with_missing_or_invalid_scope_is_reported() {
    let mut poll = Poll::new(&AzureOptions::default());
    let nowhere = AzureQuery { subscription: None, ..query(0) };
    poll.follow([("web".parse().unwrap(), vec![nowhere])].into(), Timestamp::UNIX_EPOCH);
    let report = poll.news().unwrap().report;
    let reason = &report.troubles.values().next().unwrap().reason;
    assert!(reason.contains("set `subscription`"), "{reason}");
    let odd = AzureQuery { resource_group: Some("g' or 'x".into()), ..query(0) };
    poll.follow([("web".parse().unwrap(), vec![odd])].into(), Timestamp::UNIX_EPOCH);
    let report = poll.news().unwrap().report;
    let reason = &report.troubles.values().next().unwrap().reason;
    assert!(reason.contains("no name of a subscription or resource group"), "{reason}");
    assert!(poll.next().is_none(), "there is no request");
}

#[tokio::test]
async fn machine_without_interface_makes_report_non_authoritative() {
    let mut poll = following(1, &AzureOptions::default());
    for contents in [sets(1), machines([0]), Contents::Interfaces(BTreeMap::new())] {
        let (list, _) = poll.next().unwrap();
        poll.take(&list, answer(contents), false, Timestamp::UNIX_EPOCH);
    }
    let report = poll.news().unwrap();
    let found = report.report.services.values().next().unwrap();
    assert_eq!(found.problems.len(), 1, "{found:?}");
    assert!(found.endpoints.is_empty() && !found.is_authoritative, "{found:?}");
}

/// The answer of a healthy Azure: each scale set has a machine, which has an address.
fn well(list: &List, count: usize) -> ListOutcome {
    let machine_of = |list: &List| {
        let set = list.scale_set().unwrap().text();
        ResourceId::parse(&format!("{set}/virtualMachines/0")).unwrap()
    };
    answer(match list {
        List::ScaleSets(_) => sets(count),
        List::UniformMachines(_) => machine_list([machine(machine_of(list))]),
        _ => {
            let id = machine_of(list);
            let interface = Interface {
                id: id.clone(),
                is_primary: true,
                addresses: vec![[10, 0, 0, 1].into()],
                unreadable: None,
            };
            Contents::Interfaces([(id, vec![interface])].into())
        }
    })
}

/// Returns all calls within a virtual time span.
async fn calls(
    poll: &mut Poll,
    time: Duration,
    mut answer: impl FnMut(&List) -> ListOutcome,
) -> Vec<(List, Instant)> {
    let (end, mut calls) = (Instant::now() + time, Vec::new());
    let before = poll.budget.made_in_all();
    loop {
        while let Some((list, _)) = poll.next() {
            let outcome = answer(&list);
            calls.extend(std::iter::repeat_n((list.clone(), Instant::now()), outcome.calls));
            poll.made(before + u64::try_from(calls.len()).unwrap());
            poll.take(&list, outcome, false, Timestamp::UNIX_EPOCH);
        }
        let next = poll.deadline().unwrap();
        if next > end {
            return calls;
        }
        tokio::time::sleep_until(next).await;
    }
}

/// Returns the largest number of calls within an hour.
fn most(calls: &[(List, Instant)]) -> usize {
    let within = |(n, (_, from)): (usize, &(List, Instant))| {
        calls.partition_point(|(_, at)| *at < *from + HOUR) - n
    };
    calls.iter().enumerate().map(within).max().unwrap_or(0)
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn polls_stay_within_hourly_quota_for_any_scale_set_count() {
    for (count, reads_per_hour) in [(1, 1000), (20, 1000), (100, 1000), (200, 1000), (200, 3000)] {
        let options = AzureOptions { reads_per_hour, ..AzureOptions::default() };
        let mut poll = following(count, &options);
        let calls = calls(&mut poll, HOUR * 5, |list| well(list, count)).await;
        let most = most(&calls);
        let may_be = usize::try_from(reads_per_hour).unwrap();
        assert!(most <= may_be, "{count}: {most} of {may_be}");
        // With many lists, the schedule uses the budget.
        assert!(count < 50 || most * 10 > may_be * 8, "{count}: {most} of {may_be}");
        // No list is left out, and all are requested about equally often.
        let mut of_each: BTreeMap<_, usize> = BTreeMap::new();
        for (list, _) in calls.iter().filter(|(list, _)| !list.is_of_interfaces()) {
            *of_each.entry(list.clone()).or_default() += 1;
        }
        let (least, most) = (of_each.values().min().unwrap(), of_each.values().max().unwrap());
        assert_eq!(of_each.len(), count + 1);
        assert!(least * 3 >= most * 2, "{count}: {least} {most}");
        // First requests are not delayed.
        let firsts: BTreeMap<_, _> = calls.iter().rev().cloned().collect();
        assert_eq!(firsts.values().max(), firsts.values().min(), "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn polls_stay_within_hourly_quota_during_failures() {
    let count = 200;
    let mut poll = following(count, &AzureOptions::default());
    let mut n = 0;
    // These lists fail permanently: without an answer, or because a role is missing.
    let is_lost = |list: &List| match list.scale_set().map(ResourceId::name) {
        Some(name) => name.ends_with('7') || name.ends_with('3'),
        None => false,
    };
    let calls = calls(&mut poll, HOUR * 5, |list| {
        n += 1;
        let failed = || RequestError::Malformed("so it is".to_owned());
        match (list, n % 4) {
            (list, _) if is_lost(list) && n > 500 => {
                let is_denied = list.scale_set().unwrap().name().ends_with('7');
                if is_denied {
                    failure(status_error(StatusCode::FORBIDDEN), 1)
                } else {
                    failure(failed(), 3)
                }
            }
            // A failure with three attempts.
            (_, 0) if n > 1000 => failure(failed(), 3),
            (_, 1) if n > 1000 => failure(RequestError::Throttled(Duration::from_secs(5)), 0),
            // Machines vanish or appear, so that interfaces are requested.
            (List::UniformMachines(_), 2) => answer(machines([])),
            (List::UniformInterfaces(_), 2) => {
                let empty = answer(Contents::Interfaces(BTreeMap::new()));
                ListOutcome { calls: 2, ..empty }
            }
            _ => well(list, count),
        }
    })
    .await;
    assert!(most(&calls) <= 1000, "{}", most(&calls));
    assert!(calls.len() > 4000, "{}", calls.len());
    assert_no_favour(&calls, is_lost);
}

/// Fails the test if permanently failing lists were requested more often than others within the
/// last hours.
fn assert_no_favour(calls: &[(List, Instant)], is_lost: impl Fn(&List) -> bool) {
    let (_, end) = calls.last().unwrap();
    // Attempts of one request count once.
    let requests: BTreeSet<_> = calls.iter().filter(|(_, at)| *at + HOUR * 3 > *end).collect();
    let each = |of_lost: bool| {
        let is_it = |(list, _): &&&(List, Instant)| {
            matches!(list, List::UniformMachines(_)) && is_lost(list) == of_lost
        };
        let lists: BTreeSet<_> = requests.iter().filter(is_it).map(|(list, _)| list).collect();
        let count = requests.iter().filter(is_it).count();
        f64::from(u32::try_from(count).unwrap()) / f64::from(u32::try_from(lists.len()).unwrap())
    };
    let (lost, healthy) = (each(true), each(false));
    assert!(lost > 1.0, "{lost}: they are requested");
    assert!(lost <= healthy * 1.1, "{lost} {healthy}");
}

#[tokio::test(start_paused = true)]
async fn failing_list_is_polled_no_more_often_than_a_healthy_one() {
    // With so many lists, each is requested every eight minutes.
    let count = 100;
    let mut poll = following(count, &AzureOptions::default());
    let is_lost = |list: &List| list.scale_set().is_some_and(|set| set.name().ends_with('7'));
    let calls = calls(&mut poll, HOUR * 5, |list| {
        if is_lost(list) {
            failure(status_error(StatusCode::FORBIDDEN), 1)
        } else {
            well(list, count)
        }
    })
    .await;
    assert!(most(&calls) <= 1000, "{}", most(&calls));
    assert_no_favour(&calls, is_lost);
}

/// Returns the time until all of these scale sets are known, if lists of these kinds fail within
/// the first minute.
async fn known_after(
    count: usize,
    is_away: impl Fn(&List) -> bool,
    failed: impl Fn() -> ListOutcome,
) -> Duration {
    const OUTAGE: Duration = Duration::from_secs(60);
    let mut poll = following(count, &AzureOptions::default());
    let begun = Instant::now();
    let calls = calls(&mut poll, HOUR, |list| {
        if begun.elapsed() < OUTAGE && is_away(list) {
            return failed();
        }
        well(list, count)
    });
    let mut calls = calls.await;
    assert!(poll.lists.0.values().all(|held| held.contents.is_some()));
    let first = |list: &List| {
        let good =
            calls.iter().filter(|(of, at)| of == list && (!is_away(of) || *at >= begun + OUTAGE));
        good.map(|(_, at)| *at).min().unwrap()
    };
    let last = poll.lists.0.keys().map(first).max().unwrap();
    calls.retain(|(list, at)| *at < begun + OUTAGE && is_away(list));
    // Failing calls leave budget for the recovery of Azure.
    assert!(calls.len() <= 150, "{} calls in vain", calls.len());
    last - begun
}

#[tokio::test(start_paused = true)]
async fn poll_recovers_soon_after_azure_outage_at_startup() {
    let broken = || failure(status_error(StatusCode::SERVICE_UNAVAILABLE), 3);
    let denied = || failure(status_error(StatusCode::FORBIDDEN), 1);
    let bound = Duration::from_secs(60 + 120);
    for count in [1, 20, 200] {
        for failed in [&broken as &dyn Fn() -> ListOutcome, &denied] {
            let all = known_after(count, |_| true, failed).await;
            assert!(all <= bound, "{count}: {all:?}");
            let but_sets = |list: &List| !matches!(list, List::ScaleSets(_));
            let all = known_after(count, but_sets, failed).await;
            assert!(all <= bound, "{count}: {all:?}");
            let all = known_after(count, List::is_of_interfaces, failed).await;
            assert!(all <= bound, "{count}: {all:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn changing_leadership_does_not_increase_polling() {
    let count = 200;
    let mut poll = following(count, &AzureOptions::default());
    let mut made = Vec::new();
    for _ in 0..20 {
        made.extend(calls(&mut poll, Duration::from_secs(10), |list| well(list, count)).await);
        poll.rest();
        tokio::time::sleep(Duration::from_secs(3)).await;
        poll.plan();
    }
    // One request of each list, and then what the budget refills within these minutes.
    assert!((401..=500).contains(&made.len()), "{}", made.len());
    made.extend(calls(&mut poll, HOUR * 3, |list| well(list, count)).await);
    assert!(most(&made) <= 1000, "{}", most(&made));
    assert!(poll.lists.0.len() == 401 && poll.lists.0.values().all(|held| held.contents.is_some()));
}

#[tokio::test(start_paused = true)]
async fn missing_scale_set_triggers_an_immediate_lookup() {
    let mut poll = following(1, &AzureOptions::default());
    let _ = calls(&mut poll, Duration::from_secs(1), |list| well(list, 1)).await;
    assert_eq!(poll.next().map(|(list, _)| list), None, "nothing is due");
    let gone = List::UniformMachines(set(0).id);
    let other = failure(status_error(StatusCode::CONFLICT), 1);
    poll.take(&gone, other, false, Timestamp::UNIX_EPOCH);
    assert_eq!(
        poll.next().map(|(list, _)| list),
        None,
        "a conflict does not prove that the scale set is gone"
    );
    poll.take(&gone, failure(status_error(StatusCode::NOT_FOUND), 1), false, Timestamp::UNIX_EPOCH);
    let (list, _) = poll.next().unwrap();
    assert!(matches!(list, List::ScaleSets(_)), "{list:?}");
    let found = |poll: &mut Poll| {
        let report = poll.news().unwrap().report;
        Arc::clone(report.services.values().next().unwrap())
    };
    let known = found(&mut poll);
    let stale = known.stale.as_ref().unwrap();
    assert!(stale.reason.contains("404") && known.endpoints.len() == 1, "{known:?}");
    // It is checked twice: a missing entry may be on a page that has shifted.
    poll.take(&list, answer(sets(0)), false, Timestamp::UNIX_EPOCH);
    tokio::time::sleep_until(poll.deadline().unwrap()).await;
    let (list, _) = poll.next().unwrap();
    poll.take(&list, answer(sets(0)), false, Timestamp::UNIX_EPOCH);
    let known = found(&mut poll);
    assert!(known.endpoints.is_empty() && known.stale.is_none(), "{known:?}");
}
