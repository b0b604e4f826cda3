//! A mesh whose proxies are tied to their machines by the key of these, and what may happen to Azure
//! meanwhile: no request fails, nobody is taken out of use, and a machine that leaves is called no more.

use ironmesh_tests::azure::{Fault, Kind};
use ironmesh_tests::eventually;

use crate::shop::Shop;

const READ: &str = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read";

#[tokio::test(flavor = "multi_thread")]
async fn machines_are_called_by_their_keys_through_whatever_happens_to_azure() {
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
    shop.survives("an empty list", async |shop| {
        shop.azure.be(Kind::UniformMachines, Fault::Empty);
        // The scale set says that it has three: so it is not the scale set that is empty.
        shop.tells("IM0", "web").await;
        shop.azure.be(Kind::UniformMachines, None);
    })
    .await;
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
