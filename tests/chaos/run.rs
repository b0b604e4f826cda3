//! The run: a mesh under load, faults, and what must hold afterwards.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use fs_err as fs;
use ironmesh_bench::{AckDelay, Fleet, Identity, Variant, folders};
use ironmesh_tests::random::SeededRandom;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{App, Load, Mesh, Programs, ProxyOptions, REQUESTS_PER_FAULT, eventually};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::faults::Faults;
use crate::machines::Machines;
use crate::network::{Network, Site};
use crate::operators::{History, Operators};
use crate::schedule::schedule;
use crate::usage::Usage;

/// The services of the simulated proxies.
const SERVICES: usize = 10;
/// The proxies that operators may revoke.
const SPARE: usize = 200;
/// What the issue of replicas promises after the last fault: the TTL of leases, the wait for an order of pushes, and 5 s.
const PROMISED: Duration = Duration::from_secs(15 + 15 + 5);
/// How long a busy machine may take.
const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn random_faults_leave_no_trace() {
    let number = |name: &str, default: u64| {
        let text = std::env::var(name).ok();
        text.map_or(default, |text| {
            text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}"))
        })
    };
    let seed = number("CHAOS_SEED", 1);
    let length = Duration::from_secs(number("CHAOS_SECONDS", 120));
    let proxies = usize::try_from(number("CHAOS_PROXIES", 1_000)).unwrap();
    if !has_tools() {
        return;
    }
    let Some(programs) = Programs::find() else { return };
    eprintln!("to repeat the schedule: CHAOS_SEED={seed} CHAOS_SECONDS={}", length.as_secs());
    let network = Network::create();
    let enter = network.enter(Site::Proxies);
    enter();
    // Simulated proxies have threads of their own: when they all reconnect, they would delay requests of the load.
    let [runtime, of_proxies] = [(); 2].map(|()| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.enable_all().on_thread_start(enter.clone()).build().unwrap()
    });
    let predecessor = std::env::var_os("CHAOS_PREDECESSOR").map(PathBuf::from);
    let scale = Scale { seed, length, proxies, predecessor };
    runtime.block_on(run(network, programs, scale, of_proxies.handle()));
}

