//! Tests of adopting the report of another control plane.

use ironmesh_catalog::Provider;

use super::*;

fn query(set: &str) -> AzureQuery {
    AzureQuery {
        machines: AzureMachines::ScaleSet(Some(set.into())),
        subscription: Some("s".into()),
        resource_group: Some("g".into()),
        tags: BTreeMap::new(),
        port: Some(80),
        address_family: AddressFamily::Ipv4,
        join: None,
    }
}

fn name(service: &str) -> ServiceName {
    service.parse().unwrap()
}

fn asking<'a>(
    services: impl IntoIterator<Item = (&'a str, AzureQuery)>,
) -> BTreeMap<ServiceName, Vec<AzureQuery>> {
    services.into_iter().map(|(service, query)| (name(service), vec![query])).collect()
}

/// A builder with these queries, and with an endpoint for each service.
fn finding<'a>(services: impl IntoIterator<Item = (&'a str, AzureQuery)>) -> ReportBuilder {
    let mut builder = ReportBuilder::default();
    builder.set_queries(asking(services));
    for name in builder.queries.clone().into_keys() {
        let endpoint = Endpoint::new(Provider::Azure, [10, 0, 0, 1].into());
        let service_report = ServiceReport {
            endpoints: Arc::new(vec![endpoint]),
            index: 1,
            learned_at: Timestamp::UNIX_EPOCH,
            is_authoritative: true,
            problems: Arc::default(),
            stale: None,
        };
        builder.publish(&name, service_report);
    }
    builder
}

fn known(builder: &ReportBuilder) -> Vec<String> {
    builder.report.services.keys().map(ToString::to_string).collect()
}

#[test]
fn answer_to_a_different_query_is_ignored() {
    let shared = finding([("web", query("web")), ("api", query("old"))]).news().unwrap();
    let mut builder = ReportBuilder::default();
    builder.set_queries(asking([("web", query("web")), ("api", query("new"))]));
    builder.adopt(&shared);
    assert_eq!(known(&builder), ["default/web"]);
    assert!(!builder.news().unwrap().report.is_complete);
    // The endpoints of a former query are dropped, and do not return.
    builder.set_queries(asking([("web", query("other")), ("api", query("old"))]));
    assert_eq!(known(&builder), [""; 0]);
    builder.adopt(&shared);
    assert_eq!(known(&builder), ["default/api"]);
    // The other control plane has the new policy, too.
    builder.adopt(&finding([("web", query("other")), ("api", query("old"))]).news().unwrap());
    assert!(builder.news().unwrap().report.is_complete);
}

#[test]
fn service_dropped_by_the_leader_is_forgotten() {
    let both = || [("web", query("web")), ("api", query("api"))];
    let mut builder = finding(both());
    // A control plane that has just started knows nothing yet.
    builder.adopt(&SharedReport::default());
    assert_eq!(known(&builder), ["default/api", "default/web"]);
    let mut begins = ReportBuilder::default();
    begins.set_queries(asking(both()));
    builder.adopt(&begins.news().unwrap());
    assert_eq!(known(&builder), ["default/api", "default/web"]);
    builder.adopt(&finding([("web", query("web"))]).news().unwrap());
    assert_eq!(known(&builder), ["default/web"]);
    assert!(!builder.news().unwrap().report.is_complete);
}

#[test]
fn every_query_field_distinguishes_queries() {
    let of = |query| fingerprints(&asking([("web", query)])).remove(&name("web")).unwrap();
    let base = query("web");
    let others = [
        query("other"),
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
