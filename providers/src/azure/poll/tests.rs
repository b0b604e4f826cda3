//! How often Azure is asked, and what is believed of what it says.

use ironmesh_catalog::{AddressFamily, AzureMachines};

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

fn machines(numbers: impl IntoIterator<Item = usize>) -> Contents {
    let one = |n: usize| {
        let id = id(&format!("virtualMachineScaleSets/set0/virtualMachines/{n}"));
        let machine = Machine {
            id: id.clone(),
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
        };
        (id, machine)
    };
    let good = numbers.into_iter().map(one).collect();
    Contents::Machines(Entries { good, unreadable: Vec::new() })
}

fn question(n: usize) -> AzureQuery {
    AzureQuery {
        machines: AzureMachines::ScaleSet(Some(format!("set{n}").into())),
        subscription: Some("s".into()),
        resource_group: Some("g".into()),
        tags: BTreeMap::new(),
        port: Some(80),
        address_family: AddressFamily::Ipv4,
    }
}

fn following(services: usize, options: &AzureOptions) -> Poll {
    let mut poll = Poll::new(options);
    let asked = (0..services).map(|n| (format!("service{n}").parse().unwrap(), vec![question(n)]));
    poll.follow(asked.collect(), Timestamp::UNIX_EPOCH);
    poll
}

#[expect(clippy::unnecessary_wraps, reason = "as answers are taken")]
fn answer(contents: Contents) -> Result<Fetched, RequestError> {
    Ok(Fetched { contents, pages: 1, is_of_graph: false })
}

#[tokio::test]
async fn many_scale_sets_are_asked_for_less_often_each() {
    let options = AzureOptions::default();
    for (count, wanted) in [(1, 30), (6, 30), (20, 97), (100, 504), (300, 1504)] {
        let mut poll = following(count, &options);
        let (list, _) = poll.next().unwrap();
        assert!(matches!(list, List::ScaleSets(_)), "{list:?}");
        assert_eq!(poll.next().map(|(list, _)| list), None, "nothing else is known");
        poll.take(&list, answer(sets(count)), false, Timestamp::UNIX_EPOCH);
        let Periods { machines, interfaces } = poll.periods(false);
        assert!(machines.as_secs().abs_diff(wanted) <= 2, "{count}: {machines:?}");
        // Where there is room, addresses are looked at every ten minutes.
        assert_eq!(interfaces, INTERFACES.max(if count > 50 { machines * 4 } else { machines }));
        let slower = Periods { machines: machines * SLOWER, interfaces: interfaces * SLOWER };
        assert_eq!(poll.periods(true), slower);
    }
}

#[tokio::test]
async fn who_is_missing_on_shifting_pages_is_looked_for_again() {
    let mut poll = following(1, &AzureOptions::default());
    let (list, _) = poll.next().unwrap();
    poll.take(&list, answer(sets(1)), false, Timestamp::UNIX_EPOCH);
    let (list, _) = poll.next().unwrap();
    poll.take(&list, answer(machines(0..4)), false, Timestamp::UNIX_EPOCH);
    let known = |poll: &Poll| poll.lists.machines(&list).unwrap().good.len();
    // Two vanish, and one of them is there again when it is looked for.
    poll.take(&list, answer(machines([0, 3])), false, Timestamp::UNIX_EPOCH);
    assert_eq!(known(&poll), 4, "it is doubted");
    poll.take(&list, answer(machines([0, 1])), false, Timestamp::UNIX_EPOCH);
    assert_eq!(known(&poll), 3, "one is missing in both");
    poll.take(&list, answer(machines(0..6)), false, Timestamp::UNIX_EPOCH);
    assert_eq!(known(&poll), 6, "who comes is believed at once");
}

#[tokio::test]
async fn who_was_asked_too_often_is_left_alone_and_says_still_why() {
    let mut poll = following(1, &AzureOptions::default());
    let (list, _) = poll.next().unwrap();
    let refused = RequestError::Status {
        status: StatusCode::TOO_MANY_REQUESTS,
        code: "TooManyRequests".to_owned(),
        text: "so many".to_owned(),
        advice: String::new(),
    };
    poll.take(&list, Err(refused), false, Timestamp::UNIX_EPOCH);
    let (wait, now) = (Duration::from_secs(120), Instant::now());
    poll.take(&list, Err(RequestError::Throttled(wait)), false, Timestamp::UNIX_EPOCH);
    assert!(poll.deadline().unwrap() >= now + wait);
    let told = poll.news().unwrap().sightings;
    let reasons: Vec<_> = told.troubles.values().map(|stale| stale.reason.clone()).collect();
    assert!(matches!(&*reasons, [reason] if reason.contains("so many")), "{reasons:?}");
    assert!(told.stale.is_none() && !told.is_complete);
}

#[tokio::test]
async fn without_a_subscription_it_is_said_what_to_set() {
    let mut poll = Poll::new(&AzureOptions::default());
    let nowhere = AzureQuery { subscription: None, ..question(0) };
    poll.follow([("web".parse().unwrap(), vec![nowhere])].into(), Timestamp::UNIX_EPOCH);
    let told = poll.news().unwrap().sightings;
    let reason = &told.troubles.values().next().unwrap().reason;
    assert!(reason.contains("set `subscription`"), "{reason}");
    let odd = AzureQuery { resource_group: Some("g' or 'x".into()), ..question(0) };
    poll.follow([("web".parse().unwrap(), vec![odd])].into(), Timestamp::UNIX_EPOCH);
    let told = poll.news().unwrap().sightings;
    let reason = &told.troubles.values().next().unwrap().reason;
    assert!(reason.contains("no name of a subscription or resource group"), "{reason}");
    assert!(poll.next().is_none(), "nothing is asked");
}