/// Whether the tools and the right to make namespaces are there. Under `CI=true` they must be.
fn has_tools() -> bool {
    let can = |program: &str, arguments: &[&str]| {
        let output = std::process::Command::new(program).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    let missing = [
        (
            can("unshare", &["--net", "true"]),
            "the right to create network namespaces: run it as root",
        ),
        (can("nft", &["--version"]), "nft, of the package nftables"),
        (can("strace", &["--version"]), "strace, of the package of that name"),
    ];
    let missing: Vec<_> =
        missing.iter().filter(|(is_here, _)| !is_here).map(|(_, what)| what).collect();
    assert!(
        missing.is_empty() || std::env::var("CI").as_deref() != Ok("true"),
        "missing: {missing:?}"
    );
    if !missing.is_empty() {
        eprintln!("SKIPPED: missing: {missing:?}");
    }
    missing.is_empty()
}

/// What a run consists of.
struct Scale {
    seed: u64,
    length: Duration,
    proxies: usize,
    /// The program of the control planes before the first upgrade, if it is of a different version.
    predecessor: Option<PathBuf>,
}

async fn run(network: Network, programs: Programs, scale: Scale, of_proxies: &Handle) {
    let Scale { seed, length, proxies, predecessor } = scale;
    let machines = Machines::start(network, &programs, predecessor.as_ref()).await;
    let Some(mut machines) = machines else { return };
    let folder = tempfile::Builder::new().prefix("ironmesh-test-").tempdir().unwrap();
    let of_policy = machines.cli_of_operators(folder.path());
    let first = write_policy(folder.path(), FIRST);
    let (first, message) = (first.display().to_string(), FIRST.to_string());
    of_policy.json(&["policy", "push", &first, "--message", &message]).await.unwrap();
    for number in 0..3 {
        let wait = async || machines.cli(number).json(&["policy", "wait"]).await;
        eventually("the first policy", wait).await;
    }

    // The proxies.
    let here = machines.control_planes[0].loopback();
    let _app = App::http1("store", here.socket(21, 8080)).await;
    let store = machines.control_planes[0].envoy(&ProxyOptions::new("default/store", 21)).await;
    let buyer = ProxyOptions::new("default/buyer", 11).upstream("default/store=14001");
    let buyer = machines.control_planes[0].envoy(&buyer).await;
    eventually("the endpoint of the store", async || {
        let members = buyer.stat("cluster.default/store|80.membership_healthy").await;
        anyhow::ensure!(members == 1, "{members}");
        Ok(())
    })
    .await;
    let load = Load::start(buyer.socket(14001), "store", "/");
    let xds: Vec<_> = machines.control_planes.iter().map(Mesh::xds).collect();
    let identities = enroll(&machines, folder.path(), proxies).await;
    let spare = folder.path().join("spare");
    let spare = bootstrap(&machines, &spare, "s1", SPARE, 200).await;
    let connect = |identities: &[Identity]| {
        let _entered = of_proxies.enter();
        let fleet = Fleet::new(identities.to_vec(), Variant::Delta, AckDelay::default());
        fleet.connect_to_any(&xds, true);
        fleet
    };
    let (fleet, spare_fleet) = (connect(&identities), connect(&spare));
    for fleet in [&fleet, &spare_fleet] {
        fleet.all_configured(PATIENCE).await.unwrap();
    }
    let before = usage(&machines);
    eprintln!("{} proxies are connected; {before:?}", fleet.len() + spare_fleet.len());

    // The faults.
    let mut random = SeededRandom::new(seed);
    let control_planes = (0..3).map(|number| {
        let url = format!("https://10.77.{number}.1:15129");
        (machines.cli(number), url)
    });
    let operators = Operators {
        control_planes: control_planes.collect(),
        of_policy: of_policy.clone(),
        spare: spare.iter().map(|identity| identity.id.clone()).collect(),
        folder: folder.path().to_owned(),
    };
    let work = operators.start(&mut random);
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let healed = Faults::default().run(&mut machines, &schedule(seed, length)).await;
    let history = work.stop().await;

    // What must hold.
    let converged = converge(&machines, &fleet).await.max(healed) - healed;
    eprintln!(
        "converged {:.1} s after the last fault (promised: {PROMISED:?})",
        converged.as_secs_f64()
    );
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let report = load.finish().await;
    eprintln!("{} requests; {}; {:?}", report.requests, history.summary(), fleet.counts());
    report.assert_undisturbed();
    for envoy in [&store, &buyer] {
        envoy.assert_no_update_errors().await;
    }
    history.assert_linearizable(FIRST);
    assert_revoked_are_disconnected(&history, &spare, &spare_fleet).await;
    assert_same_state(&machines, &history, proxies).await;
    assert_same_certificates(&machines, &folder.path().join("s0"), &xds).await;
    let verified = fleet.verify(xds[usize::try_from(seed % 3).unwrap()], PATIENCE).await.unwrap();
    assert_eq!(verified, fleet.len());
    let after = usage(&machines);
    eprintln!("{after:?}");
    assert!(after.files <= before.files + 100, "{after:?}, before {before:?}");
    assert!(after.memory <= before.memory * 2 + 100, "{after:?}, before {before:?}");
}

/// The number of the first policy.
const FIRST: u32 = 0;

/// Writes a policy that differs from others by its number; returns its folder.
pub(crate) fn write_policy(folder: &Path, number: u32) -> PathBuf {
    let mut text = format!(
        r#"
[[service]]
name = "store"
ports = [{{ name = "web", port = 80, protocol = "http", target_port = 8080 }}]
[[service]]
name = "buyer"
[[http_route_group]]
name = "all"
matches = [{{ name = "all" }}, {{ name = "number", path_regex = "/{number}" }}]
[[traffic_target]]
name = "buyers"
destination = {{ name = "store" }}
sources = [{{ name = "buyer" }}]
rules = [{{ kind = "HTTPRouteGroup", name = "all", matches = ["all", "number"] }}]
"#
    );
    for service in 0..SERVICES {
        let next = (service + 1) % SERVICES;
        write!(
            text,
            r#"
[[service]]
name = "s{service}"
ports = [{{ name = "web", port = 80, protocol = "http", target_port = 8080 }}]
[[traffic_target]]
name = "callers-of-s{service}"
destination = {{ name = "s{service}" }}
sources = [{{ name = "s{next}" }}]
rules = [{{ kind = "HTTPRouteGroup", name = "all", matches = ["{}"] }}]
"#,
            if service < 2 { "number" } else { "all" }
        )
        .unwrap();
    }
    let path = folder.join(format!("policy-{number}"));
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("policy.toml"), text).unwrap();
    path
}

/// Enrolls the simulated proxies.
async fn enroll(machines: &Machines, folder: &Path, proxies: usize) -> Vec<Identity> {
    let mut all = Vec::new();
    for service in 0..SERVICES {
        let name = format!("s{service}");
        all.extend(
            bootstrap(machines, &folder.join(&name), &name, proxies / SERVICES, service).await,
        );
    }
    all
}

