//! Machines under the agent and the supervisor of Envoy, which have joined by the guide: hot restart, drain, renewal,
//! full disk, and processes that are killed.

use serde_json::Value;
use tokio::time::Instant;

use crate::bookstore::{self, BUYER, CONTROL_PLANE, CURL, STORE};
use crate::fleet::Fleet;
use crate::guest::Guest;
use crate::guide::{Reader, USER};
use crate::load::{Load, REQUESTS_PER_FAULT};

/// A second store.
const SECOND_STORE: u8 = 4;

/// The book of the store, through the buyer's Envoy.
const BOOK: &str = "http://bookstore.shop.mesh.internal/books/1";

/// Waits of Envoy that are shorter than on real machines, and access logs.
const SETTINGS: &str = r#"
access_log_dir = "/var/log/ironmesh-agent"
[envoy]
drain_time = "2s"
parent_shutdown_time = "3s"
drain_minimum = "1s"
drain_maximum = "10s"
"#;

const ACCESS_LOG: &str = r#"
[[telemetry]]
name = "log"
namespace = "shop"
access_log = { sink = { file = "access.log" } }
"#;

/// The folder of a machine's proxy.
const FOLDER: &str = "/var/lib/ironmesh-agent/proxy";

/// A disk that a test can fill, until the next boot.
const SMALL_DISK: &str =
    "mkdir -p /var/lib/ironmesh-agent; mount -t tmpfs -o size=1m tmpfs /var/lib/ironmesh-agent";

/// Boots `count` guests, runs a snippet on the store, lets the store and the buyer join, and waits until the buyer gets
/// a book.
async fn start(count: u8, snippet: &str) -> Option<Fleet> {
    let fleet = bookstore::boot(count).await?;
    bookstore::grant(&fleet).await;
    fleet.guest(CONTROL_PLANE).write("/etc/ironmesh/policy/telemetry.toml", ACCESS_LOG).await;
    fleet.guest(STORE).run(snippet).await;
    join(&fleet, STORE, "shop/bookstore").await;
    join(&fleet, BUYER, "shop/bookbuyer").await;
    wait_for_book(&fleet, "The Name of the Rose").await;
    Some(fleet)
}

async fn join(fleet: &Fleet, number: u8, service: &str) {
    Reader::new(fleet, number, service).await.join(SETTINGS).await;
}

/// Waits until the buyer gets this book.
async fn wait_for_book(fleet: &Fleet, book: &str) {
    let request = format!("{CURL} --fail --proxy 127.0.0.1:15080 {BOOK} | grep '{book}'");
    fleet.guest(BUYER).wait_until("a book", &request).await;
}

/// Load from the buyer.
async fn load(fleet: &Fleet) -> Load<'_> {
    let load = Load::start(fleet.guest(BUYER), 15080, BOOK).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    load
}

/// `agent status` on a machine, as soon as `is_expected` accepts it.
async fn status(machine: &Guest, what: &str, is_expected: impl Fn(&Value) -> bool) -> Value {
    let script = format!("runuser -u {USER} -- ironmesh agent status --output json || true");
    ironmesh_tests::eventually(what, async || {
        let text = machine.run(&script).await;
        let status = serde_json::from_str(&text).map_err(|_| text.clone())?;
        if is_expected(&status) { Ok(status) } else { Err(text) }
    })
    .await
}

fn has_no_problem(status: &Value) -> bool {
    status["problems"].as_array().is_some_and(Vec::is_empty)
}

/// The problems of a status, as one text.
fn problems(status: &Value) -> String {
    status["problems"].to_string()
}

/// Kills the main process of a unit, and waits until systemd has started another one.
async fn kill(machine: &Guest, unit: &str) {
    let pid = format!("systemctl show --property MainPID --value {unit}");
    let before = machine.run(&pid).await;
    machine.run(&format!("kill -KILL {before}")).await;
    let another =
        format!("systemctl is-active {unit}; now=$({pid}); [ $now != 0 ] && [ $now != {before} ]");
    machine.wait_until("a new main process", &another).await;
}

