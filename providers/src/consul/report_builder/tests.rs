//! Reports built from answers of Consul: what they include, and when they are authoritative.

use std::net::IpAddr;

use ironmesh_catalog::{Endpoint, Health, Provider};

use super::*;
use crate::Problem;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn found(hosts: &[u8], index: u64) -> QueryUpdate {
    let endpoint = |host: &u8| Endpoint {
        port: Some(80),
        instance: Some(format!("n{host}/web").into()),
        ..Endpoint::new(Provider::Consul, IpAddr::from([10, 0, 0, *host]))
    };
    found_endpoints(hosts.iter().map(endpoint).collect(), index)
}

fn found_endpoints(endpoints: Vec<Endpoint>, index: u64) -> QueryUpdate {
    QueryUpdate::Found(Found {
        endpoints: Arc::new(endpoints),
        problems: Arc::default(),
        index,
        is_authoritative: true,
    })
}

fn service_queries(
    service: &str,
    own: Option<&str>,
    tagged: &[&str],
) -> (ServiceName, ServiceQueries) {
    let tagged = tagged.iter().map(|&name| ConsulQuery::of(name)).collect();
    (
        service.parse().unwrap(),
        ServiceQueries { own: own.map(ConsulQuery::of), tagged, is_all_tagged: true },
    )
}

fn service_report(builder: &ReportBuilder, service: &str) -> Option<Arc<ServiceReport>> {
    builder.report.services.get(&service.parse::<ServiceName>().unwrap()).cloned()
}

fn hosts(builder: &ReportBuilder, service: &str) -> Vec<String> {
    let service_report = service_report(builder, service).unwrap();
    service_report.endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect()
}

fn take(builder: &mut ReportBuilder, service: &str, news: QueryUpdate, second: i64) {
    builder.take(&Arc::new(ConsulQuery::of(service)), news, at(second));
}

#[test]
fn service_is_unknown_until_its_first_answer_even_if_empty() {
    let mut builder = ReportBuilder::default();
    builder.set_queries([service_queries("web", Some("web"), &[])].into(), true, at(1));
    assert!(builder.news().is_none_or(|report| report.services.is_empty()));
    take(&mut builder, "web", QueryUpdate::Trouble("no".to_owned()), 2);
    assert_eq!(service_report(&builder, "web"), None);
    take(&mut builder, "web", found(&[], 3), 3);
    assert_eq!(hosts(&builder, "web"), [""; 0]);
    let news = builder.news().unwrap();
    assert!(news.services.len() == 1 && news.stale.is_none());
    assert_eq!(builder.news(), None, "it is reported once");
}

#[test]
fn learned_at_changes_only_with_the_endpoints() {
    let mut builder = ReportBuilder::default();
    builder.set_queries([service_queries("web", Some("web"), &[])].into(), true, at(1));
    take(&mut builder, "web", found(&[1], 3), 3);
    take(&mut builder, "web", QueryUpdate::Trouble("first".to_owned()), 4);
    take(&mut builder, "web", QueryUpdate::Trouble("second".to_owned()), 5);
    let stale = service_report(&builder, "web").unwrap().stale.clone().unwrap();
    assert_eq!((stale.since, stale.reason.as_str()), (at(4), "second"));
    take(&mut builder, "web", found(&[1], 6), 6);
    let known = service_report(&builder, "web").unwrap();
    assert_eq!((known.learned_at, known.stale.clone()), (at(3), None));
    take(&mut builder, "web", found(&[2], 7), 7);
    assert_eq!(service_report(&builder, "web").unwrap().learned_at, at(7));
}

