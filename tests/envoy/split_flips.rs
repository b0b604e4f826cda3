//! Conditional splits change under load: only routes change in Envoy.

use ironmesh_tests::{Envoy, eventually};

use crate::flips::Random;
use crate::split_mesh::{SplitMesh, split};

const MATCHES: &str = r#"
[[http_route_group]]
name = "store"
matches = [
  { name = "home", path_regex = "/$" },
  { name = "get", methods = ["GET"] },
  { name = "by-name", headers = { host = "store" } },
  { name = "nobody", headers = { x-nobody = "nobody" } },
]
"#;

/// All backends exist at any time, so that no cluster comes or goes.
const BACKENDS: [&str; 3] = ["v1", "v2", "v3"];

/// Random splits: up to three with conditions, and one for all calls. The latter stays, because it
/// applies to TCP connections too, whose split is in the listener.
fn policy(random: &mut Random) -> String {
    let mut policy = MATCHES.to_owned();
    for _ in 0..random.below(4) {
        let one = match random.below(4) {
            0 => "home",
            1 => "get",
            2 => "by-name",
            _ => "nobody",
        };
        let favourite = random.below(3);
        let to = BACKENDS.into_iter().zip(0..).map(|(name, number)| {
            let weight = random.below(4) + u64::from(number == favourite);
            (name, u32::try_from(weight).unwrap())
        });
        let to: Vec<_> = to.collect();
        // The priority is random too.
        let name = format!("n{}", random.below(1_000_000_000));
        policy.push_str(&split(&name, "store", &[one], &to));
    }
    policy + &unconditional_split()
}

fn unconditional_split() -> String {
    split("store", "store", &[], &BACKENDS.map(|name| (name, 1)))
}

/// Envoy's counters of added, changed and removed listeners and clusters.
async fn listener_and_cluster_changes(envoy: &Envoy) -> u64 {
    let counters = r"^(listener|cluster)_manager\.(listener|cluster)_(added|modified|removed|in_place_updated)$";
    let counters = envoy.stats(counters).await;
    assert!(counters.len() >= 6, "{counters:?}");
    counters.values().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn conditional_split_flips_update_only_routes_without_failures() {
    let mut random = Random::seeded(0x0911);
    let Some(setup) = SplitMesh::open(&policy(&mut random)).await else { return };
    let load = setup.load().await;
    let before = (
        listener_and_cluster_changes(&setup.buyer).await,
        listener_and_cluster_changes(&setup.server).await,
    );
    let updates = r"^http\.upstream_default_store_14001\.rds\..*\.config_reload$";
    let reloads = setup.buyer.sum(updates).await;
    for _ in 0..60 {
        let begin = load.requests();
        setup.mesh.write_policy("splits.toml", &policy(&mut random));
        let pause = 20 + 20 * random.below(4);
        eventually("some requests", async || match load.requests() - begin {
            count if count >= pause => Ok(()),
            count => Err(count),
        })
        .await;
    }
    let last = MATCHES.to_owned()
        + &split("home", "store", &["home"], &[("v2", 1)])
        + &unconditional_split();
    setup.mesh.write_policy("splits.toml", &last);
    setup.wait_for(&["v2"]).await;
    // Edits in quick succession become active together.
    let reloads = setup.buyer.sum(updates).await - reloads;
    assert!(reloads > 10, "the routes have turned {reloads} times only");
    assert_eq!(
        (
            listener_and_cluster_changes(&setup.buyer).await,
            listener_and_cluster_changes(&setup.server).await
        ),
        before
    );
    setup.assert_no_failures(load).await;
}
