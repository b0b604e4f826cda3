//! Discovery of machines.

use std::sync::Arc;

use ironmesh_catalog::{AddressFamily, AzureMachines, AzureQuery, Health, Provider};
use ironmesh_providers::EndpointsProvider as _;
use ironmesh_providers::azure::AzureOptions;
use ironmesh_tests::azure::{AzureFault, Interface, Machine, RequestKind, ScaleSet};
use ironmesh_tests::eventually;

use crate::watch::{ProviderWatch, at, options, scale_set, shop, specification, tagged};

fn tags(all: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn endpoint_carries_vm_labels_locality_health_and_address() {
    let azure = shop().await;
    let vm_id = azure.change(|vms| {
        vms.scale_sets.get_mut("web").unwrap().tags = tags(&[("Team", "shop"), ("env", "test")]);
        let machine = vms.machine("0");
        machine.zone = Some("2");
        machine.fault_domain = 3;
        machine.tags = tags(&[("ENV", "prod"), ("ironmesh-x", "y"), ("hidden-link", "z")]);
        machine.health = Some("healthy");
        machine.vm_id
    });
    let web = ProviderWatch::web(options(&azure));
    assert_eq!(web.provider.provider(), Provider::Azure);
    let found = web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
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
        web.wait_until(&health.to_string(), "web", is).await
    };
    for (provisioning, power, health, wanted) in [
        ("Succeeded", "running", "unhealthy", Health::Unhealthy),
        ("Succeeded", "deallocating", "healthy", Health::Draining),
        ("Succeeded", "running", "healthy", Health::Healthy),
        ("Deleting", "running", "healthy", Health::Draining),
        ("Succeeded", "starting", "healthy", Health::Unhealthy),
        ("Updating", "running", "healthy", Health::Healthy),
    ] {
        azure.change(|vms| {
            let machine = vms.machine("0");
            machine.provisioning = provisioning;
            machine.power = Some(power);
            machine.health = Some(health);
        });
        becomes(wanted).await;
    }
    azure.change(|vms| vms.machine("0").power = Some("deallocated"));
    web.wait_for("web", &["10.0.0.2"]).await;
    // The machine returns with another address.
    azure.change(|vms| {
        let machine = vms.machine("0");
        machine.power = Some("running");
        machine.interfaces[0].addresses = vec![Some("10.0.0.9".to_owned())];
    });
    web.wait_for("web", &["10.0.0.2", "10.0.0.9"]).await;
}