/// Makes the renewal of a machine's certificate due. The file keeps its size: there is room for it on a full disk.
async fn make_due(machine: &Guest) {
    let script = format!(
        r#"python3 -c '
import re
with open("{FOLDER}/enrollment.json", "r+") as file:
    text = re.sub(r"\"issued_at\": *\"20\d\d", lambda found: found[0][:-4] + "2020", file.read())
    file.seek(0)
    file.write(text)
'"#
    );
    machine.run_as(USER, &script).await;
}

/// Three hot restarts of the store, one of its caller, a rejected one, and the stop and start, then the reboot, of
/// one of two stores.
#[tokio::test(flavor = "multi_thread")]
async fn hot_restart_and_drain_lose_no_request() {
    let Some(fleet) = start(4, "").await else { return };
    let store = fleet.guest(STORE);
    let load = load(&fleet).await;
    for epoch in 1..=3 {
        let begin = Instant::now();
        store.run("systemctl reload ironmesh-envoy").await;
        eprintln!("reloaded after {:?}", begin.elapsed());
        load.wait_for_requests(REQUESTS_PER_FAULT).await;
        let what = format!("epoch {epoch}");
        status(store, &what, |status| status["envoy"]["epoch"] == epoch).await;
    }

    fleet.guest(BUYER).run("systemctl reload ironmesh-envoy").await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    let overlay = "/etc/ironmesh/overlay.yaml";
    store.write(overlay, "stats_flush_interval: soon\n").await;
    store.run(&format!("chmod 644 {overlay}; cp /etc/ironmesh/agent.toml /root/agent.toml; echo 'bootstrap_overlay = \"{overlay}\"' >>/etc/ironmesh/agent.toml")).await;
    let rejected = store.try_run("systemctl reload ironmesh-envoy").await;
    assert!(!rejected.status.success(), "{rejected:?}");
    let reload = format!("runuser -u {USER} -- ironmesh envoy reload");
    let rejected = store.try_run(&reload).await;
    let steps = String::from_utf8(rejected.stdout).unwrap();
    assert!(steps.contains("reload failed") && steps.contains("stats_flush_interval"), "{steps}");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    status(store, "epoch 3", |status| status["envoy"]["epoch"] == 3).await;
    store.run("cp /root/agent.toml /etc/ironmesh/agent.toml").await;

    bookstore::start_application(fleet.guest(SECOND_STORE), "The Island of the Day Before").await;
    join(&fleet, SECOND_STORE, "shop/bookstore").await;
    wait_for_book(&fleet, "The Island").await;
    let begin = Instant::now();
    store.run("systemctl stop ironmesh-envoy").await;
    eprintln!("drained after {:?}", begin.elapsed());
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let left = store
        .run("journalctl --no-pager --unit ironmesh-envoy | grep 'all callers have left'")
        .await;
    assert!(!left.is_empty());
    store.run("systemctl start ironmesh-envoy").await;
    wait_for_book(&fleet, "The Name").await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    // The unit of the application ends after that of Envoy, and starts before it.
    store.reboot().await;
    wait_for_book(&fleet, "The Name").await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();
    store.run("grep /books/1 /var/log/ironmesh-agent/access.log").await;
    for number in [STORE, SECOND_STORE] {
        status(fleet.guest(number), "no problem", has_no_problem).await;
    }
}

