//! Machines by their `vmId`: what the lists show of them, and look-ups out of turn.

use std::sync::Arc;

use ironmesh_catalog::{AzureMachines, AzureQuery, JoinRank};
use ironmesh_providers::EndpointsProvider as _;
use ironmesh_providers::azure::{Azure, AzureOptions, KnownMachine, LookUpError};
use ironmesh_tests::azure::{AzureFault, FakeAzure, Machine, RequestKind, SUBSCRIPTION, ScaleSet};
use ironmesh_tests::eventually;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use crate::watch::{ProviderWatch, options, scale_set, shop, specification, tagged};

fn joining(set: &str, rank: JoinRank) -> AzureQuery {
    AzureQuery { join: Some(rank), ..scale_set(set) }
}

fn subscription() -> Uuid {
    SUBSCRIPTION.parse().unwrap()
}

fn vm_id(azure: &FakeAzure, name: &str) -> Uuid {
    azure.change(|vms| vms.machine(name).vm_id)
}

/// A provider that never polls: another control plane does.
fn follower<'a>(
    options: AzureOptions,
    services: impl IntoIterator<Item = (&'a str, Vec<AzureQuery>)>,
) -> Arc<Azure> {
    let provider = Azure::start(options, Timestamp::now, watch::Sender::new(false).subscribe());
    let provider = Arc::new(provider.unwrap());
    provider.follow(&specification(services));
    provider
}

async fn known(provider: &Azure, vm_id: Uuid) -> KnownMachine {
    eventually("the machine with its addresses", async || {
        provider.machine(vm_id).filter(|machine| !machine.addresses.is_empty()).ok_or("unknown")
    })
    .await
}

fn names(services: &[ironmesh_catalog::ServiceName]) -> Vec<String> {
    services.iter().map(|service| service.name.to_string()).collect()
}

#[tokio::test]
async fn polled_machine_is_known_with_services_addresses_and_disk() {
    let azure = shop().await;
    azure.change(|vms| {
        vms.scale_sets.get_mut("web").unwrap().tags = [("Team".into(), "shop".into())].into();
        let machine = vms.machine("0");
        machine.zone = Some("2");
        machine.tags = [("env".into(), "prod".into())].into();
        machine.interfaces.push(ironmesh_tests::azure::Interface {
            primary: Some(false),
            addresses: vec![Some("10.9.0.1".to_owned())],
            group: None,
        });
    });
    let services = [
        ("also", vec![joining("web", JoinRank::Secondary)]),
        ("first", vec![joining("web", JoinRank::Primary)]),
        ("without", vec![scale_set("web")]),
    ];
    let watch = ProviderWatch::services(options(&azure), services);
    let vm_id = vm_id(&azure, "0");
    let machine = known(&watch.provider, vm_id).await;
    assert_eq!((machine.vm_id, machine.scale_set.as_deref()), (vm_id, Some("web")));
    assert!(machine.resource.ends_with("/virtualMachineScaleSets/web/virtualMachines/0"));
    assert_eq!(names(&machine.services), ["first", "also"]);
    assert_eq!(names(&machine.without_join), ["without"]);
    let addresses: Vec<_> = machine.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.0.1", "10.9.0.1"]);
    assert_eq!(machine.locality.to_string(), "westeurope/westeurope-2/0");
    let tags: Vec<_> = machine.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(tags, ["env=prod", "team=shop"]);
    assert!(machine.os_disk.unwrap().ends_with("/disks/0_osdisk_1"));
    assert!(!machine.is_updating);
    assert_eq!(watch.provider.machine(Uuid::new_v4()), None);
    let subscriptions: Vec<_> = watch.provider.join_subscriptions().into_iter().collect();
    assert_eq!(subscriptions, [SUBSCRIPTION]);
}

#[tokio::test]
async fn machines_outside_of_uniform_scale_sets_are_known() {
    let azure = shop().await;
    azure.change(|vms| {
        let flexible = ScaleSet { is_flexible: true, ..ScaleSet::default() };
        vms.scale_sets.insert("flex".to_owned(), flexible);
        vms.machines.push(Machine::of("flex", "flex_1", "10.1.0.1"));
        let tags = [("app".to_owned(), "db".to_owned())].into();
        vms.machines.push(Machine { tags, ..Machine::at("db1", "10.2.0.1") });
    });
    let db = AzureQuery {
        join: Some(JoinRank::Primary),
        ..tagged(AzureMachines::VirtualMachines, "app", "db")
    };
    let services = [("flex", vec![joining("flex", JoinRank::Primary)]), ("db", vec![db])];
    let watch = ProviderWatch::services(options(&azure), services.clone());
    let follower = follower(options(&azure), services);
    for (name, service, set) in [("flex_1", "flex", Some("flex")), ("db1", "db", None)] {
        let vm_id = vm_id(&azure, name);
        let polled = known(&watch.provider, vm_id).await;
        let looked_up = follower.look_up(vm_id, subscription(), Instant::now()).await;
        for machine in [polled, looked_up.unwrap().unwrap()] {
            assert_eq!(
                (names(&machine.services), machine.scale_set.as_deref()),
                (vec![service.to_owned()], set)
            );
            assert!(machine.os_disk.unwrap().contains(name));
        }
    }
}

