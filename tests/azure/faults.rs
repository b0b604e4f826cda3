//! Faults of Azure. Known endpoints stay in each; afterwards a real addition and a real removal are
//! seen.

use std::time::Duration;

use ironmesh_catalog::{AzureMachines, Health};
use ironmesh_tests::azure::{AzureFault, FakeAzure, Interface, Machine, RequestKind};
use ironmesh_tests::eventually;

use crate::watch::{ProviderWatch, at, options, scale_set, shop, tagged};

/// Injects a fault and removes it; then an addition and a removal are seen.
async fn assert_tolerated(
    wrong: impl FnOnce(&FakeAzure),
    see: impl AsyncFnOnce(&FakeAzure, &ProviderWatch),
    right: impl FnOnce(&FakeAzure),
) {
    let azure = shop().await;
    let web = ProviderWatch::web(options(&azure));
    web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    wrong(&azure);
    see(&azure, &web).await;
    right(&azure);
    azure.change(|vms| vms.machines.push(Machine::of("web", "2", "10.0.0.3")));
    web.wait_for("web", &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await;
    azure.change(|vms| vms.machines.remove(0));
    web.wait_for("web", &["10.0.0.2", "10.0.0.3"]).await;
}

/// A fault in the list of machines: the service becomes stale with this reason, and keeps its
/// endpoints.
async fn assert_stale_after(fault: AzureFault, reason: &str) {
    let wrong = |azure: &FakeAzure| azure.set_fault(RequestKind::UniformMachines, fault);
    assert_tolerated(
        wrong,
        async |_, web| {
            let found = web.wait_until_service_stale("web", reason).await;
            assert_eq!(found.endpoints.len(), 2);
        },
        |azure| azure.set_fault(RequestKind::UniformMachines, None),
    )
    .await;
}

#[tokio::test]
async fn http_500_keeps_known_endpoints() {
    assert_stale_after(AzureFault::Status(500, "InternalServerError"), "500 Internal Server Error")
        .await;
}

#[tokio::test]
async fn invalid_json_keeps_known_endpoints() {
    assert_stale_after(AzureFault::Body("{\"value\": [".to_owned()), "the answer cannot be read")
        .await;
}

#[tokio::test]
async fn unexpected_json_shape_keeps_known_endpoints() {
    assert_stale_after(AzureFault::Body("[]".to_owned()), "the answer cannot be read").await;
}

#[tokio::test]
async fn invalid_next_link_keeps_known_endpoints() {
    let half = r#"{"value": [], "nextLink": "aaaaaaaaaaaaaa"}"#;
    assert_stale_after(AzureFault::Body(half.to_owned()), "`aaaaaaaaaaaaaa`").await;
}

#[tokio::test]
async fn broken_connection_keeps_known_endpoints() {
    assert_stale_after(AzureFault::Disconnect, "127.").await;
}

#[tokio::test]
async fn access_token_is_never_sent_to_a_foreign_host() {
    assert_tolerated(
        |azure| azure.set_fault(RequestKind::UniformMachines, AzureFault::NextPageAtForeignHost),
        async |azure, web| {
            let found = web.wait_until_service_stale("web", "the token was not sent").await;
            assert_eq!(found.endpoints.len(), 2);
            assert_eq!(azure.foreign_requests(), Vec::<String>::new());
        },
        |azure| azure.set_fault(RequestKind::UniformMachines, None),
    )
    .await;
}

#[tokio::test]
async fn missing_azure_permission_is_reported_with_action_and_scope() {
    for (action, of) in [
        ("Microsoft.Compute/virtualMachineScaleSets/read", "resourceGroups"),
        ("Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read", "resourceGroups"),
    ] {
        assert_tolerated(
            |azure| azure.deny(action),
            async |_, web| {
                let found =
                    web.wait_until_service_stale("web", &format!("the action `{action}`")).await;
                let reason = &found.stale.as_ref().unwrap().reason;
                assert!(reason.contains(of) && reason.contains("the role Reader"), "{reason}");
                assert_eq!(found.endpoints.len(), 2);
                assert!(web.now().stale.is_none(), "others may be readable");
            },
            FakeAzure::deny_nothing,
        )
        .await;
    }
}

#[tokio::test]
async fn power_states_fall_back_to_resource_graph_on_403() {
    let azure = FakeAzure::start().await;
    azure.change(|vms| {
        let machine = |name, address| {
            let tags = [("app".to_owned(), "db".to_owned())].into();
            Machine { tags, ..Machine::at(name, address) }
        };
        vms.machines.push(machine("db1", "10.2.0.1"));
        vms.machines.push(Machine { power: Some("deallocated"), ..machine("db2", "10.2.0.2") });
    });
    azure.set_fault(RequestKind::States, AzureFault::Status(403, "AuthorizationFailed"));
    let db = vec![tagged(AzureMachines::VirtualMachines, "app", "db")];
    let watch = ProviderWatch::services(options(&azure), [("db", db)]);
    watch.wait_for("db", &["10.2.0.1"]).await;
    assert!(azure.count(RequestKind::Graph) > 0);
}

#[tokio::test]
async fn revoked_access_token_is_renewed_without_staleness() {
    assert_tolerated(
        FakeAzure::revoke_tokens,
        async |azure, web| {
            eventually("another token", async || match azure.count(RequestKind::Metadata) {
                0 | 1 => Err("none yet"),
                _ => Ok(()),
            })
            .await;
            assert!(web.of("web").unwrap().stale.is_none(), "{:?}", web.of("web"));
        },
        |_| {},
    )
    .await;
}

#[tokio::test]
async fn rejected_access_tokens_keep_known_endpoints() {
    assert_stale_after(AzureFault::Status(401, "InvalidAuthenticationToken"), "401 Unauthorized")
        .await;
}

#[tokio::test]
async fn deleted_scale_set_has_no_endpoints_and_is_a_problem() {
    let azure = shop().await;
    let web = ProviderWatch::web(options(&azure));
    web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    azure.change(|vms| {
        vms.scale_sets.clear();
        vms.machines.clear();
    });
    let found = web.wait_for("web", &[]).await;
    assert!(
        found.problems[0].reason.contains("there is no scale set `web`"),
        "{:?}",
        found.problems
    );
    azure.change(|vms| {
        vms.scale_sets.insert("web".to_owned(), ironmesh_tests::azure::ScaleSet::default());
        vms.machines.push(Machine::of("web", "7", "10.0.0.7"));
    });
    web.wait_for("web", &["10.0.0.7"]).await;
}

#[tokio::test]
async fn scale_set_404_while_still_listed_keeps_known_endpoints() {
    assert_stale_after(AzureFault::Status(404, "ParentResourceNotFound"), "404 Not Found").await;
}

#[tokio::test]
async fn missing_resource_group_keeps_known_endpoints() {
    let gone = AzureFault::Status(404, "ResourceGroupNotFound");
    assert_tolerated(
        |azure| azure.set_fault(RequestKind::ScaleSets, gone),
        async |_, web| {
            let found = web.wait_until_service_stale("web", "fix `resource_group`").await;
            assert_eq!(found.endpoints.len(), 2);
        },
        |azure| azure.set_fault(RequestKind::ScaleSets, None),
    )
    .await;
}

#[tokio::test]
async fn unexpectedly_empty_scale_set_is_not_authoritative() {
    assert_tolerated(
        |azure| azure.set_fault(RequestKind::UniformMachines, AzureFault::Empty),
        async |_, web| {
            web.wait_until("no endpoints and no problem", "web", |found| {
                found.endpoints.is_empty() && !found.is_authoritative
            })
            .await;
        },
        |azure| azure.set_fault(RequestKind::UniformMachines, None),
    )
    .await;
}

#[tokio::test]
async fn vms_without_listed_interfaces_keep_their_endpoints() {
    assert_tolerated(
        |azure| {
            azure.set_fault(RequestKind::UniformInterfaces, AzureFault::Empty);
            // A new machine lets the provider list interfaces.
            azure.change(|vms| vms.machines.push(Machine::of("web", "9", "10.0.0.9")));
        },
        async |_, web| {
            let found = web.wait_for_problem("web", "rgshop/web/0", "no network interface").await;
            assert_eq!(found.endpoints.len(), 2);
            web.wait_for_problem("web", "rgshop/web/9", "no network interface").await;
        },
        |azure| {
            azure.set_fault(RequestKind::UniformInterfaces, None);
            azure.change(|vms| vms.machines.retain(|one| one.name != "9"));
        },
    )
    .await;
}

#[tokio::test]
async fn vms_without_address_or_power_state_keep_their_endpoints() {
    assert_tolerated(
        |azure| {
            azure.change(|vms| {
                vms.machine("0").power = None;
                let interface =
                    Interface { primary: Some(true), addresses: vec![None], group: None };
                vms.machine("1").interfaces = vec![interface];
                // A new machine lets the provider list interfaces; it has none itself.
                let come =
                    Machine { interfaces: Vec::new(), ..Machine::of("web", "9", "10.0.0.9") };
                vms.machines.push(come);
            });
        },
        async |_, web| {
            web.wait_for_problem("web", "rgshop/web/0", "does not report whether it runs").await;
            web.wait_for_problem("web", "rgshop/web/9", "no network interface").await;
            let found = web.wait_for_problem("web", "rgshop/web/1", "`nic0` has no address").await;
            assert_eq!(at(&found), ["10.0.0.1".to_owned(), "10.0.0.2".to_owned()].into());
        },
        |azure| {
            azure.change(|vms| {
                vms.machine("0").power = Some("running");
                vms.machine("1").interfaces = Machine::at("", "10.0.0.2").interfaces;
                vms.machines.retain(|one| one.name != "9");
            });
        },
    )
    .await;
}

#[tokio::test]
async fn vm_being_deleted_drains_without_problems() {
    let azure = shop().await;
    let web = ProviderWatch::web(options(&azure));
    web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    azure.change(|vms| {
        let machine = vms.machine("0");
        machine.provisioning = "Deleting";
        machine.power = None;
        machine.interfaces.clear();
    });
    let found = web
        .wait_until("draining", "web", |found| found.endpoints[0].health == Health::Draining)
        .await;
    assert_eq!((found.endpoints.len(), found.problems.len()), (2, 0));
    azure.change(|vms| vms.machines.remove(0));
    web.wait_for("web", &["10.0.0.2"]).await;
}

#[tokio::test]
async fn page_shift_during_listing_loses_no_vm() {
    let azure = shop().await;
    azure.change(|vms| {
        for n in 2..8 {
            vms.machines.push(Machine::of("web", &n.to_string(), &format!("10.0.0.{}", n + 1)));
        }
    });
    azure.set_page_size(2);
    let web = ProviderWatch::web(options(&azure));
    web.wait_until("all", "web", |found| found.endpoints.len() == 8).await;
    // The first is removed after the first page, so another moves to a page already read.
    azure.after_page(RequestKind::UniformMachines, |vms| drop(vms.machines.remove(0)));
    eventually("removal of the first machine", async || {
        let now = at(&web.of("web").unwrap());
        assert!(now.len() >= 7, "{now:?}");
        assert!(now.contains("10.0.0.3") && now.contains("10.0.0.8"), "{now:?}");
        if now.contains("10.0.0.1") { Err("not yet") } else { Ok(()) }
    })
    .await;
}

#[tokio::test]
async fn throttled_provider_waits_retry_after_and_keeps_endpoints() {
    assert_tolerated(
        |azure| azure.set_fault(RequestKind::UniformMachines, AzureFault::Throttled(2)),
        async |azure, web| {
            let found = web.wait_until_service_stale("web", "429 Too Many Requests").await;
            assert_eq!(found.endpoints.len(), 2);
            let count = azure.count(RequestKind::UniformMachines);
            eventually("another request", async || {
                match azure.count(RequestKind::UniformMachines) - count {
                    0 => Err("not yet"),
                    _ => Ok(()),
                }
            })
            .await;
            let mut requests = azure.request_times();
            let others = requests.clone();
            requests.retain(|(kind, _)| *kind == RequestKind::UniformMachines);
            let [.., before, last] = requests.as_slice() else { panic!("{requests:?}") };
            assert!(last.1 - before.1 >= Duration::from_secs(2), "requested before the wait ended");
            // Scale sets have the same provider, so the wait applies to them too, except for
            // requests in flight.
            let end = before.1 + Duration::from_secs(2);
            let is_between = |one: &&(RequestKind, _)| {
                one.0 == RequestKind::ScaleSets && before.1 < one.1 && one.1 < end
            };
            assert!(others.iter().filter(is_between).count() <= 1, "{others:?}");
        },
        |azure| azure.set_fault(RequestKind::UniformMachines, None),
    )
    .await;
}

#[tokio::test]
async fn concurrent_operation_429_is_retried_without_throttling() {
    let azure = shop().await;
    azure.set_fault(
        RequestKind::UniformMachines,
        AzureFault::Status(429, "RetryableErrorDueToAnotherOperation"),
    );
    let web = ProviderWatch::web(options(&azure));
    eventually("repeated requests", async || match azure.count(RequestKind::UniformMachines) {
        count if count > 6 => Ok(()),
        count => Err(count),
    })
    .await;
    azure.set_fault(RequestKind::UniformMachines, None);
    web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
}

#[tokio::test]
async fn slow_azure_responses_do_not_cause_staleness() {
    assert_tolerated(
        |azure| {
            azure.set_fault(
                RequestKind::UniformMachines,
                AzureFault::Slow(Duration::from_millis(700)),
            );
        },
        async |azure, web| {
            let count = azure.count(RequestKind::UniformMachines);
            eventually("two slow answers", async || {
                match azure.count(RequestKind::UniformMachines) - count {
                    0..3 => Err("not yet"),
                    _ => Ok(()),
                }
            })
            .await;
            assert!(web.of("web").unwrap().stale.is_none());
        },
        |azure| azure.set_fault(RequestKind::UniformMachines, None),
    )
    .await;
}

#[tokio::test]
async fn vms_sharing_an_address_are_one_endpoint_and_a_problem() {
    let azure = shop().await;
    azure.change(|vms| vms.machines.push(Machine::of("web", "2", "10.0.0.2")));
    let services = [("web", vec![scale_set("web")])];
    let web = ProviderWatch::services(options(&azure), services);
    let found =
        web.wait_for_problem("web", "rgshop/web/2", "as `rgshop/web/1`, which is used").await;
    assert_eq!(found.endpoints.len(), 2);
}