#[test]
fn report_combines_queries_once_each_has_an_outcome() {
    let mut builder = ReportBuilder::default();
    builder.set_queries([service_queries("web", Some("web"), &["tagged"])].into(), true, at(1));
    take(&mut builder, "web", found(&[1, 2], 3), 3);
    assert_eq!(service_report(&builder, "web"), None, "half a report would look like a loss");
    take(&mut builder, "tagged", found(&[2, 3], 4), 4);
    assert_eq!(hosts(&builder, "web"), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let known = service_report(&builder, "web").unwrap();
    assert_eq!((known.problems.as_slice(), known.index), (&[][..] as &[Problem], 4));

    // An instance registers by another Consul service: until its query has an answer, the report
    // stays.
    let queries = builder.set_queries(
        [service_queries("web", Some("web"), &["tagged", "new"])].into(),
        true,
        at(5),
    );
    assert_eq!(queries.len(), 3);
    assert_eq!(hosts(&builder, "web").len(), 3);
    // A query without an answer is left out, and the report is not authoritative.
    take(&mut builder, "new", QueryUpdate::Trouble("denied".to_owned()), 6);
    let known = service_report(&builder, "web").unwrap();
    assert_eq!((known.endpoints.len(), known.is_authoritative), (3, false));
    take(&mut builder, "new", found(&[9], 7), 7);
    assert_eq!(hosts(&builder, "web").len(), 4);
    assert!(service_report(&builder, "web").unwrap().is_authoritative);
    builder.set_queries([service_queries("web", Some("web"), &[])].into(), true, at(8));
    assert_eq!(hosts(&builder, "web"), ["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn endpoints_of_a_replaced_query_are_forgotten() {
    let mut builder = ReportBuilder::default();
    let both =
        [service_queries("web", Some("web"), &[]), service_queries("same", Some("web"), &[])];
    assert_eq!(builder.set_queries(both.into(), true, at(1)).len(), 1);
    take(&mut builder, "web", found(&[1], 3), 3);
    assert!(Arc::ptr_eq(
        &service_report(&builder, "web").unwrap().endpoints,
        &service_report(&builder, "same").unwrap().endpoints
    ));
    builder.news();
    builder.set_queries(
        [service_queries("web", Some("other"), &[]), service_queries("same", Some("web"), &[])]
            .into(),
        true,
        at(4),
    );
    assert_eq!(service_report(&builder, "web"), None);
    assert_eq!(hosts(&builder, "same"), ["10.0.0.1"]);
    assert!(builder.news().is_some());
    // A late answer to a query that no service has any more.
    builder.set_queries([].into(), true, at(5));
    take(&mut builder, "web", found(&[2], 6), 6);
    assert!(builder.report.services.is_empty());
}

#[test]
fn stale_since_is_kept_while_the_reason_changes() {
    let mut builder = ReportBuilder::default();
    builder.stale(Some("one".into()), at(1));
    builder.stale(Some("two".into()), at(2));
    let stale = builder.news().unwrap().stale.unwrap();
    assert_eq!((stale.since, stale.reason.as_str()), (at(1), "two"));
    builder.stale(None, at(3));
    assert_eq!(builder.news().unwrap().stale, None);
}

#[test]
fn report_is_complete_when_services_and_tags_are_known() {
    let mut builder = ReportBuilder::default();
    let is_complete = |builder: &mut ReportBuilder| {
        builder.news();
        builder.report.is_complete
    };
    assert!(!is_complete(&mut builder), "the service has no answer");
    builder.set_queries([].into(), false, at(1));
    assert!(!is_complete(&mut builder), "the registrations are unknown");
    assert!(!builder.report.has_discovered_services);
    builder.set_queries([service_queries("web", Some("web"), &[])].into(), true, at(2));
    assert!(!is_complete(&mut builder) && builder.report.has_discovered_services);
    take(&mut builder, "web", found(&[], 3), 3);
    assert!(is_complete(&mut builder));
}

#[test]
fn failure_of_a_never_answered_query_is_reported() {
    let mut builder = ReportBuilder::default();
    builder.set_queries([service_queries("web", Some("web"), &[])].into(), true, at(1));
    for now in [at(2), at(3)] {
        let query = Arc::new(ConsulQuery::of("web"));
        builder.take(&query, QueryUpdate::Trouble("the filter is invalid".to_owned()), now);
    }
    let report = builder.news().unwrap();
    let trouble = report.troubles.values().next().unwrap();
    assert_eq!((trouble.since, trouble.reason.as_str()), (at(2), "the filter is invalid"));
    assert!(report.services.is_empty() && !report.is_complete);
    take(&mut builder, "web", found(&[1], 4), 4);
    assert!(builder.news().unwrap().troubles.is_empty());
}

#[test]
fn report_is_authoritative_only_if_all_tags_are_known() {
    let mut builder = ReportBuilder::default();
    let with_own = |own, is_all_tagged| {
        let (name, own) = service_queries("web", own, &[]);
        [(name, ServiceQueries { is_all_tagged, ..own })].into()
    };
    builder.set_queries(with_own(None, false), true, at(1));
    assert!(!service_report(&builder, "web").unwrap().is_authoritative);
    builder.set_queries(with_own(None, true), true, at(2));
    assert!(service_report(&builder, "web").unwrap().is_authoritative);
    builder.set_queries(with_own(Some("web"), true), true, at(3));
    take(&mut builder, "web", found(&[1], 7), 4);
    assert!(service_report(&builder, "web").unwrap().is_authoritative);
    builder.set_queries(with_own(Some("web"), false), true, at(5));
    assert!(
        !service_report(&builder, "web").unwrap().is_authoritative,
        "other instances may have registered"
    );
}

#[test]
fn tagged_services_beyond_the_limit_are_reported_not_queried() {
    let mut builder = ReportBuilder::default();
    let names: Vec<_> = (0..MAX_TAGGED + 3).map(|n| format!("s{n:03}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let queries =
        builder.set_queries([service_queries("web", Some("web"), &names)].into(), true, at(1));
    assert_eq!(queries.len(), 1 + MAX_TAGGED);
    for query in queries {
        builder.take(&query, found(&[1], 7), at(2));
    }
    let service_report = service_report(&builder, "web").unwrap();
    let [problem] = &service_report.problems[..] else { panic!("{:?}", service_report.problems) };
    assert_eq!(problem.instance, names[MAX_TAGGED]);
    assert!(problem.reason.contains("the 2 after it"), "{}", problem.reason);
    assert!(service_report.is_authoritative);
}

#[test]
fn instance_of_policy_query_wins_over_tagged_query() {
    let mut builder = ReportBuilder::default();
    builder.set_queries([service_queries("web", Some("web"), &["other"])].into(), true, at(1));
    let at_address = |host: u8, instance: &str, health| {
        let endpoint = Endpoint {
            port: Some(80),
            health,
            instance: Some(instance.into()),
            ..Endpoint::new(Provider::Consul, IpAddr::from([10, 0, 0, host]))
        };
        found_endpoints(vec![endpoint], 7)
    };
    take(&mut builder, "web", at_address(9, "n/a", Health::Unhealthy), 2);
    take(&mut builder, "other", at_address(1, "n/a", Health::Healthy), 3);
    assert_eq!(hosts(&builder, "web"), ["10.0.0.9"]);
    take(&mut builder, "other", at_address(1, "n/b", Health::Healthy), 4);
    assert_eq!(hosts(&builder, "web"), ["10.0.0.1", "10.0.0.9"]);
}

#[test]
fn board_marks_exactly_the_instances_registered_by_tag() {
    let mut builder = ReportBuilder::default();
    builder.set_queries([service_queries("web", Some("web"), &["canary"])].into(), true, at(1));
    take(&mut builder, "web", found(&[1, 2], 3), 2);
    take(&mut builder, "canary", found(&[2, 3], 3), 2);
    let tagged = |builder: &ReportBuilder| -> Vec<_> {
        let service_report = service_report(builder, "web").unwrap();
        service_report.endpoints.iter().map(|one| one.selected_by_tag).collect()
    };
    assert_eq!((hosts(&builder, "web").len(), tagged(&builder)), (3, vec![false, false, true]));
    builder.set_queries([service_queries("web", None, &["canary"])].into(), true, at(4));
    assert_eq!(tagged(&builder), [true, true], "policy does not request them any more");
}

#[test]
fn tag_registered_instance_does_not_displace_unhealthy_one() {
    let place = |name: &str, health, selected_by_tag| Endpoint {
        port: Some(80),
        health,
        selected_by_tag,
        instance: Some(name.into()),
        ..Endpoint::new(Provider::Consul, IpAddr::from([10, 0, 0, 1]))
    };
    let own = place("n/web", Health::Unhealthy, false);
    let mut problems = Vec::new();
    let kept = distinct(vec![place("a/web", Health::Healthy, true), own.clone()], &mut problems);
    assert_eq!((kept, problems.len()), (vec![own], 1));
}