#[tokio::test]
async fn who_cannot_be_judged_is_vouched_for_only_where_nobody_was_missing_before() {
    let mut poll = following(1, &AzureOptions::default());
    for contents in [sets(1), machines([0]), Contents::Interfaces(BTreeMap::new())] {
        let (list, _) = poll.next().unwrap();
        poll.take(&list, answer(contents), false, Timestamp::UNIX_EPOCH);
    }
    let told = poll.news().unwrap();
    let found = told.sightings.services.values().next().unwrap();
    assert_eq!(found.problems.len(), 1, "{found:?}");
    assert!(found.endpoints.is_empty() && !found.is_confirmed, "{found:?}");
}

/// What is answered where all is well: in each scale set there is a machine, which has an address.
fn well(list: &List, count: usize) -> Result<Fetched, RequestError> {
    let set_of = |list: &List| list.scale_set().unwrap().clone();
    let machine =
        |set: &ResourceId| ResourceId::parse(&format!("{}/virtualMachines/0", set.told())).unwrap();
    answer(match list {
        List::ScaleSets(_) => sets(count),
        List::UniformMachines(_) => {
            let Contents::Machines(mut one) = machines([0]) else { unreachable!() };
            let (_, first) = one.good.pop_first().unwrap();
            let id = machine(&set_of(list));
            one.good.insert(id.clone(), Machine { id, ..first });
            Contents::Machines(one)
        }
        _ => {
            let id = machine(&set_of(list));
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

/// All calls that are made within a time, which passes at once.
async fn calls(
    poll: &mut Poll,
    time: Duration,
    mut answer: impl FnMut(&List) -> (Result<Fetched, RequestError>, usize),
) -> Vec<(List, Instant)> {
    let (end, mut calls) = (Instant::now() + time, Vec::new());
    loop {
        while let Some((list, _)) = poll.next() {
            let (answer, cost) = answer(&list);
            calls.extend(std::iter::repeat_n((list.clone(), Instant::now()), cost));
            poll.made(u64::try_from(calls.len()).unwrap());
            poll.take(&list, answer, false, Timestamp::UNIX_EPOCH);
        }
        let next = poll.deadline().unwrap();
        if next > end {
            return calls;
        }
        tokio::time::sleep_until(next).await;
    }
}

/// How many calls are made within an hour, at most.
fn most(calls: &[(List, Instant)]) -> usize {
    let within = |(n, (_, from)): (usize, &(List, Instant))| {
        calls.partition_point(|(_, at)| *at < *from + HOUR) - n
    };
    calls.iter().enumerate().map(within).max().unwrap_or(0)
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn however_many_scale_sets_there_are_no_more_is_asked_within_an_hour_than_may_be() {
    for (count, reads_per_hour) in [(1, 1000), (20, 1000), (100, 1000), (200, 1000), (200, 3000)] {
        let options = AzureOptions { reads_per_hour, ..AzureOptions::default() };
        let mut poll = following(count, &options);
        let calls = calls(&mut poll, HOUR * 5, |list| (well(list, count), 1)).await;
        let most = most(&calls);
        let may_be = usize::try_from(reads_per_hour).unwrap();
        assert!(most <= may_be, "{count}: {most} of {may_be}");
        // What may be asked is asked, where there is so much to ask.
        assert!(count < 50 || most * 10 > may_be * 8, "{count}: {most} of {may_be}");
        // Nobody is left out, and all are asked about as often as each other.
        let mut of_each: BTreeMap<_, usize> = BTreeMap::new();
        for (list, _) in calls.iter().filter(|(list, _)| !list.is_of_interfaces()) {
            *of_each.entry(list.clone()).or_default() += 1;
        }
        let (least, most) = (of_each.values().min().unwrap(), of_each.values().max().unwrap());
        assert_eq!(of_each.len(), count + 1);
        assert!(least * 3 >= most * 2, "{count}: {least} {most}");
        // All is known as soon as ever.
        let firsts: BTreeMap<_, _> = calls.iter().rev().cloned().collect();
        assert_eq!(firsts.values().max(), firsts.values().min(), "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_goes_wrong_no_more_is_asked_within_an_hour_than_may_be() {
    let count = 200;
    let mut poll = following(count, &AzureOptions::default());
    let mut n = 0;
    let calls = calls(&mut poll, HOUR * 5, |list| {
        n += 1;
        let failed = || RequestError::Malformed("so it is".to_owned());
        match (list, n % 4) {
            // It is tried three times.
            (_, 0) if n > 1000 => (Err(failed()), 3),
            (_, 1) if n > 1000 => (Err(RequestError::Throttled(Duration::from_secs(5))), 0),
            // Machines vanish and are doubted, or come, so that interfaces are asked for.
            (List::UniformMachines(_), 2) => (answer(machines([])), 1),
            (List::UniformInterfaces(_), 2) => (answer(Contents::Interfaces(BTreeMap::new())), 2),
            _ => (well(list, count), 1),
        }
    })
    .await;
    assert!(most(&calls) <= 1000, "{}", most(&calls));
    assert!(calls.len() > 4000, "{}", calls.len());
}
