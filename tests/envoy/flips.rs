//! Make before break, also between proxies: policy changes back and forth under load, and no
//! request fails.

use std::fmt::Write as _;

use ironmesh_tests::{
    App, Envoy, Ledger, Load, Mesh, Programs, ProxyOptions, eventually, get_once,
};

use crate::bookstore::ensure_status;

/// The policy for the store's versions: which exist, and their weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SplitState {
    /// The weight of each version; `None` means that the service does not exist.
    weights: [Option<u32>; 3],
    /// Whether the buyer has a further service to call, with its own listener.
    has_stall: bool,
}

impl SplitState {
    /// One file, so that each state becomes active as a whole.
    fn policy(self) -> String {
        let mut policy = String::from(
            r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 14001, protocol = "http" }]

[[service]]
name = "buyer"

[[service]]
name = "ledger"
ports = [{ name = "ledger", port = 3306, protocol = "tcp", target_port = 8081 }]

[[service]]
name = "calls"
ports = [{ name = "rpc", port = 14002, protocol = "grpc", target_port = 8082 }]

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[tcp_route]]
name = "all"
"#,
        );
        let mut backends = Vec::new();
        for (version, weight) in (1..).zip(self.weights) {
            let Some(weight) = weight else { continue };
            write!(
                policy,
                "[[service]]\nname = \"store-v{version}\"\nservice_account = \"store\"\n\
                 ports = [{{ name = \"web\", port = 14001, protocol = \"http\", target_port = 8080 }}]\n"
            )
            .unwrap();
            backends.push(format!("{{ service = \"store-v{version}\", weight = {weight} }}"));
        }
        write!(
            policy,
            "[[traffic_split]]\nname = \"store\"\nservice = \"store\"\nbackends = [{}]\n",
            backends.join(", ")
        )
        .unwrap();
        if self.has_stall {
            policy.push_str(
                "[[service]]\nname = \"stall\"\nservice_account = \"store\"\n\
                 ports = [{ name = \"web\", port = 80, protocol = \"http\", target_port = 8080 }]\n",
            );
        }
        for (destination, kind) in
            [("store", "HTTPRouteGroup"), ("calls", "HTTPRouteGroup"), ("ledger", "TCPRoute")]
        {
            write!(
                policy,
                "[[traffic_target]]\nname = \"{destination}\"\ndestination = {{ name = \"{destination}\" }}\n\
                 sources = [{{ name = \"buyer\" }}]\nrules = [{{ kind = \"{kind}\", name = \"all\" }}]\n"
            )
            .unwrap();
        }
        policy
    }
}

const ALL_VERSIONS: SplitState =
    SplitState { weights: [Some(1), Some(1), Some(1)], has_stall: true };

/// A store of three versions, and the services for the load.
struct FlipMesh {
    mesh: Mesh,
    buyer: Envoy,
    stores: Vec<Envoy>,
    others: Vec<Envoy>,
    _apps: (Vec<App>, Ledger),
}

impl FlipMesh {
    async fn open(adapt: fn(ProxyOptions) -> ProxyOptions) -> Option<Self> {
        let programs = Programs::find()?;
        let mesh = Mesh::start(&programs, &[("policy.toml", &ALL_VERSIONS.policy())]).await;
        let socket = |host, port| mesh.loopback().socket(host, port);
        let (mut apps, mut stores) = (Vec::new(), Vec::new());
        for (version, host) in (1..=3).zip(21..) {
            apps.push(App::http1(&format!("v{version}"), socket(host, 8080)).await);
            let options = ProxyOptions::new(&format!("default/store-v{version}"), host);
            // One of them also serves the stall, whose listener comes and goes with it.
            let options =
                if version == 1 { options.with_service("default/stall") } else { options };
            stores.push(mesh.envoy(&adapt(options)).await);
        }
        apps.push(App::http2("calls", socket(31, 8082)).await);
        let ledger = Ledger::start("ledger", socket(32, 8081)).await;
        let others = vec![
            mesh.envoy(&adapt(ProxyOptions::new("default/calls", 31))).await,
            mesh.envoy(&adapt(ProxyOptions::new("default/ledger", 32))).await,
        ];
        let buyer = ProxyOptions::new("default/buyer", 11)
            .upstream("default/store=14001")
            .upstream("default/calls=14002")
            .upstream("default/ledger=3306")
            .upstream("default/stall=8000");
        let buyer = mesh.envoy(&adapt(buyer)).await;
        let setup = Self { mesh, buyer, stores, others, _apps: (apps, ledger) };
        setup.wait_for(ALL_VERSIONS).await;
        Some(setup)
    }

    async fn load(&self) -> Load {
        let mut load = None;
        eventually("the load to begin", async || {
            let started = Load::start(self.buyer.socket(14001), "store", "/");
            let started = started.with_stream(self.buyer.socket(14002), "calls").await?;
            load = Some(started.with_connection(self.buyer.socket(3306)).await?);
            anyhow::Ok(())
        })
        .await;
        load.unwrap()
    }

