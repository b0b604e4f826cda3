//! The identity for Azure, and the provider's behaviour without a token.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use fs_err as fs;
use ironmesh_providers::azure::{AzureCredential, AzureOptions};
use ironmesh_tests::azure::{AzureFault, FakeAzure, Machine, RequestKind};
use ironmesh_tests::eventually;
use jiff::{Timestamp, ToSpan as _};

use crate::watch::{ProviderWatch, options, scale_set, shop};

const TENANT: &str = "72f988bf-86f1-41af-91ab-2d7cd011db47";
const APPLICATION: &str = "11111111-2222-3333-4444-555555555555";

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn by_secret(azure: &FakeAzure, secret_file: &Path) -> AzureOptions {
    let credential = AzureCredential::ClientSecret {
        tenant: TENANT.to_owned(),
        client_id: APPLICATION.to_owned(),
        secret_file: secret_file.to_owned(),
    };
    AzureOptions { credential, ..options(azure) }
}

#[tokio::test]
async fn client_secret_is_reread_from_its_private_file() {
    let azure = shop().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let web = ProviderWatch::web(by_secret(&azure, &file));
    web.wait_until_stale("cannot be read").await;
    write(&file, "s3cret\n", 0o644);
    web.wait_until_stale("(mode 0644)").await;
    assert_eq!(azure.count(RequestKind::Login), 0, "it is sent nowhere");
    write(&file, "wrong\n", 0o600);
    let reason = web.wait_until_stale("has not expired").await;
    assert!(!reason.contains("wrong"), "{reason}");
    write(&file, "s3cret\n", 0o600);
    web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    // A new secret, which reaches the file later.
    azure.set_secret("another");
    azure.revoke_tokens();
    web.wait_until_stale("invalid_client").await;
    assert_eq!(web.of("web").unwrap().endpoints.len(), 2);
    write(&file, "another", 0o600);
    azure.change(|vms| vms.machines.push(Machine::of("web", "2", "10.0.0.3")));
    web.wait_for("web", &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await;
}

#[tokio::test]
async fn workload_identity_token_is_reread_from_its_file() {
    let azure = shop().await;
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    write(&token_file, "first", 0o600);
    azure.set_secret("first");
    // A token is renewed after half of its remaining life, here at once.
    azure.set_token_lifetime(Duration::from_secs(31));
    let credential = AzureCredential::WorkloadIdentity {
        tenant: TENANT.to_owned(),
        client_id: APPLICATION.to_owned(),
        token_file: token_file.clone(),
    };
    let web = ProviderWatch::web(AzureOptions { credential, ..options(&azure) });
    web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    write(&token_file, "second", 0o600);
    azure.set_secret("second");
    azure.revoke_tokens();
    azure.change(|vms| vms.machines.remove(0));
    web.wait_for("web", &["10.0.0.2"]).await;
    assert!(azure.count(RequestKind::Login) >= 2);
}

#[tokio::test(start_paused = true)]
async fn access_token_is_used_until_expiry_if_renewal_fails() {
    let azure = shop().await;
    azure.set_token_lifetime(Duration::from_secs(20));
    let web =
        ProviderWatch::web(AzureOptions { interval: Duration::from_secs(2), ..options(&azure) });
    // A token that is about to expire is not used for a new round.
    web.wait_until_stale("has ended already").await;
    azure.set_token_lifetime(Duration::from_secs(200));
    web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    let started_at = tokio::time::Instant::now();
    let count = azure.count(RequestKind::Metadata);
    azure.set_fault(RequestKind::Metadata, AzureFault::Status(400, "invalid_request"));
    // At half of its life the provider requests another, in vain.
    tokio::time::sleep_until(started_at + Duration::from_secs(120)).await;
    assert!(azure.count(RequestKind::Metadata) > count);
    azure.change(|vms| vms.machines.remove(0));
    web.wait_for("web", &["10.0.0.2"]).await;
    tokio::time::sleep_until(started_at + Duration::from_secs(180)).await;
    web.wait_until_stale("no token for Azure").await;
    assert_eq!(web.of("web").unwrap().endpoints.len(), 1);
    azure.set_fault(RequestKind::Metadata, None);
    azure.change(|vms| vms.machines.push(Machine::of("web", "2", "10.0.0.3")));
    web.wait_for("web", &["10.0.0.2", "10.0.0.3"]).await;
}

#[tokio::test]
async fn login_endpoint_outage_keeps_known_endpoints() {
    for fault in [
        AzureFault::Disconnect,
        AzureFault::Status(503, "ServiceUnavailable"),
        AzureFault::Body("<html>".to_owned()),
    ] {
        let azure = shop().await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        write(&file, "s3cret", 0o600);
        let web = ProviderWatch::web(by_secret(&azure, &file));
        web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
        azure.set_fault(RequestKind::Login, fault);
        azure.revoke_tokens();
        web.wait_until_stale("no token for Azure").await;
        assert_eq!(web.of("web").unwrap().endpoints.len(), 2);
        azure.set_fault(RequestKind::Login, None);
        azure.change(|vms| vms.machines.remove(0));
        web.wait_for("web", &["10.0.0.2"]).await;
        assert!(web.now().stale.is_none());
    }
}

#[tokio::test]
async fn metadata_service_410_is_retried_until_it_recovers() {
    let azure = shop().await;
    azure.set_fault(RequestKind::Metadata, AzureFault::Transient(410, 5));
    let web = ProviderWatch::web(options(&azure));
    web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    assert_eq!(azure.count(RequestKind::Metadata), 6);
    let mut requests = azure.request_times();
    requests.retain(|(kind, _)| *kind == RequestKind::Metadata);
    // Ten times the shortest wait, which is a second with real settings.
    assert!(requests[5].1 - requests[0].1 >= options(&azure).retry * 50);
}

#[tokio::test]
async fn metadata_service_errors_are_retried_or_reported() {
    for status in [404, 429, 500] {
        let azure = shop().await;
        azure.set_fault(RequestKind::Metadata, AzureFault::Transient(status, 3));
        let web = ProviderWatch::web(options(&azure));
        web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
        assert_eq!(azure.count(RequestKind::Metadata), 4);
    }
    let azure = shop().await;
    azure.set_fault(RequestKind::Metadata, AzureFault::Status(400, "invalid_request"));
    let web = ProviderWatch::web(options(&azure));
    let reason = web.wait_until_stale("see that it has a managed identity").await;
    assert!(reason.contains("invalid_request"), "{reason}");
}

#[tokio::test]
async fn clock_skew_of_an_hour_does_not_affect_tokens() {
    let ahead: fn() -> Timestamp = || Timestamp::now() + 1.hour();
    let behind: fn() -> Timestamp = || Timestamp::now() - 1.hour();
    for clock in [ahead, behind] {
        let azure = shop().await;
        let web =
            ProviderWatch::with_clock(options(&azure), [("web", vec![scale_set("web")])], clock);
        web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
        azure.change(|vms| vms.machines.remove(0));
        web.wait_for("web", &["10.0.0.2"]).await;
        assert_eq!(azure.count(RequestKind::Metadata), 1, "the token lives as long as ever");
    }
}

#[tokio::test]
async fn azure_outage_marks_services_stale_and_keeps_endpoints() {
    let azure = shop().await;
    let web = ProviderWatch::web(options(&azure));
    web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    drop(azure);
    web.wait_until_stale("127.").await;
    let found = web.of("web").unwrap();
    assert_eq!(found.endpoints.len(), 2);
    eventually("the service to be stale", async || match &web.of("web").unwrap().stale {
        Some(_) => Ok(()),
        None => Err("not yet"),
    })
    .await;
}
