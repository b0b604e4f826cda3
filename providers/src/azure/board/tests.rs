//! What is taken of what another control plane has found.

use ironmesh_catalog::Provider;

use super::*;

fn question(set: &str) -> AzureQuery {
    AzureQuery {
        machines: AzureMachines::ScaleSet(Some(set.into())),
        subscription: Some("s".into()),
        resource_group: Some("g".into()),
        tags: BTreeMap::new(),
        port: Some(80),
        address_family: AddressFamily::Ipv4,
    }
}

fn name(service: &str) -> ServiceName {
    service.parse().unwrap()
}

fn asking<'a>(
    services: impl IntoIterator<Item = (&'a str, AzureQuery)>,
) -> BTreeMap<ServiceName, Vec<AzureQuery>> {
    services.into_iter().map(|(service, question)| (name(service), vec![question])).collect()
}

/// A board on which these services ask, and have found an endpoint each.
fn finding<'a>(services: impl IntoIterator<Item = (&'a str, AzureQuery)>) -> Board {
    let mut board = Board::default();
    board.ask(asking(services));
    for name in board.asked.clone().into_keys() {
        let endpoint = Endpoint::new(Provider::Azure, [10, 0, 0, 1].into());
        let sighting = ServiceReport {
            endpoints: Arc::new(vec![endpoint]),
            index: 1,
            learned_at: Timestamp::UNIX_EPOCH,
            is_authoritative: true,
            problems: Arc::default(),
            stale: None,
        };
        board.tell(&name, sighting);
    }
    board
}

fn known(board: &Board) -> Vec<String> {
    board.sightings.services.keys().map(ToString::to_string).collect()
}

#[test]
fn answer_to_a_different_query_is_ignored() {
    let told = finding([("web", question("web")), ("api", question("old"))]).news().unwrap();
    let mut board = Board::default();
    board.ask(asking([("web", question("web")), ("api", question("new"))]));
    board.take(&told);
    assert_eq!(known(&board), ["default/web"]);
    assert!(!board.news().unwrap().sightings.is_complete);
    // What was found for what it asked before goes with the question, and does not come back.
    board.ask(asking([("web", question("other")), ("api", question("old"))]));
    assert_eq!(known(&board), [""; 0]);
    board.take(&told);
    assert_eq!(known(&board), ["default/api"]);
    // The other one has the new policy too.
    board.take(&finding([("web", question("other")), ("api", question("old"))]).news().unwrap());
    assert!(board.news().unwrap().sightings.is_complete);
}

#[test]
fn service_dropped_by_the_leader_is_forgotten() {
    let both = || [("web", question("web")), ("api", question("api"))];
    let mut board = finding(both());
    // Who has just begun knows nothing yet.
    board.take(&Told::default());
    assert_eq!(known(&board), ["default/api", "default/web"]);
    let mut begins = Board::default();
    begins.ask(asking(both()));
    board.take(&begins.news().unwrap());
    assert_eq!(known(&board), ["default/api", "default/web"]);
    board.take(&finding([("web", question("web"))]).news().unwrap());
    assert_eq!(known(&board), ["default/web"]);
    assert!(!board.news().unwrap().sightings.is_complete);
}

#[test]
fn every_query_field_distinguishes_queries() {
    let of = |question| questions(&asking([("web", question)])).remove(&name("web")).unwrap();
    let base = question("web");
    let others = [
        question("other"),
        AzureQuery { machines: AzureMachines::ScaleSet(None), ..base.clone() },
        AzureQuery { machines: AzureMachines::VirtualMachines, ..base.clone() },
        AzureQuery { subscription: Some("t".into()), ..base.clone() },
        AzureQuery { subscription: None, ..base.clone() },
        AzureQuery { resource_group: None, ..base.clone() },
        AzureQuery { tags: [("a".into(), "b".into())].into(), ..base.clone() },
        AzureQuery { tags: [("a".into(), "c".into())].into(), ..base.clone() },
        AzureQuery { port: None, ..base.clone() },
        AzureQuery { address_family: AddressFamily::Ipv6, ..base.clone() },
    ];
    let distinct: BTreeSet<_> = others.iter().cloned().map(of).collect();
    assert_eq!(distinct.len(), others.len());
    assert!(!distinct.contains(&of(base.clone())));
    assert_eq!(of(base.clone()), of(base));
}
