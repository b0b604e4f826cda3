//! The collection in `deploy-ansible`, on five hosts with two releases of Debian: the bookstore of its static inventory.

mod consul;
mod controller;
mod guide;
mod replicas;
mod upgrade;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use fs_err as fs;
use ironmesh_tests::programs::{require_ansible, require_envoy, require_package};

use crate::bookstore::CURL;
use crate::fleet::{Fleet, Release};
use crate::guest::Guest;
use crate::load::{Load, REQUESTS_PER_FAULT};
use controller::Controller;

/// The hosts of the inventory.
const CONTROL_PLANE: u8 = 1;
const STORE: u8 = 2;
const SECOND_STORE: u8 = 3;
const BUYER: u8 = 5;

/// The local port of the bookstore on the host of the buyer.
const STORE_PORT: u16 = 14001;

/// The port of the API for operators on other machines.
const API_PORT: u16 = 15130;

/// Longer than each play takes, on any machine.
const LONGEST_PLAY: Duration = Duration::from_secs(600);

/// The hosts: Debian 12 and 13, among them one store of each.
const RELEASES: [Release; 5] =
    [Release::Bookworm, Release::Bookworm, Release::Trixie, Release::Trixie, Release::Bookworm];

/// The programs that the controller brings to the hosts.
struct Programs {
    ansible: PathBuf,
    envoy: PathBuf,
    package: PathBuf,
}

impl Programs {
    fn find() -> Option<Self> {
        let [ansible, envoy, package] = [require_ansible()?, require_envoy()?, require_package()?]
            .map(|path| fs::canonicalize(path).unwrap());
        Some(Self { ansible, envoy, package })
    }

    /// The variables that differ from those of the inventory: hosts of the test have the clock of this machine, and no
    /// time service.
    fn variables(&self) -> serde_json::Value {
        serde_json::json!({
            "ironmesh_package_file": self.package,
            "ironmesh_machine_envoy_file": self.envoy,
            "ironmesh_clock_check": "warn",
            "ironmesh_machine_access_log_dir": "/var/log/ironmesh-agent",
            "ironmesh_upgrade_serial": [1, "100%"],
            "ironmesh_control_plane_api_port": API_PORT,
            "ironmesh_control_plane_operator_group": "operators",
        })
    }
}

/// The files of a host that are not there for a moment only.
const SNAPSHOT: &str = r"
find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log/journal \
    -o -path /root/.ansible -o -name __pycache__ \) -prune -o -printf '%M %u %g %p\n' |
    grep --invert-match --extended-regexp ' /(var/(log|cache|lib/(dpkg|systemd|apt))|etc/(machine-id|\.updated))|-$'
";

/// The active revision.
const REVISION: &str = "ironmesh policy revisions --output json | python3 -c 'import json, sys; \
    print([one[\"revision\"] for one in json.load(sys.stdin)[\"revisions\"] if one[\"current\"]])'";

const LOG: &str = r#"
[[telemetry]]
name = "log"
namespace = "shop"
access_log = { sink = { file = "folder" } }
"#;

