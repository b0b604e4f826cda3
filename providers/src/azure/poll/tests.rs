//! How often Azure is asked, and what is believed of what it says.

use ironmesh_catalog::{AddressFamily, AzureMachines};

use super::super::machines::{Entries, Machine, ScaleSet, State, Tags};
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
    for (count, wanted) in [(1, 30), (5, 30), (20, 85)] {
        let mut poll = following(count, &options);
        let (list, _) = poll.next().unwrap();
        assert!(matches!(list, List::ScaleSets(_)), "{list:?}");
        assert_eq!(poll.next().map(|(list, _)| list), None, "nothing else is known");
        poll.take(&list, answer(sets(count)), false, Timestamp::UNIX_EPOCH);
        let period = poll.period(false);
        assert!(period.as_secs().abs_diff(wanted) <= 2, "{count}: {period:?}");
        assert_eq!(poll.period(true), period * SLOWER);
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
