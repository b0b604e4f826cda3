//! A mesh whose proxies are tied to their machines by the key of these, and what may happen to Azure
//! meanwhile: no request fails, nobody is taken out of use, and a machine that leaves is called no more.

use std::net::{Ipv6Addr, SocketAddr};

use ironmesh_tests::azure::{FakeAzure, Fault, Interface, Kind, Machine};
use ironmesh_tests::{App, Load, Mesh, Programs, ProxyOptions, eventually, get_once};

use crate::shop::{Shop, settings};

const READ: &str = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read";

#[tokio::test(flavor = "multi_thread")]
async fn azure_faults_fail_no_call_to_vms() {
    let Some(shop) = Shop::open().await else { return };
    shop.survives("401: the token is none any more", async |shop| {
        let before = shop.azure.count(Kind::Metadata);
        shop.azure.revoke_tokens();
        eventually("another token", async || match shop.azure.count(Kind::Metadata) {
            count if count > before => Ok(()),
            count => Err(count),
        })
        .await;
    })
    .await;
    shop.survives("403: a role that lacks something", async |shop| {
        shop.azure.deny(READ);
        shop.tells("IM0501", READ).await;
        let test = shop.mesh.run(&["provider", "azure", "test"]).await;
        let words = String::from_utf8_lossy(&test.stdout).into_owned();
        assert_eq!(test.status.code(), Some(1), "{words}");
        assert!(words.contains(&format!("{READ} at ")), "{words}");
        shop.azure.deny_nothing();
    })
    .await;
    shop.survives("nobody gives out tokens", async |shop| {
        shop.azure.be(Kind::Metadata, Fault::Status(500, "Down"));
        shop.azure.revoke_tokens();
        shop.tells("IM0501", "no token for Azure").await;
        shop.azure.be(Kind::Metadata, None);
    })
    .await;
    for (what, fault, words) in [
        ("a clock that is an hour behind", Fault::Later(61), "minutes behind of Azure's"),
        ("a clock that is an hour ahead", Fault::Later(-61), "minutes ahead of Azure's"),
        ("429: asked too often", Fault::Throttled(1), "429 Too Many Requests"),
        ("JSON that is none", Fault::Body("{".to_owned()), "the answer cannot be read"),
        ("a fault of Azure's", Fault::Status(500, "InternalServerError"), "500 Internal Server"),
        ("a next page elsewhere", Fault::ForeignNext, "the token stays here"),
    ] {
        shop.survives(what, async |shop| {
            shop.azure.be(Kind::UniformMachines, fault);
            shop.tells("IM0501", words).await;
            shop.azure.be(Kind::UniformMachines, None);
        })
        .await;
    }
    shop.survives("429: a storm of everything that is asked", async |shop| {
        let all = [Kind::ScaleSets, Kind::UniformMachines, Kind::UniformInterfaces, Kind::States];
        for kind in all {
            shop.azure.be(kind, Fault::Throttled(1));
        }
        let asked = shop.azure.count(Kind::ScaleSets);
        eventually("the list of scale sets to be refused", async || {
            match shop.azure.count(Kind::ScaleSets) {
                count if count > asked => Ok(()),
                count => Err(count),
            }
        })
        .await;
        shop.tells("IM0501", "429 Too Many Requests").await;
        for kind in all {
            shop.azure.be(kind, None);
        }
    })
    .await;
    shop.survives("an empty list", async |shop| {
        shop.azure.be(Kind::UniformMachines, Fault::Empty);
        // The scale set says that it has three: so it is not the scale set that is empty.
        shop.tells("IM0", "web").await;
        shop.azure.be(Kind::UniformMachines, None);
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
        shop.survives(what, async |shop| {
            let before = shop.azure.change(|world| {
                // One that comes makes that interfaces are asked for.
                let comes = Machine::of("web", "9", "10.0.0.9");
                world.machines.push(Machine { interfaces: Vec::new(), ..comes });
                std::mem::replace(&mut world.machine("0").interfaces, interfaces)
            });
            shop.tells("IM05", words).await;
            shop.azure.change(|world| {
                world.machine("0").interfaces = before;
                world.machines.retain(|machine| machine.name != "9");
            });
        })
        .await;
    }
    shop.survives("a connection that breaks", async |shop| {
        shop.azure.be(Kind::UniformMachines, Fault::Cut);
        shop.tells("IM0501", "").await;
        shop.azure.be(Kind::UniformMachines, None);
    })
    .await;
    shop.survives("a scale set that is gone", async |shop| {
        let set = shop.azure.change(|world| world.scale_sets.remove("web"));
        shop.tells("IM05", "web").await;
        shop.azure.change(|world| world.scale_sets.insert("web".to_owned(), set.unwrap()));
    })
    .await;
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn token_faults_and_restarts_fail_no_call_to_ipv6_vms() {
    let Some(mut shop) = Shop::open_with_ipv6_by_secret().await else { return };
    shop.survives("a secret that others may read", async |shop| {
        shop.set_mode_of_secret(0o644);
        shop.azure.revoke_tokens();
        shop.tells("IM0501", "(mode 0644)").await;
        shop.set_mode_of_secret(0o600);
    })
    .await;
    shop.survives("nobody gives out tokens to applications", async |shop| {
        shop.azure.be(Kind::Login, Fault::Cut);
        shop.azure.revoke_tokens();
        shop.tells("IM0501", "no token for Azure").await;
        shop.azure.be(Kind::Login, None);
    })
    .await;
    // The control plane begins anew while nothing is answered, with what it knew last.
    for (kind, fault) in [
        (Kind::UniformMachines, Fault::Status(500, "InternalServerError")),
        (Kind::ScaleSets, Fault::Body("{".to_owned())),
        (Kind::Login, Fault::Status(503, "ServiceUnavailable")),
    ] {
        shop.azure.be(kind, fault.clone());
        shop.azure.revoke_tokens();
        shop.tells("IM0501", "").await;
        shop.mesh.restart_control_plane().await;
        shop.survives(&format!("a restart while {kind:?} is {fault:?}"), async |shop| {
            shop.tells("IM0501", "").await;
            shop.azure.be(kind, None);
        })
        .await;
    }
    shop.close().await;
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
    azure.change(|world| {
        let tags = [("app".to_owned(), "six".to_owned())].into();
        world.machines.push(Machine { tags, ..Machine::at("six", "::1") });
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
        (Kind::Machines, Fault::Status(500, "InternalServerError")),
        (Kind::States, Fault::Empty),
        (Kind::Interfaces, Fault::Body("null".to_owned())),
    ] {
        let (asked, before) = (azure.count(kind), load.requests());
        azure.be(kind, fault);
        // Who comes makes that interfaces are asked for.
        azure.change(|world| world.machines.push(Machine::at(&format!("{kind:?}"), "10.0.0.9")));
        eventually("the fault to be met, and load after it", async || {
            let (asked, load) = (azure.count(kind) - asked, load.requests() - before);
            if asked > 1 && load > 300 { Ok(()) } else { Err(format!("{asked} {load}")) }
        })
        .await;
        azure.be(kind, None);
    }
    load.finish().await.assert_undisturbed();
    assert_eq!(buyer.sum(r"^cluster\..*\.upstream_rq_retry$").await, 0);
    assert!(app.requests() > 0);
    mesh.stop().await;
}