/// Waits until the buyer gets a book from each store.
async fn wait_for_books(buyer: &Guest) {
    let request = format!("{CURL} --fail http://127.0.0.1:{STORE_PORT}/books/1");
    for host in ["store1", "store2"] {
        let request = format!("{request} | tee /dev/stderr | grep {host}");
        buyer.wait_until(&format!("a book from {host}"), &request).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn playbooks_build_change_and_remove_a_mesh() {
    let Some(programs) = Programs::find() else { return };
    let Some(fleet) = Fleet::boot_bare(&RELEASES, Vec::new()).await else { return };
    let controller = Controller::new(&fleet, &programs.ansible, "static").await;
    let controller = controller.with_variables(&programs.variables());
    let before = fleet.guest(SECOND_STORE).run(SNAPSHOT).await;

    // Wrong variables are refused before anything changes, and check mode works on bare hosts.
    let refused = controller.try_play("site", &["-e", "ironmesh_machine_ready_timeout=soon"]).await;
    refused.assert_failed("ironmesh_machine_ready_timeout");
    refused.assert_unchanged();
    controller.play("site", &["--check", "--diff"]).await;
    assert_same_files(&before, &fleet.guest(SECOND_STORE).run(SNAPSHOT).await);

    controller.play("examples/bookstore", &[]).await;
    let before = fleet.guest(SECOND_STORE).run(SNAPSHOT).await;

    // One play takes bare hosts to a mesh, and a second one changes nothing.
    let built = controller.play_and_dump("site").await;
    wait_for_books(fleet.guest(BUYER)).await;
    assert_no_secret(&fleet, &built.text).await;
    assert_access_of_operators(&fleet).await;
    controller.play("site", &[]).await.assert_unchanged();

    let load = Load::start(fleet.guest(BUYER), STORE_PORT, "/books/1").await;
    release_policies(&fleet, &controller).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();

    for guest in &fleet.guests()[..usize::from(BUYER) - 1] {
        let load = Load::start(fleet.guest(BUYER), STORE_PORT, "/books/1").await;
        guest.reboot().await;
        load.wait_for_requests(REQUESTS_PER_FAULT).await;
        load.finish().await.assert_undisturbed();
        wait_for_books(fleet.guest(BUYER)).await;
    }
    assert_access_of_operators(&fleet).await;
    // The copy of the policy of a release that was interrupted.
    fleet.guest(CONTROL_PLANE).run("! ls -d /var/tmp/ironmesh-policy-*").await;

    // A host without power fails alone. It is lost while the play works on its batch.
    let lost = fleet.guest(SECOND_STORE);
    let begin = lost.run("date +%s").await;
    let begin = begin.trim();
    let works_on_it = format!(
        "timeout 20 grep --quiet 'Invoked with.*agent.*status' < <(journalctl --follow --since=@{begin})"
    );
    let power_loss = async {
        // On a busy machine the play takes longer than the deadline of one command.
        for _ in 0..15 {
            if lost.try_run(&works_on_it).await.status.success() {
                return lost.lose_power().await;
            }
        }
        panic!("the play does not reach the machine");
    };
    let (report, ()) = tokio::join!(controller.try_play("site", &[]), power_loss);
    let unreachable = report.counts("unreachable");
    assert_eq!((report.code != 0, unreachable["store2"], unreachable["buyer1"]), (true, 1, 0));
    assert!(report.counts("failed").values().all(|count| *count == 0), "{}", report.text);
    let done = report.counts("ok");
    assert!(done["buyer1"] > done["store2"], "the others did not go on: {}", report.text);
    lost.boot().await;

    controller.play("uninstall", &["-e", "ironmesh_uninstall=store2"]).await;
    let after = fleet.guest(SECOND_STORE).run(SNAPSHOT).await;
    assert_same_files(&before, &after);
}

/// A policy with errors changes nothing. One that an Envoy rejects is rolled back, also by the run after one that was
/// interrupted.
async fn release_policies(fleet: &Fleet, controller: &Controller<'_>) {
    controller.write("policy/broken.toml", "[[service]]\nname = 1\n");
    controller.try_play("release-policy", &[]).await.assert_failed("broken.toml");
    controller.remove("policy/broken.toml");
    // Envoy cannot open a folder as its access log.
    let revision = async || fleet.guest(CONTROL_PLANE).run(REVISION).await;
    let good = revision().await;
    fleet.guest(STORE).run("mkdir /var/log/ironmesh-agent/folder").await;
    controller.write("policy/log.toml", LOG);
    controller.play("release-policy", &["--tags", "policy_check"]).await.assert_unchanged();
    let short = ["-e", "ironmesh_policy_timeout=5s"];
    // Two of them: neither is a revision to return to.
    let mut before = good.clone();
    for name in ["first", "second"] {
        controller.write("policy/log.toml", &LOG.replace("\"log\"", &format!("\"{name}\"")));
        let interrupted = controller.try_play("release-policy", &short);
        let is_released = format!("{REVISION} | grep --invert-match --fixed-strings \"{before}\"");
        // The end of the play ends the wait: on a busy machine, its first steps take longer than any other wait.
        let control_plane = fleet.guest(CONTROL_PLANE);
        let released = control_plane.wait_within(LONGEST_PLAY, "the release", &is_released);
        before = tokio::select! {
            report = interrupted => panic!("not interrupted: {}", report.text),
            revision = released => revision,
        };
    }
    let rolled_back = controller.try_play("release-policy", &short).await;
    rolled_back.assert_failed("folder");
    assert_eq!(revision().await, good);
    controller.remove("policy/log.toml");
    controller.play("release-policy", &[]).await.assert_unchanged();
}

/// Fails unless two snapshots of a host are the same.
fn assert_same_files(before: &str, after: &str) {
    let [before, after] = [before, after].map(|text| text.lines().collect::<BTreeSet<_>>());
    let removed: Vec<_> = before.difference(&after).collect();
    let added: Vec<_> = after.difference(&before).collect();
    assert!(removed.is_empty() && added.is_empty(), "removed: {removed:#?}\nadded: {added:#?}");
}

/// Members of the group read by its socket, and change nothing; others do not read. The API of the network asks for a
/// credential.
async fn assert_access_of_operators(fleet: &Fleet) {
    let control_plane = fleet.guest(CONTROL_PLANE);
    let add_users =
        "id member || useradd --groups operators member; id stranger || useradd stranger";
    control_plane.run(add_users).await;
    let as_user = |user: &str, command: &str| format!("runuser --user {user} -- {command}");
    control_plane.run(&as_user("member", "ironmesh proxy list | grep --quiet store")).await;
    let ends = |command: String, text: &'static str| async move {
        let output = control_plane.try_run(&command).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(text), "{command}: {stderr}");
    };
    ends(as_user("member", "ironmesh proxy token --service shop/store"), "this socket only reads")
        .await;
    ends(as_user("stranger", "ironmesh journal"), "may not use it").await;
    let request = format!(
        "{CURL} --insecure --output /dev/null --write-out '%{{http_code}}' https://{}:{API_PORT}/v1/proxies",
        control_plane.address()
    );
    assert_eq!(fleet.guest(BUYER).run(&request).await, "401");
}

/// Fails if the output of a play has a token or a key.
async fn assert_no_secret(fleet: &Fleet, text: &str) {
    let key = fleet.guest(CONTROL_PLANE).run("cat /etc/ironmesh/kek").await;
    for secret in [key.trim(), "PRIVATE KEY", "imt1_"] {
        assert!(!text.contains(secret), "the output of a play has a secret");
    }
}
