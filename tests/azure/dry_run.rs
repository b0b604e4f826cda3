//! The dry run: its requests, their results, and the endpoints that it would find.

use ironmesh_catalog::{AzureMachines, AzureQuery};
use ironmesh_providers::azure::{AzureOptions, Survey, survey};
use ironmesh_tests::azure::FakeAzure;
use jiff::Timestamp;

use crate::watch::{options, scale_set, shop, tagged};

async fn run_survey(options: AzureOptions, services: &[(&str, AzureQuery)]) -> Survey {
    let services =
        services.iter().map(|(name, asks)| (name.parse().unwrap(), vec![asks.clone()])).collect();
    survey(options, services, Timestamp::now).await.unwrap()
}

#[tokio::test]
async fn dry_run_lists_each_call_and_its_endpoints() {
    let azure = shop().await;
    let found = run_survey(options(&azure), &[("web", scale_set("web"))]).await;
    let calls: Vec<_> = found.calls.iter().map(|call| (call.method, call.status)).collect();
    assert_eq!(calls, [("GET", Some(200)); 4], "{:#?}", found.calls);
    assert!(found.calls[0].url.contains("/metadata/identity/oauth2/token"));
    assert_eq!(found.calls[1].answer, "1 found: web");
    assert_eq!(found.calls[2].answer, "2 found: web_0, web_1");
    let shown = format!("{found:?}");
    assert!(!shown.contains("ey."), "a token is shown: {shown}");
    let service_report = found.report.services.values().next().unwrap();
    assert_eq!((service_report.endpoints.len(), service_report.is_authoritative), (2, true));
    assert!(found.report.is_complete);
    assert_eq!(azure.calls(), 3);
}

#[tokio::test]
async fn dry_run_names_the_missing_permission() {
    let azure = shop().await;
    azure.deny("Microsoft.Network/networkInterfaces/read");
    let db = tagged(AzureMachines::VirtualMachines, "app", "db");
    let found = run_survey(options(&azure), &[("web", scale_set("web")), ("db", db)]).await;
    let missing: Vec<_> = found.calls.iter().filter_map(|call| call.missing.as_ref()).collect();
    let [missing] = missing.as_slice() else { panic!("{missing:?}") };
    assert_eq!(missing.action, "Microsoft.Network/networkInterfaces/read");
    assert!(missing.scope.contains("/resourceGroups/rgshop"), "{missing:?}");
    let known: Vec<_> = found.report.services.keys().map(ToString::to_string).collect();
    let unknown: Vec<_> = found.report.troubles.keys().map(ToString::to_string).collect();
    assert_eq!((known.len(), unknown.len()), (1, 1), "{known:?} {unknown:?}");
}

#[tokio::test]
async fn dry_run_reports_unreachable_azure() {
    let azure = FakeAzure::start().await;
    let alone = options(&azure);
    drop(azure);
    let found = run_survey(alone, &[("web", scale_set("web"))]).await;
    assert_eq!(found.calls.len(), 1, "{:?}", found.calls);
    assert_eq!(found.calls[0].status, None);
    assert!(found.report.stale.unwrap().reason.contains("no token for Azure"));
}
