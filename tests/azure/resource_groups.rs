//! Machines in several subscriptions and resource groups.

use std::time::Duration;

use ironmesh_catalog::{AzureMachines, AzureQuery};
use ironmesh_providers::azure::AzureOptions;
use ironmesh_tests::azure::{
    FakeAzure, GROUP, Interface, Machine, RequestKind, SUBSCRIPTION, ScaleSet,
};

use crate::watch::{ProviderWatch, at, options, scale_set, shop, tagged};

const OTHER_SUBSCRIPTION: &str = "00000000-1111-2222-3333-444444444444";

/// A machine with a tag, outside scale sets.
fn db(name: &str, address: &str) -> Machine {
    let tags = [("app".to_owned(), "db".to_owned())].into();
    Machine { tags, ..Machine::at(name, address) }
}

fn interface(address: &str, primary: bool, group: Option<&str>) -> Interface {
    Interface {
        primary: Some(primary),
        addresses: vec![Some(address.to_owned())],
        group: group.map(str::to_owned),
    }
}

/// A query for machines with that tag.
fn dbs() -> AzureQuery {
    tagged(AzureMachines::VirtualMachines, "app", "db")
}

/// Options for one round of requests.
fn once(azure: &FakeAzure) -> AzureOptions {
    AzureOptions { interval: Duration::from_secs(3600), ..options(azure) }
}

#[tokio::test]
async fn equal_vm_names_in_two_subscriptions_are_two_endpoints() {
    let azure = shop().await;
    azure.change_in(OTHER_SUBSCRIPTION, GROUP, |vms| {
        vms.scale_sets.insert("web".to_owned(), ScaleSet::default());
        vms.machines
            .extend([Machine::of("web", "0", "10.1.0.1"), Machine::of("web", "1", "10.1.0.2")]);
    });
    let elsewhere = AzureQuery {
        subscription: Some(OTHER_SUBSCRIPTION.into()),
        resource_group: Some(GROUP.into()),
        ..scale_set("web")
    };
    let both = [("web", vec![scale_set("web"), elsewhere])];
    let web = ProviderWatch::services(options(&azure), both);
    let all = ["10.0.0.1", "10.0.0.2", "10.1.0.1", "10.1.0.2"];
    let found = web.wait_for("web", &all).await;
    let names: Vec<_> = found.endpoints.iter().filter_map(|one| one.instance.as_deref()).collect();
    assert_eq!(names[0], format!("{SUBSCRIPTION}/rgshop/web/0"));
    assert_eq!(names[2], format!("{OTHER_SUBSCRIPTION}/rgshop/web/0"));
    // One machine of each group has an unknown state: it stays as it was, independent of the
    // other's.
    azure.change(|vms| vms.machine("0").power = None);
    azure.change_in(OTHER_SUBSCRIPTION, GROUP, |vms| vms.machine("1").power = None);
    let mine = format!("{SUBSCRIPTION}/rgshop/web/0");
    web.wait_for_problem("web", &mine, "whether it runs").await;
    let found = web
        .wait_for_problem("web", &format!("{OTHER_SUBSCRIPTION}/rgshop/web/1"), "whether it runs")
        .await;
    assert_eq!(at(&found), all.map(str::to_owned).into());
    let mut reasons = found.problems.iter().map(|problem| &problem.reason);
    assert!(!reasons.any(|reason| reason.contains("taken")), "{:?}", found.problems);
}