/// 50 machines ask at once: the first look-up serves all of them.
#[tokio::test]
async fn concurrent_look_ups_share_a_few_calls() {
    let azure = shop().await;
    azure.change(|vms| {
        for n in 2..50 {
            vms.machines.push(Machine::of("web", &n.to_string(), &format!("10.0.1.{n}")));
        }
    });
    let provider = follower(options(&azure), [("web", vec![joining("web", JoinRank::Primary)])]);
    let since = Instant::now();
    let ids: Vec<_> = azure.change(|vms| vms.machines.iter().map(|one| one.vm_id).collect());
    let asking: Vec<_> = ids
        .into_iter()
        .map(|vm_id| {
            let provider = Arc::clone(&provider);
            tokio::spawn(async move { provider.look_up(vm_id, subscription(), since).await })
        })
        .collect();
    for machine in asking {
        let machine = machine.await.unwrap().unwrap().unwrap();
        assert!(machine.read_at >= since);
    }
    assert_eq!(azure.calls(), 3, "scale sets, machines, interfaces");
}

#[tokio::test]
async fn look_up_shows_a_reimage_that_no_poll_has_seen() {
    let azure = shop().await;
    let slow = AzureOptions { interval: std::time::Duration::from_secs(3600), ..options(&azure) };
    let watch = ProviderWatch::services(slow, [("web", vec![joining("web", JoinRank::Primary)])]);
    let vm_id = vm_id(&azure, "0");
    let before = known(&watch.provider, vm_id).await;
    let calls = azure.calls();
    azure.change(|vms| vms.machine("0").reimage());
    assert_eq!(watch.provider.machine(vm_id).unwrap().os_disk, before.os_disk);
    let after = watch.provider.look_up(vm_id, subscription(), Instant::now()).await;
    let after = after.unwrap().unwrap();
    assert_ne!(after.os_disk, before.os_disk);
    assert_eq!((after.vm_id, after.resource), (before.vm_id, before.resource));
    assert_eq!(azure.calls(), calls + 2, "the machine's own lists");
    assert_eq!(watch.provider.machine(vm_id).unwrap().os_disk, after.os_disk);
}

#[tokio::test]
async fn unknown_machine_costs_a_bounded_number_of_calls() {
    let azure = FakeAzure::start().await;
    let names: Vec<_> = (0..30).map(|n| format!("set{n}")).collect();
    azure.change(|vms| {
        for (n, name) in names.iter().enumerate() {
            vms.scale_sets.insert(name.clone(), ScaleSet::default());
            vms.machines.push(Machine::of(name, &format!("m{n}"), &format!("10.0.0.{n}")));
        }
    });
    let services = names.iter().map(|name| (&**name, vec![joining(name, JoinRank::Primary)]));
    let provider = follower(options(&azure), services.collect::<Vec<_>>());
    let found = provider.look_up(Uuid::new_v4(), subscription(), Instant::now()).await;
    assert_eq!(found, Ok(None));
    assert_eq!(azure.calls(), 9, "one list of scale sets, and eight of machines");
    // Another subscription is none of policy's.
    let found = provider.look_up(Uuid::new_v4(), Uuid::new_v4(), Instant::now()).await;
    assert_eq!((found, azure.calls()), (Ok(None), 9));
}

#[tokio::test]
async fn look_ups_stay_within_their_share_of_the_calls() {
    let azure = shop().await;
    let few = AzureOptions { reads_per_hour: 400, ..options(&azure) };
    let provider = follower(few, [("web", vec![joining("web", JoinRank::Primary)])]);
    let mut outcomes = Vec::new();
    for _ in 0..20 {
        outcomes.push(provider.look_up(Uuid::new_v4(), subscription(), Instant::now()).await);
    }
    assert_eq!(outcomes.first(), Some(&Ok(None)));
    assert_eq!(outcomes.last(), Some(&Err(LookUpError::Busy)));
    assert!(azure.calls() <= 11, "{}", azure.calls());
}

#[tokio::test]
async fn failed_look_up_names_the_reason_and_recovers() {
    let azure = shop().await;
    let provider = follower(options(&azure), [("web", vec![joining("web", JoinRank::Primary)])]);
    let vm_id = vm_id(&azure, "0");
    azure.set_fault(RequestKind::UniformMachines, AzureFault::Status(403, "AuthorizationFailed"));
    match provider.look_up(vm_id, subscription(), Instant::now()).await {
        Err(LookUpError::Failed(reason)) => assert!(reason.contains("403"), "{reason}"),
        other => panic!("{other:?}"),
    }
    azure.set_fault(RequestKind::UniformMachines, None);
    let found = provider.look_up(vm_id, subscription(), Instant::now()).await;
    assert!(found.unwrap().is_some());
}

/// A changed opt-in drops no known endpoint.
#[tokio::test]
async fn opt_in_to_join_changes_no_endpoint() {
    let azure = shop().await;
    let watch = ProviderWatch::web(options(&azure));
    let before = watch.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    azure.set_fault(RequestKind::UniformMachines, AzureFault::Status(500, "Down"));
    watch.provider.follow(&specification([("web", vec![joining("web", JoinRank::Primary)])]));
    let vm_id = vm_id(&azure, "0");
    eventually("the opt-in", async || {
        let machine = watch.provider.machine(vm_id);
        machine.filter(|machine| !machine.services.is_empty()).ok_or("not yet")
    })
    .await;
    assert_eq!(watch.of("web").unwrap().endpoints, before.endpoints);
}