    /// Waits until exactly the versions with a weight answer.
    async fn wait_for(&self, state: SplitState) {
        let weights = (1..).zip(state.weights);
        let wanted: Vec<_> = weights
            .filter(|(_, weight)| weight.is_some_and(|weight| weight > 0))
            .map(|(version, _)| format!("v{version}"))
            .collect();
        eventually(&format!("{wanted:?} to answer"), async || {
            let mut seen = Vec::new();
            for _ in 0..20 {
                let response = get_once(self.buyer.socket(14001), "/", &[]).await?;
                ensure_status(&response, 200)?;
                seen.extend(response.header("x-app").map(str::to_owned));
            }
            seen.sort();
            seen.dedup();
            anyhow::ensure!(seen == wanted, "{seen:?}");
            Ok(())
        })
        .await;
    }

    /// Fails if an Envoy has timed out for an update, NACKed one or missed a cluster. To be called
    /// often: the counters of a listener or cluster end with it.
    async fn assert_no_update_errors(&self) {
        for envoy in self.stores.iter().chain(&self.others).chain([&self.buyer]) {
            envoy.assert_no_update_errors().await;
            let missed = envoy.stats(r"^http\..*\.no_cluster$").await;
            assert!(missed.values().all(|count| *count == 0) && !missed.is_empty(), "{missed:?}");
        }
    }

    #[expect(clippy::print_stderr, reason = "the figures belong to the test's report")]
    /// Checks that no request failed or was retried, and that no update is pending.
    async fn assert_no_failures(&self, load: Load) {
        let report = load.finish().await;
        let retries = self.buyer.sum(r"^cluster\..*\.upstream_rq_retry$").await;
        eprintln!(
            "{} requests, {} messages, {} lines; retries: {retries}",
            report.requests, report.stream_messages, report.connection_lines
        );
        assert_eq!(retries, 0);
        report.assert_undisturbed();
        assert!(report.stream_messages > 0 && report.connection_lines > 0, "{report:?}");
        for envoy in self.stores.iter().chain(&self.others).chain([&self.buyer]) {
            for gauge in
                ["cluster_manager.warming_clusters", "listener_manager.total_listeners_warming"]
            {
                assert_eq!(envoy.stat(gauge).await, 0, "{gauge}");
            }
        }
        self.assert_no_update_errors().await;
    }

    /// Changes policy this many times at random, and waits for the last state.
    async fn flip(&self, load: &Load, count: u32, mut random: Random) {
        let mut last = ALL_VERSIONS;
        for _ in 0..count {
            let weights = [(); 3].map(|()| match random.below(4) {
                0 => None,
                1 => Some(0),
                weight => Some(u32::try_from(weight).unwrap()),
            });
            last = SplitState { weights, has_stall: random.below(2) == 0 };
            if weights.iter().flatten().sum::<u32>() == 0 {
                // Without any weight no request could succeed.
                last.weights = ALL_VERSIONS.weights;
            }
            let before = load.requests();
            self.mesh.write_policy("policy.toml", &last.policy());
            // Some states become active together with the next, and some alone.
            let pause = 20 + 20 * random.below(5);
            eventually("some requests", async || match load.requests() - before {
                count if count >= pause => Ok(()),
                count => Err(count),
            })
            .await;
            self.assert_no_update_errors().await;
        }
        self.wait_for(last).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn atomic_version_switch_fails_no_request() {
    let Some(setup) = FlipMesh::open(|options| options).await else { return };
    let load = setup.load().await;
    for version in [0, 1, 2, 1, 0, 2] {
        // The others are no longer services; their proxies should be the last to learn of it.
        let mut state = SplitState { weights: [None; 3], has_stall: version % 2 == 0 };
        state.weights[version] = Some(1);
        setup.mesh.write_policy("policy.toml", &state.policy());
        setup.wait_for(state).await;
    }
    setup.assert_no_failures(load).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hundred_random_policy_flips_fail_no_request() {
    let Some(setup) = FlipMesh::open(|options| options).await else { return };
    let load = setup.load().await;
    setup.flip(&load, 100, Random::seeded(0x5eed)).await;
    setup.assert_no_failures(load).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sotw_hundred_random_policy_flips_fail_no_request() {
    let Some(setup) = FlipMesh::open(ProxyOptions::sotw).await else { return };
    let load = setup.load().await;
    setup.flip(&load, 100, Random::seeded(0x5071)).await;
    setup.assert_no_failures(load).await;
}

/// A small random number generator with a fixed seed. `FLIPS_SEED` sets another.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        let given = std::env::var("FLIPS_SEED").ok().and_then(|text| text.parse().ok());
        Self(given.unwrap_or(seed))
    }

    /// A number from 0 to below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
