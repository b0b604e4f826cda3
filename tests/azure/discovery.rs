//! What is found of machines.

use std::sync::Arc;

use ironmesh_catalog::{AddressFamily, AzureMachines, AzureQuery, Health, Provider};
use ironmesh_providers::EndpointsProvider as _;
use ironmesh_providers::azure::AzureOptions;
use ironmesh_tests::azure::{Fault, Interface, Kind, Machine, ScaleSet};
use ironmesh_tests::eventually;

use crate::watching::{Watching, at, options, scale_set, shop, specification, tagged};

fn tags(all: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn endpoint_carries_vm_labels_locality_health_and_address() {
    let azure = shop().await;
    let vm_id = azure.change(|world| {
        world.scale_sets.get_mut("web").unwrap().tags = tags(&[("Team", "shop"), ("env", "test")]);
        let machine = world.machine("0");
        machine.zone = Some("2");
        machine.fault_domain = 3;
        machine.tags = tags(&[("ENV", "prod"), ("ironmesh-x", "y"), ("hidden-link", "z")]);
        machine.health = Some("healthy");
        machine.vm_id
    });
    let web = Watching::web(options(&azure));
    assert_eq!(web.provider.provider(), Provider::Azure);
    let found = web.finds("web", &["10.0.0.1", "10.0.0.2"]).await;
    let endpoint = &found.endpoints[0];
    assert_eq!(endpoint.instance.as_deref(), Some("rgshop/web/0"));
    assert_eq!((endpoint.port, endpoint.machine), (Some(8080), Some(vm_id)));
    assert_eq!(endpoint.labels.to_string(), "env=prod,team=shop");
    assert_eq!(endpoint.locality.to_string(), "westeurope/westeurope-2/3");
    assert_eq!((endpoint.health, endpoint.provider), (Health::Healthy, Provider::Azure));
    assert_eq!(*found.problems, []);

    let becomes = async |health: Health| {
        let is =
            move |found: &ironmesh_providers::ServiceReport| found.endpoints[0].health == health;
        web.has(&health.to_string(), "web", is).await
    };
    for (provisioning, power, health, wanted) in [
        ("Succeeded", "running", "unhealthy", Health::Unhealthy),
        ("Succeeded", "deallocating", "healthy", Health::Draining),
        ("Succeeded", "running", "healthy", Health::Healthy),
        ("Deleting", "running", "healthy", Health::Draining),
        ("Succeeded", "starting", "healthy", Health::Unhealthy),
        ("Updating", "running", "healthy", Health::Healthy),
    ] {
        azure.change(|world| {
            let machine = world.machine("0");
            machine.provisioning = provisioning;
            machine.power = Some(power);
            machine.health = Some(health);
        });
        becomes(wanted).await;
    }
    azure.change(|world| world.machine("0").power = Some("deallocated"));
    web.finds("web", &["10.0.0.2"]).await;
    // It comes back, elsewhere.
    azure.change(|world| {
        let machine = world.machine("0");
        machine.power = Some("running");
        machine.interfaces[0].addresses = vec![Some("10.0.0.9".to_owned())];
    });
    web.finds("web", &["10.0.0.2", "10.0.0.9"]).await;
}

#[tokio::test]
async fn flexible_scale_sets_and_tagged_vms_are_discovered() {
    let azure = shop().await;
    azure.change(|world| {
        let flexible = ScaleSet { is_flexible: true, tags: tags(&[("App", "flex")]) };
        world.scale_sets.insert("Flex".to_owned(), flexible);
        world
            .scale_sets
            .insert("other".to_owned(), ScaleSet { is_flexible: true, ..ScaleSet::default() });
        world.machines.push(Machine::of("Flex", "flex_1", "10.1.0.1"));
        world.machines.push(Machine::of("other", "other_1", "10.1.0.2"));
        let with = |machine: Machine, app: &str| Machine { tags: tags(&[("App", app)]), ..machine };
        world.machines.push(with(Machine::at("db1", "10.2.0.1"), "db"));
        world.machines.push(with(Machine::at("db2", "10.2.0.2"), "db"));
        world.machines.push(with(Machine::at("cache1", "10.2.0.3"), "cache"));
        // One with the tag is in a scale set.
        world.machines.push(with(Machine::of("other", "other_2", "10.1.0.3"), "db"));
        world.machine("db2").power = Some("stopped");
    });
    let services = [
        ("flex", vec![scale_set("flex")]),
        ("by-tag", vec![tagged(AzureMachines::ScaleSet(None), "app", "flex")]),
        (
            "both",
            vec![AzureQuery { tags: [("app".into(), "flex".into())].into(), ..scale_set("flex") }],
        ),
        (
            "neither",
            vec![AzureQuery { tags: [("app".into(), "FLEX".into())].into(), ..scale_set("flex") }],
        ),
        ("db", vec![tagged(AzureMachines::VirtualMachines, "app", "db")]),
        (
            "all",
            vec![
                scale_set("web"),
                scale_set("other"),
                tagged(AzureMachines::VirtualMachines, "app", "cache"),
            ],
        ),
    ];
    let watching = Watching::services(options(&azure), services);
    for name in ["flex", "by-tag", "both"] {
        let found = watching.finds(name, &["10.1.0.1"]).await;
        assert_eq!(found.endpoints[0].instance.as_deref(), Some("rgshop/flex_1"));
        assert_eq!(found.endpoints[0].labels.to_string(), "app=flex");
    }
    let found = watching.finds("neither", &[]).await;
    assert!(found.problems[0].reason.contains("does not have the tags"), "{:?}", found.problems);
    watching.finds("db", &["10.2.0.1"]).await;
    let all = ["10.0.0.1", "10.0.0.2", "10.1.0.2", "10.1.0.3", "10.2.0.3"];
    watching.finds("all", &all).await;
    azure.change(|world| world.machine("db2").power = Some("running"));
    watching.finds("db", &["10.2.0.1", "10.2.0.2"]).await;
    assert!(watching.now().is_complete);
}

#[tokio::test]
async fn all_resource_groups_are_searched_if_none_is_configured() {
    let azure = shop().await;
    azure.change(|world| {
        let machine = Machine { tags: tags(&[("app", "db")]), ..Machine::at("db1", "10.2.0.1") };
        world.machines.push(machine);
    });
    let anywhere = AzureOptions { resource_group: None, ..options(&azure) };
    let services = [
        ("web", vec![scale_set("web")]),
        ("db", vec![tagged(AzureMachines::VirtualMachines, "app", "db")]),
    ];
    let watching = Watching::services(anywhere, services);
    watching.finds("web", &["10.0.0.1", "10.0.0.2"]).await;
    watching.finds("db", &["10.2.0.1"]).await;
}

#[tokio::test]
async fn primary_address_of_the_configured_family_is_used() {
    let azure = shop().await;
    let some = |text: &str| Some(text.to_owned());
    azure.change(|world| {
        world.machine("0").interfaces = vec![
            Interface {
                primary: Some(false),
                addresses: vec![some("10.9.0.1"), some("fd09::1")],
                group: None,
            },
            Interface {
                primary: Some(true),
                addresses: vec![some("10.0.0.1"), some("10.0.0.101"), some("fd00::1")],
                group: None,
            },
        ];
        world.machine("1").interfaces =
            vec![Interface { addresses: vec![some("fd00::2")], ..Interface::default() }];
    });
    let six = AzureQuery { address_family: AddressFamily::Ipv6, ..scale_set("web") };
    let services = [("four", vec![scale_set("web")]), ("six", vec![six])];
    let watching = Watching::services(options(&azure), services);
    watching.finds("six", &["fd00::1", "fd00::2"]).await;
    let found =
        watching.has_problem("four", "rgshop/web/1", "set `address_family = \"ipv6\"`").await;
    assert_eq!(at(&found), ["10.0.0.1".to_owned()].into());
}

#[tokio::test]
async fn services_with_equal_queries_share_endpoints_and_follow_changes() {
    let azure = shop().await;
    let services = [("one", vec![scale_set("web")]), ("two", vec![scale_set("WEB")])];
    let watching = Watching::services(options(&azure), services);
    watching.finds("one", &["10.0.0.1", "10.0.0.2"]).await;
    watching.finds("two", &["10.0.0.1", "10.0.0.2"]).await;
    let before = watching.of("one").unwrap();
    // What nobody asks any more is forgotten, and what is asked as before stays.
    watching.provider.follow(&specification([("one", vec![scale_set("web")])]));
    eventually("the other to be gone", async || match watching.now().services.len() {
        1 => Ok(()),
        count => Err(count),
    })
    .await;
    assert!(Arc::ptr_eq(&watching.of("one").unwrap().endpoints, &before.endpoints));
    azure.change(|world| world.machines.push(Machine::of("web", "2", "10.0.0.3")));
    watching.finds("one", &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await;
    azure.change(|world| world.machines.remove(0));
    watching.finds("one", &["10.0.0.2", "10.0.0.3"]).await;
}

#[tokio::test]
async fn id_case_and_page_size_do_not_change_discovered_vms() {
    let azure = shop().await;
    azure.change(|world| {
        for n in 2..7 {
            world.machines.push(Machine::of("web", &n.to_string(), &format!("10.0.0.{}", n + 1)));
        }
    });
    azure.mix_case();
    azure.page(2);
    // Pages come from the other port of the same host, too.
    for kind in [Kind::UniformMachines, Kind::UniformInterfaces] {
        azure.be(kind, Fault::OtherPort);
    }
    let web = Watching::web(options(&azure));
    let all = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"];
    let found = web.finds("web", &all).await;
    assert!(azure.count(Kind::UniformMachines) >= 4);
    let names: Vec<_> =
        found.endpoints.iter().map(|one| one.instance.as_deref().unwrap()).collect();
    assert_eq!(names[..2], ["rgshop/web/0", "rgshop/web/1"]);
}

#[tokio::test]
async fn resource_graph_is_preferred_and_falls_back_to_compute_api() {
    for is_off in [false, true] {
        let azure = shop().await;
        azure.change(|world| {
            let db = Machine { tags: tags(&[("app", "db")]), ..Machine::at("db1", "10.2.0.1") };
            world.machines.push(db);
            let off = Machine { tags: tags(&[("app", "db")]), ..Machine::at("db2", "10.2.0.2") };
            world.machines.push(Machine { power: Some("deallocated"), ..off });
            let flexible = ScaleSet { is_flexible: true, ..ScaleSet::default() };
            world.scale_sets.insert("flex".to_owned(), flexible);
            world.machines.push(Machine::of("flex", "flex_1", "10.3.0.1"));
            for name in ["1", "flex_1"] {
                world.machine(name).health = Some("unhealthy");
            }
        });
        if is_off {
            azure.be(Kind::Graph, Fault::Status(422, "NotSupported"));
            azure.be(Kind::MachinesOfGraph, Fault::Status(422, "NotSupported"));
        }
        let with_graph = AzureOptions { resource_graph: true, ..options(&azure) };
        let services = [
            ("web", vec![scale_set("web")]),
            ("flex", vec![scale_set("flex")]),
            ("db", vec![tagged(AzureMachines::VirtualMachines, "app", "db")]),
        ];
        let watching = Watching::services(with_graph, services);
        let web = watching.finds("web", &["10.0.0.1", "10.0.0.2"]).await;
        let flex = watching.finds("flex", &["10.3.0.1"]).await;
        watching.finds("db", &["10.2.0.1"]).await;
        assert!(azure.count(Kind::Graph) > 0);
        assert!(azure.count(Kind::MachinesOfGraph) >= 2, "of each scale set");
        for kind in [Kind::States, Kind::UniformMachines, Kind::FlexibleMachines] {
            assert_eq!(azure.count(kind) > 0, is_off, "{kind:?} where the other says no");
        }
        // Of the health of applications the provider alone knows.
        let health = if is_off { Health::Unhealthy } else { Health::Healthy };
        assert_eq!((web.endpoints[1].health, flex.endpoints[0].health), (health, health));
        azure.change(|world| world.machines.remove(0));
        watching.finds("web", &["10.0.0.2"]).await;
    }
}