#[tokio::test]
async fn power_states_of_many_groups_take_one_query() {
    const GROUPS: u8 = 12;
    for resource_graph in [false, true] {
        let azure = FakeAzure::start().await;
        let mut services = Vec::new();
        for n in 0..GROUPS {
            let (group, name) = (format!("group{n}"), format!("db{n}"));
            azure.change_in(SUBSCRIPTION, &group, |vms| {
                vms.machines.push(db("one", &format!("10.0.{n}.1")));
                let off = db("off", &format!("10.0.{n}.2"));
                vms.machines.push(Machine { power: Some("deallocated"), ..off });
                let set = ScaleSet { is_flexible: true, ..ScaleSet::default() };
                vms.scale_sets.insert("set".to_owned(), set);
                vms.machines.push(Machine::of("set", "set_1", &format!("10.1.{n}.1")));
            });
            let in_it =
                |question| AzureQuery { resource_group: Some(group.as_str().into()), ..question };
            services.push((name, vec![in_it(dbs()), in_it(scale_set("set"))]));
        }
        let all = services.iter().map(|(name, requests)| (name.as_str(), requests.clone()));
        let asking = AzureOptions { resource_graph, ..once(&azure) };
        let watch = ProviderWatch::services(asking, all);
        for n in 0..GROUPS {
            let (single, of_set) = (format!("10.0.{n}.1"), format!("10.1.{n}.1"));
            watch.wait_for(&format!("db{n}"), &[&single, &of_set]).await;
        }
        let (own, of_graph) = if resource_graph { (0, 1) } else { (1, 0) };
        assert_eq!(
            (azure.count(RequestKind::States), azure.count(RequestKind::Graph)),
            (own, of_graph)
        );
        // One request per group, in whatever order the lists of machines arrive.
        let of_interfaces = azure.count(RequestKind::Interfaces);
        let groups = usize::from(GROUPS);
        assert!((groups..=2 * groups).contains(&of_interfaces), "{of_interfaces}");
    }
}

#[tokio::test]
async fn started_vm_refreshes_interfaces_of_its_group_only() {
    let azure = FakeAzure::start().await;
    let mut services = Vec::new();
    for n in 0..5 {
        let group = format!("group{n}");
        azure.change_in(SUBSCRIPTION, &group, |vms| {
            let off = db("one", &format!("10.0.{n}.1"));
            vms.machines.push(Machine { power: Some("deallocated"), ..off });
            vms.machines.push(db("two", &format!("10.0.{n}.2")));
        });
        let requests = AzureQuery { resource_group: Some(group.as_str().into()), ..dbs() };
        services.push((format!("db{n}"), vec![requests]));
    }
    let all = services.iter().map(|(name, requests)| (name.as_str(), requests.clone()));
    let watch = ProviderWatch::services(options(&azure), all);
    for n in 0..5 {
        watch.wait_for(&format!("db{n}"), &[&format!("10.0.{n}.2")]).await;
    }
    let before = azure.count(RequestKind::Interfaces);
    azure.change_in(SUBSCRIPTION, "group3", |vms| {
        let machine = vms.machine("one");
        machine.power = Some("running");
        machine.interfaces[0].addresses = vec![Some("10.0.3.9".to_owned())];
    });
    watch.wait_for("db3", &["10.0.3.2", "10.0.3.9"]).await;
    assert!(azure.count(RequestKind::Interfaces) <= before + 2, "{before}");
}

#[tokio::test]
async fn interface_in_a_different_resource_group_is_found() {
    const NETWORK: &str = "rgNetwork";
    let azure = FakeAzure::start().await;
    azure.change_in(SUBSCRIPTION, NETWORK, |_| ());
    azure.change(|vms| {
        let interfaces = vec![interface("10.2.0.1", true, Some(NETWORK))];
        vms.machines.push(Machine { interfaces, ..db("db1", "") });
        // The second interface is in the machine's group; its address is not used.
        let interfaces =
            vec![interface("10.9.0.2", false, None), interface("10.2.0.2", true, Some(NETWORK))];
        vms.machines.push(Machine { interfaces, ..db("db2", "") });
        vms.machines.push(db("db3", "10.2.0.3"));
        // No service selects this machine, so its interfaces are not requested.
        let interfaces = vec![interface("10.2.0.9", true, Some("rgElsewhere"))];
        vms.machines.push(Machine { interfaces, ..Machine::at("other", "") });
        let set = ScaleSet { is_flexible: true, ..ScaleSet::default() };
        vms.scale_sets.insert("flex".to_owned(), set);
        let interfaces = vec![interface("10.2.0.4", true, Some(NETWORK))];
        vms.machines.push(Machine { interfaces, ..Machine::of("flex", "flex_1", "") });
    });
    let services = [("db", vec![dbs()]), ("flex", vec![scale_set("flex")])];
    let watch = ProviderWatch::services(once(&azure), services.clone());
    watch.wait_for("db", &["10.2.0.1", "10.2.0.2", "10.2.0.3"]).await;
    watch.wait_for("flex", &["10.2.0.4"]).await;
    // One request per group; one more where machines become known that use it too.
    assert!(
        (2..=4).contains(&azure.count(RequestKind::Interfaces)),
        "{}",
        azure.count(RequestKind::Interfaces)
    );
    // A new interface is in a group that may not be read: this is reported, and the others stay.
    let watch = ProviderWatch::services(options(&azure), services);
    watch.wait_for("db", &["10.2.0.1", "10.2.0.2", "10.2.0.3"]).await;
    azure.change(|vms| {
        let interfaces = vec![interface("10.2.0.5", true, Some("rgSecret"))];
        vms.machines.push(Machine { interfaces, ..db("db5", "") });
    });
    let found = watch
        .wait_for_problem("db", "rgshop/db5", "in resource group `rgsecret` is not shown")
        .await;
    assert_eq!(found.endpoints.len(), 3);
    // The others stay authoritative: a removed machine is removed.
    let found = watch.wait_for_problem("db", "rgsecret", "ResourceGroupNotFound").await;
    assert_eq!(found.endpoints.len(), 3);
    azure.change(|vms| vms.machines.retain(|machine| machine.name != "db3"));
    watch.wait_for("db", &["10.2.0.1", "10.2.0.2"]).await;
    // The group is created.
    azure.change_in(SUBSCRIPTION, "rgSecret", |_| ());
    watch.wait_for("db", &["10.2.0.1", "10.2.0.2", "10.2.0.5"]).await;
}

