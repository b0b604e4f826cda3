//! What may go wrong with Azure. Whatever it is, what was known stays; and afterwards a real addition and a real
//! removal are seen.

use std::time::Duration;

use ironmesh_catalog::{AzureMachines, Health};
use ironmesh_tests::azure::{FakeAzure, Fault, Interface, Kind, Machine};
use ironmesh_tests::eventually;

use crate::watching::{Watching, at, options, scale_set, shop, tagged};

/// Something is wrong; then nothing is any more, and an addition and a removal are seen.
async fn survives(
    wrong: impl FnOnce(&FakeAzure),
    see: impl AsyncFnOnce(&FakeAzure, &Watching),
    right: impl FnOnce(&FakeAzure),
) {
    let azure = shop().await;
    let web = Watching::web(options(&azure));
    web.finds("web", &["10.0.0.1", "10.0.0.2"]).await;
    wrong(&azure);
    see(&azure, &web).await;
    right(&azure);
    azure.change(|world| world.machines.push(Machine::of("web", "2", "10.0.0.3")));
    web.finds("web", &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await;
    azure.change(|world| world.machines.remove(0));
    web.finds("web", &["10.0.0.2", "10.0.0.3"]).await;
}

/// Of machines it is answered like this: the service is stale for this reason, and what is known of it stays.
async fn answered_with(fault: Fault, reason: &str) {
    let wrong = |azure: &FakeAzure| azure.be(Kind::UniformMachines, fault);
    survives(
        wrong,
        async |_, web| {
            let found = web.is_stale_of("web", reason).await;
            assert_eq!(found.endpoints.len(), 2);
        },
        |azure| azure.be(Kind::UniformMachines, None),
    )
    .await;
}

#[tokio::test]
async fn a_failure_is_not_believed() {
    answered_with(Fault::Status(500, "InternalServerError"), "500 Internal Server Error").await;
}

#[tokio::test]
async fn json_that_is_none_is_not_believed() {
    answered_with(Fault::Body("{\"value\": [".to_owned()), "the answer cannot be read").await;
}

#[tokio::test]
async fn an_answer_of_another_shape_is_not_believed() {
    answered_with(Fault::Body("[]".to_owned()), "the answer cannot be read").await;
}

#[tokio::test]
async fn a_next_page_that_is_no_url_is_half_a_list_and_none() {
    let half = r#"{"value": [], "nextLink": "aaaaaaaaaaaaaa"}"#;
    answered_with(Fault::Body(half.to_owned()), "`aaaaaaaaaaaaaa`").await;
}

#[tokio::test]
async fn a_connection_that_breaks_is_not_believed() {
    answered_with(Fault::Cut, "127.").await;
}

#[tokio::test]
async fn a_token_goes_to_no_foreign_host() {
    survives(
        |azure| azure.be(Kind::UniformMachines, Fault::ForeignNext),
        async |azure, web| {
            let found = web.is_stale_of("web", "the token stays here").await;
            assert_eq!(found.endpoints.len(), 2);
            assert_eq!(azure.leaked(), Vec::<String>::new());
        },
        |azure| azure.be(Kind::UniformMachines, None),
    )
    .await;
}

#[tokio::test]
async fn who_may_not_read_is_told_which_right_is_missing_and_where() {
    for (action, of) in [
        ("Microsoft.Compute/virtualMachineScaleSets/read", "resourceGroups"),
        ("Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read", "resourceGroups"),
    ] {
        survives(
            |azure| azure.deny(action),
            async |_, web| {
                let found = web.is_stale_of("web", &format!("the action `{action}`")).await;
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
async fn who_reads_a_group_alone_gets_states_of_resource_graph() {
    let azure = FakeAzure::start().await;
    azure.change(|world| {
        let machine = |name, address| {
            let tags = [("app".to_owned(), "db".to_owned())].into();
            Machine { tags, ..Machine::at(name, address) }
        };
        world.machines.push(machine("db1", "10.2.0.1"));
        world.machines.push(Machine { power: Some("deallocated"), ..machine("db2", "10.2.0.2") });
    });
    azure.be(Kind::States, Fault::Status(403, "AuthorizationFailed"));
    let db = vec![tagged(AzureMachines::VirtualMachines, "app", "db")];
    let watching = Watching::services(options(&azure), [("db", db)]);
    watching.finds("db", &["10.2.0.1"]).await;
    assert!(azure.count(Kind::Graph) > 0);
}

#[tokio::test]
async fn a_token_that_is_not_taken_any_more_is_renewed_and_no_event() {
    survives(
        FakeAzure::revoke_tokens,
        async |azure, web| {
            eventually("another token", async || match azure.count(Kind::Metadata) {
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
async fn a_tenant_whose_tokens_are_not_taken_changes_nothing() {
    answered_with(Fault::Status(401, "InvalidAuthenticationToken"), "401 Unauthorized").await;
}

#[tokio::test]
async fn a_scale_set_that_is_deleted_has_nobody_as_long_as_its_group_says_so() {
    let azure = shop().await;
    let web = Watching::web(options(&azure));
    web.finds("web", &["10.0.0.1", "10.0.0.2"]).await;
    azure.change(|world| {
        world.scale_sets.clear();
        world.machines.clear();
    });
    let found = web.finds("web", &[]).await;
    assert!(
        found.problems[0].reason.contains("there is no scale set `web`"),
        "{:?}",
        found.problems
    );
    azure.change(|world| {
        world.scale_sets.insert("web".to_owned(), ironmesh_tests::azure::ScaleSet::default());
        world.machines.push(Machine::of("web", "7", "10.0.0.7"));
    });
    web.finds("web", &["10.0.0.7"]).await;
}

#[tokio::test]
async fn a_scale_set_that_is_not_found_and_is_in_the_list_of_them_takes_nobody_away() {
    answered_with(Fault::Status(404, "ParentResourceNotFound"), "404 Not Found").await;
}

#[tokio::test]
async fn a_group_that_is_gone_takes_nobody_away() {
    let gone = Fault::Status(404, "ResourceGroupNotFound");
    survives(
        |azure| azure.be(Kind::ScaleSets, gone),
        async |_, web| {
            let found = web.is_stale_of("web", "mend `resource_group`").await;
            assert_eq!(found.endpoints.len(), 2);
        },
        |azure| azure.be(Kind::ScaleSets, None),
    )
    .await;
}

#[tokio::test]
async fn a_scale_set_that_should_have_machines_and_shows_none_is_not_vouched_for() {
    survives(
        |azure| azure.be(Kind::UniformMachines, Fault::Empty),
        async |_, web| {
            web.has("nobody, and no word for it", "web", |found| {
                found.endpoints.is_empty() && !found.is_authoritative
            })
            .await;
        },
        |azure| azure.be(Kind::UniformMachines, None),
    )
    .await;
}

#[tokio::test]
async fn interfaces_that_are_not_shown_leave_their_machines_where_they_were() {
    survives(
        |azure| {
            azure.be(Kind::UniformInterfaces, Fault::Empty);
            // Who comes makes that interfaces are asked for.
            azure.change(|world| world.machines.push(Machine::of("web", "9", "10.0.0.9")));
        },
        async |_, web| {
            let found = web.has_problem("web", "rgshop/web/0", "no network interface").await;
            assert_eq!(found.endpoints.len(), 2);
            web.has_problem("web", "rgshop/web/9", "no network interface").await;
        },
        |azure| {
            azure.be(Kind::UniformInterfaces, None);
            azure.change(|world| world.machines.retain(|one| one.name != "9"));
        },
    )
    .await;
}

#[tokio::test]
async fn machines_without_an_address_or_a_state_stay_where_they_were() {
    survives(
        |azure| {
            azure.change(|world| {
                world.machine("0").power = None;
                let interface =
                    Interface { primary: Some(true), addresses: vec![None], group: None };
                world.machine("1").interfaces = vec![interface];
                // One that comes makes that interfaces are asked for; it has none itself.
                let come =
                    Machine { interfaces: Vec::new(), ..Machine::of("web", "9", "10.0.0.9") };
                world.machines.push(come);
            });
        },
        async |_, web| {
            web.has_problem("web", "rgshop/web/0", "does not say whether it runs").await;
            web.has_problem("web", "rgshop/web/9", "no network interface").await;
            let found = web.has_problem("web", "rgshop/web/1", "`nic0` has no address").await;
            assert_eq!(at(&found), ["10.0.0.1".to_owned(), "10.0.0.2".to_owned()].into());
        },
        |azure| {
            azure.change(|world| {
                world.machine("0").power = Some("running");
                world.machine("1").interfaces = Machine::at("", "10.0.0.2").interfaces;
                world.machines.retain(|one| one.name != "9");
            });
        },
    )
    .await;
}

#[tokio::test]
async fn a_machine_that_is_taken_apart_leaves_in_peace() {
    let azure = shop().await;
    let web = Watching::web(options(&azure));
    web.finds("web", &["10.0.0.1", "10.0.0.2"]).await;
    azure.change(|world| {
        let machine = world.machine("0");
        machine.provisioning = "Deleting";
        machine.power = None;
        machine.interfaces.clear();
    });
    let found =
        web.has("draining", "web", |found| found.endpoints[0].health == Health::Draining).await;
    assert_eq!((found.endpoints.len(), found.problems.len()), (2, 0));
    azure.change(|world| world.machines.remove(0));
    web.finds("web", &["10.0.0.2"]).await;
}

#[tokio::test]
async fn pages_that_shift_while_they_are_asked_for_lose_nobody() {
    let azure = shop().await;
    azure.change(|world| {
        for n in 2..8 {
            world.machines.push(Machine::of("web", &n.to_string(), &format!("10.0.0.{}", n + 1)));
        }
    });
    azure.page(2);
    let web = Watching::web(options(&azure));
    web.has("all", "web", |found| found.endpoints.len() == 8).await;
    // The first goes after the first page: another one slips past onto that page.
    azure.after_page(Kind::UniformMachines, |world| drop(world.machines.remove(0)));
    eventually("the first to be gone", async || {
        let now = at(&web.of("web").unwrap());
        assert!(now.len() >= 7, "{now:?}");
        assert!(now.contains("10.0.0.3") && now.contains("10.0.0.8"), "{now:?}");
        if now.contains("10.0.0.1") { Err("not yet") } else { Ok(()) }
    })
    .await;
}

#[tokio::test]
async fn who_is_told_to_wait_waits_and_what_was_known_stays() {
    survives(
        |azure| azure.be(Kind::UniformMachines, Fault::Throttled(2)),
        async |azure, web| {
            let found = web.is_stale_of("web", "429 Too Many Requests").await;
            assert_eq!(found.endpoints.len(), 2);
            let count = azure.count(Kind::UniformMachines);
            eventually("it to be asked again", async || {
                match azure.count(Kind::UniformMachines) - count {
                    0 => Err("not yet"),
                    _ => Ok(()),
                }
            })
            .await;
            let mut asked = azure.asked_at();
            let others = asked.clone();
            asked.retain(|(kind, _)| *kind == Kind::UniformMachines);
            let [.., before, last] = asked.as_slice() else { panic!("{asked:?}") };
            assert!(last.1 - before.1 >= Duration::from_secs(2), "asked earlier than it may");
            // Scale sets are of the same provider, so they are not asked for either: but for what was under way.
            let end = before.1 + Duration::from_secs(2);
            let is_between =
                |one: &&(Kind, _)| one.0 == Kind::ScaleSets && before.1 < one.1 && one.1 < end;
            assert!(others.iter().filter(is_between).count() <= 1, "{others:?}");
        },
        |azure| azure.be(Kind::UniformMachines, None),
    )
    .await;
}

#[tokio::test]
async fn another_operation_that_is_under_way_is_no_throttling() {
    let azure = shop().await;
    azure.be(Kind::UniformMachines, Fault::Status(429, "RetryableErrorDueToAnotherOperation"));
    let web = Watching::web(options(&azure));
    eventually("it to be asked again and again", async || {
        match azure.count(Kind::UniformMachines) {
            count if count > 6 => Ok(()),
            count => Err(count),
        }
    })
    .await;
    azure.be(Kind::UniformMachines, None);
    web.finds("web", &["10.0.0.1", "10.0.0.2"]).await;
}

#[tokio::test]
async fn slow_answers_are_waited_for() {
    survives(
        |azure| azure.be(Kind::UniformMachines, Fault::Slow(Duration::from_millis(700))),
        async |azure, web| {
            let count = azure.count(Kind::UniformMachines);
            eventually("two slow answers", async || {
                match azure.count(Kind::UniformMachines) - count {
                    0..3 => Err("not yet"),
                    _ => Ok(()),
                }
            })
            .await;
            assert!(web.of("web").unwrap().stale.is_none());
        },
        |azure| azure.be(Kind::UniformMachines, None),
    )
    .await;
}

#[tokio::test]
async fn two_machines_with_the_same_address_are_one_endpoint_and_a_word() {
    let azure = shop().await;
    azure.change(|world| world.machines.push(Machine::of("web", "2", "10.0.0.2")));
    let services = [("web", vec![scale_set("web")])];
    let web = Watching::services(options(&azure), services);
    let found = web.has_problem("web", "rgshop/web/2", "of `rgshop/web/1`, which is taken").await;
    assert_eq!(found.endpoints.len(), 2);
}