async fn bootstrap(
    machines: &Machines,
    out: &Path,
    service: &str,
    count: usize,
    number: usize,
) -> Vec<Identity> {
    let (count, address) = (count.to_string(), format!("10.78.{number}.1"));
    let folder = out.display().to_string();
    let arguments = ["proxy", "bootstrap", "--service", service, "--count", &count];
    let more = ["--address", &address, "--out", &folder];
    let output = machines.control_planes[0].run(&[&arguments[..], &more].concat()).await;
    assert!(output.status.success(), "{output:?}");
    let read = |folder: &PathBuf| {
        let mut identity = Identity::read(folder, None).unwrap();
        // A simulated Envoy has no runtime, so its bootstrap must not be one that promises it.
        identity.metadata.as_object_mut().unwrap().remove("bootstrap_version").unwrap();
        identity
    };
    folders(out).unwrap().iter().map(read).collect()
}

/// Waits until all proxies have what is current. Returns the time of the last one.
async fn converge(machines: &Machines, fleet: &Fleet) -> Instant {
    let wait = async {
        let mut last = fleet.all_configured(PATIENCE).await.unwrap();
        for number in 0..3 {
            loop {
                let arguments = ["policy", "wait", "--timeout", "10s"];
                match machines.cli(number).json(&arguments).await {
                    Ok(_) => break,
                    Err(error) => eprintln!("control plane {number}: {error:#}"),
                }
            }
            last = last.max(Instant::now());
        }
        last.max(fleet.all_configured(PATIENCE).await.unwrap())
    };
    timeout(PATIENCE, wait).await.expect("all proxies converge")
}

/// All control planes list the same proxies, and no finding of the store.
async fn assert_same_state(machines: &Machines, history: &History, proxies: usize) {
    let mut lists = Vec::new();
    for number in 0..3 {
        let cli = machines.cli(number);
        lists.push(
            eventually("the list of proxies", async || {
                // Its exit code is that of findings about tokens, which operators presented twice.
                let status = cli.run(&["status", "--output", "json"]).await.context("no status")?;
                let status = String::from_utf8(status.stdout)?;
                anyhow::ensure!(status.starts_with('{'), "{status}");
                for code in ["IM0706", "IM0707", "IM0708", "IM0709"] {
                    anyhow::ensure!(!status.contains(code), "{status}");
                }
                cli.json(&["proxy", "list"]).await
            })
            .await,
        );
    }
    let key = |list: &Value| -> Vec<[String; 4]> {
        let all = list.as_array().unwrap().iter();
        let mut all: Vec<_> = all
            .map(|one| ["id", "name", "services", "revoked"].map(|key| one[key].to_string()))
            .collect();
        all.sort();
        all
    };
    let expected = key(&lists[0]);
    for list in &lists[1..] {
        assert!(key(list) == expected, "control planes list different proxies");
    }
    let ids: Vec<_> = expected.iter().map(|[id, ..]| id.trim_matches('"')).collect();
    for joined in &history.joined {
        assert!(ids.contains(&joined.as_str()), "the proxy {joined} joined, and is lost");
    }
    assert!(ids.len() >= proxies + SPARE + 2 + history.joined.len());
    for revoked in history.revoked() {
        let one = expected.iter().find(|[id, ..]| id.trim_matches('"') == revoked).unwrap();
        assert!(one[3].contains("reason"), "{one:?} was revoked");
    }
}

/// No control plane serves a revoked proxy, and each other one is served. It holds with [`PROMISED`], as all proxies
/// have converged.
async fn assert_revoked_are_disconnected(history: &History, spare: &[Identity], fleet: &Fleet) {
    let revoked: BTreeSet<_> = history.revoked().collect();
    // A revocation without an answer may have been stored.
    let in_doubt: BTreeSet<_> = history.in_doubt().collect();
    eventually("the streams of exactly the revoked proxies to be closed", async || {
        for (index, identity) in spare.iter().enumerate() {
            let is_revoked = revoked.contains(&identity.id);
            let is_wrong = fleet.is_configured(index) == is_revoked;
            let is_wrong = is_wrong && (is_revoked || !in_doubt.contains(&identity.id));
            anyhow::ensure!(!is_wrong, "{}, revoked: {is_revoked}", identity.id);
        }
        Ok(())
    })
    .await;
}

/// All control planes serve the same certificate to a proxy of this folder.
async fn assert_same_certificates(
    machines: &Machines,
    folder: &Path,
    xds: &[std::net::SocketAddr],
) {
    let folder = folders(folder).unwrap().remove(0);
    let mut all = Vec::new();
    for address in xds {
        all.push(
            eventually("the certificate", async || {
                ProxyClient::connect(&folder, *address)
                    .await?
                    .service_certificate("default/s0")
                    .await
            })
            .await,
        );
    }
    assert!(all.iter().all(|one| *one == all[0]), "control planes issued different certificates");
    assert_eq!(all.len(), machines.control_planes.len());
}

fn usage(machines: &Machines) -> Usage {
    let ids = machines.control_planes.iter().map(|mesh| mesh.id().expect("it runs"));
    ids.map(Usage::of).fold(Usage::default(), |sum, one| sum + one)
}