#[tokio::test]
async fn secondary_and_stopped_vm_interfaces_cause_no_group_query() {
    for is_flexible in [false, true] {
        let azure = FakeAzure::start().await;
        azure.change(|vms| {
            let set = ScaleSet { is_flexible: true, ..ScaleSet::default() };
            vms.scale_sets.insert("flex".to_owned(), set);
            let set = is_flexible.then(|| "flex".to_owned());
            let one = |name: &str, address: &str| Machine { set: set.clone(), ..db(name, address) };
            let both = vec![
                interface("10.9.0.1", false, Some("rgHub")),
                interface("10.2.0.1", true, None),
            ];
            vms.machines.push(Machine { interfaces: both, ..one("db1", "") });
            vms.machines.push(one("db2", "10.2.0.2"));
            vms.machines.push(one("db3", "10.2.0.3"));
            let hidden = vec![interface("10.9.0.4", true, Some("rgHub"))];
            let off = Machine { interfaces: hidden, ..one("db4", "") };
            vms.machines.push(Machine { power: Some("deallocated"), ..off });
        });
        let requests = if is_flexible { scale_set("flex") } else { dbs() };
        let watch = ProviderWatch::services(options(&azure), [("db", vec![requests])]);
        watch.wait_for("db", &["10.2.0.1", "10.2.0.2", "10.2.0.3"]).await;
        azure.change(|vms| vms.machines.retain(|machine| machine.name != "db3"));
        let found = watch.wait_for("db", &["10.2.0.1", "10.2.0.2"]).await;
        assert_eq!(*found.problems, []);
        // The stopped machine starts: its group is queried, and denies access. A removed machine is
        // still removed.
        azure.change(|vms| vms.machine("db4").power = Some("running"));
        watch.wait_for_problem("db", "rghub", "ResourceGroupNotFound").await;
        azure.change(|vms| vms.machines.retain(|machine| machine.name != "db2"));
        watch.wait_for("db", &["10.2.0.1"]).await;
    }
}

#[tokio::test]
async fn excess_interface_resource_groups_are_reported() {
    let azure = FakeAzure::start().await;
    for n in 0..22 {
        let group = format!("network{n:02}");
        azure.change_in(SUBSCRIPTION, &group, |_| ());
        azure.change(|vms| {
            let interfaces = vec![interface(&format!("10.2.0.{n}"), true, Some(&group))];
            vms.machines.push(Machine { interfaces, ..db(&format!("db{n}"), "") });
        });
    }
    let watch = ProviderWatch::services(options(&azure), [("db", vec![dbs()])]);
    let words = "in 20 other resource groups, which are read, and in 2 more, which are not";
    let found = watch.wait_for_problem("db", "resource groups", words).await;
    assert_eq!(found.endpoints.len(), 20);
}