/// The agent is killed and renews at its next start, also after its disk was full. Traffic goes on.
#[tokio::test(flavor = "multi_thread")]
async fn dead_agent_renewal_and_full_disk_do_not_affect_traffic() {
    let Some(fleet) = start(3, SMALL_DISK).await else { return };
    let store = fleet.guest(STORE);
    let load = load(&fleet).await;
    let before = status(store, "no problem", has_no_problem).await;
    let envoy = store.run("pidof envoy").await;
    make_due(store).await;
    kill(store, "ironmesh-agent").await;
    let renewed = status(store, "a renewal", |status| status["agent"]["renewals"] == 1).await;
    assert_ne!(renewed["proxy"]["serial"], before["proxy"]["serial"]);
    let serial = renewed["proxy"]["serial"].as_str().unwrap().trim_start_matches('0');
    let loaded = format!(
        "curl --silent --unix-socket {FOLDER}/admin.sock http://envoy/certs | grep --ignore-case {serial}"
    );
    store.wait_until("Envoy to load the certificate", &loaded).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    let files =
        format!("cd {FOLDER}; sha256sum proxy.crt proxy.key ca.crt enrollment.json envoy.yaml");
    store.run("dd if=/dev/zero of=/var/lib/ironmesh-agent/full bs=4k 2>/dev/null || true").await;
    make_due(store).await;
    let full = store.run(&files).await;
    kill(store, "ironmesh-agent").await;
    let failed = status(store, "a failure", |status| status["agent"]["is_failing"] == true).await;
    assert!(problems(&failed).contains("No space left"), "{failed}");
    assert_eq!(store.run(&files).await, full);
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    store.run("rm /var/lib/ironmesh-agent/full").await;
    let renew = format!("runuser -u {USER} -- ironmesh proxy bootstrap --renew {FOLDER}");
    store.run(&renew).await;
    assert_ne!(store.run(&files).await, full);
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();
    assert_eq!(store.run("pidof envoy").await, envoy);
}

/// Envoy and its supervisor are killed; the machine reboots with and without the control plane.
#[tokio::test(flavor = "multi_thread")]
async fn machine_serves_again_after_kills_and_boots_without_an_operator() {
    let Some(fleet) = start(3, "").await else { return };
    let (store, control_plane) = (fleet.guest(STORE), fleet.guest(CONTROL_PLANE));
    let supervisor = store.run("systemctl show --property MainPID --value ironmesh-envoy").await;
    let begin = Instant::now();
    let before = store.run("pid=$(pidof envoy); kill -KILL $pid; echo $pid").await;
    let another = format!(
        "now=$(pidof envoy); [ $now != {before} ]; \
         curl --silent --fail --unix-socket {FOLDER}/admin.sock http://envoy/ready"
    );
    store.wait_until("a new Envoy", &another).await;
    eprintln!("killed Envoy is live again after {:?}", begin.elapsed());
    wait_for_book(&fleet, "The Name").await;
    eprintln!("and serves after {:?}", begin.elapsed());
    let main = store.run("systemctl show --property MainPID --value ironmesh-envoy").await;
    assert_eq!(main, supervisor);

    let begin = Instant::now();
    kill(store, "ironmesh-envoy").await;
    wait_for_book(&fleet, "The Name").await;
    eprintln!("Envoy of a killed supervisor serves after {:?}", begin.elapsed());

    // Agent, supervisor and Envoy at once.
    store.run(&format!("kill -KILL $(pgrep --uid {USER})")).await;
    wait_for_book(&fleet, "The Name").await;
    status(store, "no problem", has_no_problem).await;

    store.reboot().await;
    wait_for_book(&fleet, "The Name").await;

    // Both units count as started without a control plane, so the boot ends.
    control_plane.cut().await;
    store.lose_power().await;
    store.boot().await;
    let cut = status(store, "an unreachable control plane", |status| {
        problems(status).contains("control plane") && !status["agent"].is_null()
    });
    let cut = cut.await;
    assert!(problems(&cut).contains("vm1:15129"), "{cut}");
    assert_eq!(cut["agent"]["phase"], "enrolled", "{cut}");
    store.run("systemctl is-active ironmesh-agent ironmesh-envoy").await;
    control_plane.heal().await;
    wait_for_book(&fleet, "The Name").await;
    status(store, "no problem", has_no_problem).await;
}
