//! A mesh whose proxies are tied to Azure machines by their ids, under faults of Azure: no request
//! fails, no endpoint is withdrawn, and a removed machine gets no more calls.

use std::net::{Ipv6Addr, SocketAddr};

use ironmesh_tests::azure::{AzureFault, FakeAzure, Interface, Machine, RequestKind};
use ironmesh_tests::{App, Load, Mesh, Programs, ProxyOptions, eventually, get_once};

use crate::mesh::{AzureMesh, settings};

const READ: &str = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read";

#[tokio::test(flavor = "multi_thread")]
async fn azure_faults_fail_no_call_to_vms() {
    let Some(setup) = AzureMesh::open().await else { return };
    setup
        .assert_tolerated("401: the token is none any more", async |setup| {
            let before = setup.azure.count(RequestKind::Metadata);
            setup.azure.revoke_tokens();
            eventually("another token", async || match setup.azure.count(RequestKind::Metadata) {
                count if count > before => Ok(()),
                count => Err(count),
            })
            .await;
        })
        .await;
    setup
        .assert_tolerated("403: a role that lacks something", async |setup| {
            setup.azure.deny(READ);
            setup.wait_for_finding("IM0501", READ).await;
            let test = setup.mesh.run(&["provider", "azure", "test"]).await;
            let words = String::from_utf8_lossy(&test.stdout).into_owned();
            assert_eq!(test.status.code(), Some(1), "{words}");
            assert!(words.contains(&format!("{READ} at ")), "{words}");
            setup.azure.deny_nothing();
        })
        .await;
    setup
        .assert_tolerated("no token for the machine", async |setup| {
            setup.azure.set_fault(RequestKind::Metadata, AzureFault::Status(500, "Down"));
            setup.azure.revoke_tokens();
            setup.wait_for_finding("IM0501", "no token for Azure").await;
            setup.azure.set_fault(RequestKind::Metadata, None);
        })
        .await;
    for (what, fault, words) in [
        ("a clock that is an hour behind", AzureFault::ClockAhead(61), "minutes behind of Azure's"),
        ("a clock that is an hour ahead", AzureFault::ClockAhead(-61), "minutes ahead of Azure's"),
        ("429: too many requests", AzureFault::Throttled(1), "429 Too Many Requests"),
        ("JSON that is none", AzureFault::Body("{".to_owned()), "the answer cannot be read"),
        (
            "a fault of Azure's",
            AzureFault::Status(500, "InternalServerError"),
            "500 Internal Server",
        ),
        ("a next page elsewhere", AzureFault::NextPageAtForeignHost, "the token was not sent"),
    ] {
        setup
            .assert_tolerated(what, async |setup| {
                setup.azure.set_fault(RequestKind::UniformMachines, fault);
                setup.wait_for_finding("IM0501", words).await;
                setup.azure.set_fault(RequestKind::UniformMachines, None);
            })
            .await;
    }
    setup
        .assert_tolerated("429 to every request", async |setup| {
            let all = [
                RequestKind::ScaleSets,
                RequestKind::UniformMachines,
                RequestKind::UniformInterfaces,
                RequestKind::States,
            ];
            for kind in all {
                setup.azure.set_fault(kind, AzureFault::Throttled(1));
            }
            let requests = setup.azure.count(RequestKind::ScaleSets);
            eventually("the list of scale sets to fail", async || {
                match setup.azure.count(RequestKind::ScaleSets) {
                    count if count > requests => Ok(()),
                    count => Err(count),
                }
            })
            .await;
            setup.wait_for_finding("IM0501", "429 Too Many Requests").await;
            for kind in all {
                setup.azure.set_fault(kind, None);
            }
        })
        .await;
    setup
        .assert_tolerated("an empty list", async |setup| {
            setup.azure.set_fault(RequestKind::UniformMachines, AzureFault::Empty);
            // The scale set reports a capacity of three, so an empty list is implausible.
            setup.wait_for_finding("IM0", "web").await;
            setup.azure.set_fault(RequestKind::UniformMachines, None);
        })
        .await;
    let at = |address: Option<&str>| {
        let addresses = vec![address.map(str::to_owned)];
        vec![Interface { primary: Some(true), addresses, ..Interface::default() }]
    };
    for (what, interfaces, words) in [
        ("an address that is null", at(None), "its network interface `nic0` has no address"),
        (
            "an instance without network interface",
            Vec::new(),
            "`rgshop/web/0` of service `default/web` in azure cannot be used: it has no network",
        ),
        ("an instance with IPv6 alone", at(Some("fd00::1")), "set `address_family = \"ipv6\"`"),
    ] {
        setup
            .assert_tolerated(what, async |setup| {
                let before = setup.azure.change(|vms| {
                    // A new machine lets the provider list interfaces.
                    let comes = Machine::of("web", "9", "10.0.0.9");
                    vms.machines.push(Machine { interfaces: Vec::new(), ..comes });
                    std::mem::replace(&mut vms.machine("0").interfaces, interfaces)
                });
                setup.wait_for_finding("IM05", words).await;
                setup.azure.change(|vms| {
                    vms.machine("0").interfaces = before;
                    vms.machines.retain(|machine| machine.name != "9");
                });
            })
            .await;
    }
    setup
        .assert_tolerated("a connection that breaks", async |setup| {
            setup.azure.set_fault(RequestKind::UniformMachines, AzureFault::Disconnect);
            setup.wait_for_finding("IM0501", "").await;
            setup.azure.set_fault(RequestKind::UniformMachines, None);
        })
        .await;
    setup
        .assert_tolerated("a deleted scale set", async |setup| {
            let set = setup.azure.change(|vms| vms.scale_sets.remove("web"));
            setup.wait_for_finding("IM05", "web").await;
            setup.azure.change(|vms| vms.scale_sets.insert("web".to_owned(), set.unwrap()));
        })
        .await;
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn token_faults_and_restarts_fail_no_call_to_ipv6_vms() {
    let Some(mut setup) = AzureMesh::open_with_ipv6_by_secret().await else { return };
    setup
        .assert_tolerated("a secret that others may read", async |setup| {
            setup.set_mode_of_secret(0o644);
            setup.azure.revoke_tokens();
            setup.wait_for_finding("IM0501", "(mode 0644)").await;
            setup.set_mode_of_secret(0o600);
        })
        .await;
    setup
        .assert_tolerated("no token for the application", async |setup| {
            setup.azure.set_fault(RequestKind::Login, AzureFault::Disconnect);
            setup.azure.revoke_tokens();
            setup.wait_for_finding("IM0501", "no token for Azure").await;
            setup.azure.set_fault(RequestKind::Login, None);
        })
        .await;
    // The control plane restarts during an outage, with its last known endpoints.
    for (kind, fault) in [
        (RequestKind::UniformMachines, AzureFault::Status(500, "InternalServerError")),
        (RequestKind::ScaleSets, AzureFault::Body("{".to_owned())),
        (RequestKind::Login, AzureFault::Status(503, "ServiceUnavailable")),
    ] {
        setup.azure.set_fault(kind, fault.clone());
        setup.azure.revoke_tokens();
        setup.wait_for_finding("IM0501", "").await;
        setup.mesh.restart_control_plane().await;
        setup
            .assert_tolerated(&format!("a restart while {kind:?} is {fault:?}"), async |setup| {
                setup.wait_for_finding("IM0501", "").await;
                setup.azure.set_fault(kind, None);
            })
            .await;
    }
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn azure_faults_fail_no_plaintext_call_to_an_ipv6_vm() {
    let Some(programs) = Programs::find() else { return };
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("skipped: this machine has no IPv6");
        return;
    }
    let azure = FakeAzure::start().await;
    let app = App::http1("six", SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0)).await;
    azure.change(|vms| {
        let tags = [("app".to_owned(), "six".to_owned())].into();
        vms.machines.push(Machine { tags, ..Machine::at("six", "::1") });
    });
    let policy = format!(
        "[[service]]\nname = \"buyer\"\n\n[[service]]\nname = \"six\"\nmode = \"permissive\"\n\
         ports = [{{ name = \"web\", port = 80, protocol = \"http\" }}]\n\
         endpoints = {{ azure_vm = {{ tags = {{ app = \"six\" }}, port = {}, address_family = \"ipv6\" }} }}\n",
        app.address().port()
    );
    let mut mesh = Mesh::prepare(&settings(&azure), &programs, &[("policy.toml", &policy)]);
    mesh.restart_control_plane().await;
    let buyer = mesh.envoy(&ProxyOptions::new("default/buyer", 11)).await;
    eventually("the machine to be called", async || {
        let answer = get_once(buyer.socket(15080), "/", &[("host", "six")]).await?;
        anyhow::ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
        Ok(())
    })
    .await;
    let load = Load::start(buyer.socket(15080), "six", "/");
    for (kind, fault) in [
        (RequestKind::Machines, AzureFault::Status(500, "InternalServerError")),
        (RequestKind::States, AzureFault::Empty),
        (RequestKind::Interfaces, AzureFault::Body("null".to_owned())),
    ] {
        let (requests, before) = (azure.count(kind), load.requests());
        azure.set_fault(kind, fault);
        // A new machine lets the provider list interfaces.
        azure.change(|vms| vms.machines.push(Machine::at(&format!("{kind:?}"), "10.0.0.9")));
        eventually("the fault to be met, and load after it", async || {
            let (requests, load) = (azure.count(kind) - requests, load.requests() - before);
            if requests > 1 && load > 300 { Ok(()) } else { Err(format!("{requests} {load}")) }
        })
        .await;
        azure.set_fault(kind, None);
    }
    load.finish().await.assert_undisturbed();
    assert_eq!(buyer.sum(r"^cluster\..*\.upstream_rq_retry$").await, 0);
    assert!(app.requests() > 0);
    mesh.stop().await;
}