#[tokio::test]
async fn flexible_scale_sets_and_tagged_vms_are_discovered() {
    let azure = shop().await;
    azure.change(|vms| {
        let flexible = ScaleSet { is_flexible: true, tags: tags(&[("App", "flex")]) };
        vms.scale_sets.insert("Flex".to_owned(), flexible);
        vms.scale_sets
            .insert("other".to_owned(), ScaleSet { is_flexible: true, ..ScaleSet::default() });
        vms.machines.push(Machine::of("Flex", "flex_1", "10.1.0.1"));
        vms.machines.push(Machine::of("other", "other_1", "10.1.0.2"));
        let with = |machine: Machine, app: &str| Machine { tags: tags(&[("App", app)]), ..machine };
        vms.machines.push(with(Machine::at("db1", "10.2.0.1"), "db"));
        vms.machines.push(with(Machine::at("db2", "10.2.0.2"), "db"));
        vms.machines.push(with(Machine::at("cache1", "10.2.0.3"), "cache"));
        // One with the tag is in a scale set.
        vms.machines.push(with(Machine::of("other", "other_2", "10.1.0.3"), "db"));
        vms.machine("db2").power = Some("stopped");
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
    let watch = ProviderWatch::services(options(&azure), services);
    for name in ["flex", "by-tag", "both"] {
        let found = watch.wait_for(name, &["10.1.0.1"]).await;
        assert_eq!(found.endpoints[0].instance.as_deref(), Some("rgshop/flex_1"));
        assert_eq!(found.endpoints[0].labels.to_string(), "app=flex");
    }
    let found = watch.wait_for("neither", &[]).await;
    assert!(found.problems[0].reason.contains("does not have the tags"), "{:?}", found.problems);
    watch.wait_for("db", &["10.2.0.1"]).await;
    let all = ["10.0.0.1", "10.0.0.2", "10.1.0.2", "10.1.0.3", "10.2.0.3"];
    watch.wait_for("all", &all).await;
    azure.change(|vms| vms.machine("db2").power = Some("running"));
    watch.wait_for("db", &["10.2.0.1", "10.2.0.2"]).await;
    assert!(watch.now().is_complete);
}

#[tokio::test]
async fn all_resource_groups_are_searched_if_none_is_configured() {
    let azure = shop().await;
    azure.change(|vms| {
        let machine = Machine { tags: tags(&[("app", "db")]), ..Machine::at("db1", "10.2.0.1") };
        vms.machines.push(machine);
    });
    let anywhere = AzureOptions { resource_group: None, ..options(&azure) };
    let services = [
        ("web", vec![scale_set("web")]),
        ("db", vec![tagged(AzureMachines::VirtualMachines, "app", "db")]),
    ];
    let watch = ProviderWatch::services(anywhere, services);
    watch.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    watch.wait_for("db", &["10.2.0.1"]).await;
}

#[tokio::test]
async fn primary_address_of_the_configured_family_is_used() {
    let azure = shop().await;
    let some = |text: &str| Some(text.to_owned());
    azure.change(|vms| {
        vms.machine("0").interfaces = vec![
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
        vms.machine("1").interfaces =
            vec![Interface { addresses: vec![some("fd00::2")], ..Interface::default() }];
    });
    let six = AzureQuery { address_family: AddressFamily::Ipv6, ..scale_set("web") };
    let services = [("four", vec![scale_set("web")]), ("six", vec![six])];
    let watch = ProviderWatch::services(options(&azure), services);
    watch.wait_for("six", &["fd00::1", "fd00::2"]).await;
    let found =
        watch.wait_for_problem("four", "rgshop/web/1", "set `address_family = \"ipv6\"`").await;
    assert_eq!(at(&found), ["10.0.0.1".to_owned()].into());
}

#[tokio::test]
async fn services_with_equal_queries_share_endpoints_and_follow_changes() {
    let azure = shop().await;
    let services = [("one", vec![scale_set("web")]), ("two", vec![scale_set("WEB")])];
    let watch = ProviderWatch::services(options(&azure), services);
    watch.wait_for("one", &["10.0.0.1", "10.0.0.2"]).await;
    watch.wait_for("two", &["10.0.0.1", "10.0.0.2"]).await;
    let before = watch.of("one").unwrap();
    // A removed query is forgotten, and an unchanged one stays.
    watch.provider.follow(&specification([("one", vec![scale_set("web")])]));
    eventually("removal of the other service", async || match watch.now().services.len() {
        1 => Ok(()),
        count => Err(count),
    })
    .await;
    assert!(Arc::ptr_eq(&watch.of("one").unwrap().endpoints, &before.endpoints));
    azure.change(|vms| vms.machines.push(Machine::of("web", "2", "10.0.0.3")));
    watch.wait_for("one", &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await;
    azure.change(|vms| vms.machines.remove(0));
    watch.wait_for("one", &["10.0.0.2", "10.0.0.3"]).await;
}

#[tokio::test]
async fn id_case_and_page_size_do_not_change_discovered_vms() {
    let azure = shop().await;
    azure.change(|vms| {
        for n in 2..7 {
            vms.machines.push(Machine::of("web", &n.to_string(), &format!("10.0.0.{}", n + 1)));
        }
    });
    azure.mix_case();
    azure.set_page_size(2);
    // The next page may be at the other port of the same host, too.
    for kind in [RequestKind::UniformMachines, RequestKind::UniformInterfaces] {
        azure.set_fault(kind, AzureFault::NextPageAtOtherPort);
    }
    let web = ProviderWatch::web(options(&azure));
    let all = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"];
    let found = web.wait_for("web", &all).await;
    assert!(azure.count(RequestKind::UniformMachines) >= 4);
    let names: Vec<_> =
        found.endpoints.iter().map(|one| one.instance.as_deref().unwrap()).collect();
    assert_eq!(names[..2], ["rgshop/web/0", "rgshop/web/1"]);
}

#[tokio::test]
async fn resource_graph_is_preferred_and_falls_back_to_compute_api() {
    for is_off in [false, true] {
        let azure = shop().await;
        azure.change(|vms| {
            let db = Machine { tags: tags(&[("app", "db")]), ..Machine::at("db1", "10.2.0.1") };
            vms.machines.push(db);
            let off = Machine { tags: tags(&[("app", "db")]), ..Machine::at("db2", "10.2.0.2") };
            vms.machines.push(Machine { power: Some("deallocated"), ..off });
            let flexible = ScaleSet { is_flexible: true, ..ScaleSet::default() };
            vms.scale_sets.insert("flex".to_owned(), flexible);
            vms.machines.push(Machine::of("flex", "flex_1", "10.3.0.1"));
            for name in ["1", "flex_1"] {
                vms.machine(name).health = Some("unhealthy");
            }
        });
        if is_off {
            azure.set_fault(RequestKind::Graph, AzureFault::Status(422, "NotSupported"));
            azure.set_fault(RequestKind::GraphMachines, AzureFault::Status(422, "NotSupported"));
        }
        let with_graph = AzureOptions { resource_graph: true, ..options(&azure) };
        let services = [
            ("web", vec![scale_set("web")]),
            ("flex", vec![scale_set("flex")]),
            ("db", vec![tagged(AzureMachines::VirtualMachines, "app", "db")]),
        ];
        let watch = ProviderWatch::services(with_graph, services);
        let web = watch.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
        let flex = watch.wait_for("flex", &["10.3.0.1"]).await;
        watch.wait_for("db", &["10.2.0.1"]).await;
        assert!(azure.count(RequestKind::Graph) > 0);
        assert!(azure.count(RequestKind::GraphMachines) >= 2, "of each scale set");
        for kind in
            [RequestKind::States, RequestKind::UniformMachines, RequestKind::FlexibleMachines]
        {
            assert_eq!(azure.count(kind) > 0, is_off, "{kind:?} after the other list failed");
        }
        // Only the compute provider knows the health of applications.
        let health = if is_off { Health::Unhealthy } else { Health::Healthy };
        assert_eq!((web.endpoints[1].health, flex.endpoints[0].health), (health, health));
        azure.change(|vms| vms.machines.remove(0));
        watch.wait_for("web", &["10.0.0.2"]).await;
    }
}
