//! What may happen to Azure, or to our standing with it, while a mesh is called that depends on it: no request
//! fails, nobody is taken out of use, and what really changes afterwards arrives.

use ironmesh_tests::azure::{Fault, Kind};
use ironmesh_tests::eventually;

use crate::shop::{GOES, Shop};

const READ: &str = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read";

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_by_azure_goes_on_with_what_it_knows() {
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
    shop.survives("429: asked too often", async |shop| {
        shop.azure.be(Kind::UniformMachines, Fault::Throttled(1));
        shop.tells("IM0501", "too often").await;
        shop.azure.be(Kind::UniformMachines, None);
    })
    .await;
    shop.survives("nobody gives out tokens", async |shop| {
        shop.azure.be(Kind::Metadata, Fault::Status(500, "Down"));
        shop.azure.revoke_tokens();
        shop.tells("IM0501", "no token for Azure").await;
        shop.azure.be(Kind::Metadata, None);
    })
    .await;
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_wrong_are_no_event_for_the_mesh() {
    let Some(shop) = Shop::open().await else { return };
    for (what, fault, words) in [
        ("JSON that is none", Fault::Body("[{".to_owned()), "cannot be read"),
        ("a fault of Azure's", Fault::Status(500, "InternalServerError"), "500"),
        ("a connection that breaks", Fault::Cut, ""),
        ("a next page elsewhere", Fault::ForeignNext, "another host"),
    ] {
        shop.survives(what, async |shop| {
            shop.azure.be(Kind::UniformMachines, fault);
            shop.tells("IM0501", words).await;
            shop.azure.be(Kind::UniformMachines, None);
        })
        .await;
    }
    shop.survives("an empty list", async |shop| {
        shop.azure.be(Kind::UniformMachines, Fault::Empty);
        shop.tells("IM0502", "has 0 of 3 healthy endpoints").await;
        shop.azure.be(Kind::UniformMachines, None);
    })
    .await;
    shop.survives("a scale set that is gone", async |shop| {
        let set = shop.azure.change(|world| world.scale_sets.remove("web"));
        shop.tells("IM05", "web").await;
        shop.azure.change(|world| world.scale_sets.insert("web".to_owned(), set.unwrap()));
    })
    .await;
    shop.survives("a machine without an address, and then without an interface", async |shop| {
        let whole = shop.azure.change(|world| world.machine(GOES).interfaces.clone());
        shop.azure.change(|world| world.machine(GOES).interfaces[0].addresses = vec![None]);
        shop.tells("IM0503", "has no address").await;
        shop.azure.change(|world| world.machine(GOES).interfaces.clear());
        shop.tells("IM0503", "no network interface").await;
        shop.azure.change(|world| world.machine(GOES).interfaces = whole);
    })
    .await;
    shop.close().await;
}
