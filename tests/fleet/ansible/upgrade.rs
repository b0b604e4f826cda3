//! Upgrades, and machines that leave and return: four hosts of the bookstore, without its warehouse.

use std::os::unix::fs::PermissionsExt as _;

use fs_err as fs;
use serde_json::json;

use super::controller::Controller;
use super::{CONTROL_PLANE, Programs, RELEASES, SECOND_STORE, STORE_PORT, wait_for_books};
use crate::bookstore::{self, FOLDER};
use crate::fleet::Fleet;
use crate::guest::Guest;
use crate::load::{Load, REQUESTS_PER_FAULT};

/// The host of the buyer.
const BUYER: u8 = 4;

/// The processes that run a program which is not installed any more. The supervisor may: it is never restarted.
const OLD_PROGRAMS: &str = "for unit in ironmesh ironmesh-agent; do \
    pid=$(systemctl show --property MainPID --value $unit); \
    [ $pid = 0 ] || ! ls -l /proc/$pid/exe | grep deleted || true; done";

/// The number of tokens that can be used.
const UNUSED_TOKENS: &str = "ironmesh proxy token list --output json | python3 -c 'import json, sys; \
    print(sum(one[\"state\"] == \"unused\" for one in json.load(sys.stdin)[\"tokens\"]))'";

/// The unit of an Envoy that was started by hand.
const BY_HAND: &str = "envoy-proxy";

/// The names of the proxies.
const PROXIES: &str = "ironmesh proxy list --output json | python3 -c 'import json, sys; \
    print(sorted(one[\"name\"] for one in json.load(sys.stdin)))'";

/// Makes a package whose agent does not start.
const BREAK_AGENT: &str = "cd \"$2/usr/lib/systemd/system\"; \
    sed --in-place 's/^ExecStart=.*/ExecStart=false/' ironmesh-agent.service; cd \"$OLDPWD\"";

/// What the supervisor of an earlier version would have written.
const OLDER_BOOTSTRAP: &str = "sed --in-place 's/\"bootstrap_version\": [1-9][0-9]*/\"bootstrap_version\": 0/' \
    /var/lib/ironmesh-agent/proxy/envoy.yaml; grep -q '\"bootstrap_version\": 0' /var/lib/ironmesh-agent/proxy/envoy.yaml";

/// How the role reports it. The names of its tasks are printed, too.
const OLDER_BOOTSTRAP_REPORT: &str =
    "The bootstrap of this machine's Envoy is of an earlier version";

/// The supervisor of the Envoy of a machine.
const SUPERVISOR: &str = "systemctl show --property MainPID --value ironmesh-envoy";

/// The hot restarts of the Envoy of a machine.
const EPOCH: &str = "runuser -u ironmesh-proxy -- ironmesh agent status --output json | python3 -c 'import json, sys; \
    print(json.load(sys.stdin)[\"supervisor\"][\"envoy\"][\"epoch\"])'";

/// The bookstore on four hosts, built by `site.yml`.
struct Built {
    programs: Programs,
    fleet: Fleet,
}

impl Built {
    /// Boots the hosts.
    async fn boot() -> Option<Self> {
        let programs = Programs::find()?;
        let fleet = Fleet::boot_bare(&RELEASES[..usize::from(BUYER)], Vec::new()).await?;
        Some(Self { programs, fleet })
    }

    /// Builds the mesh, and returns its controller with the content of `hosts.yml`.
    async fn controller(&self) -> (Controller<'_>, String) {
        let controller = Controller::new(&self.fleet, &self.programs.ansible, "static").await;
        let controller = controller.with_variables(&self.programs.variables());
        let hosts = fs::read_to_string(controller.inventory().join("hosts.yml")).unwrap();
        let (hosts, buyer) = hosts.split_once("        bookwarehouse:").unwrap();
        let buyer = buyer.split_once("        bookbuyer:").unwrap().1;
        let buyer = buyer.replace("10.77.0.15", "10.77.0.14");
        let hosts = format!("{hosts}        bookbuyer:{buyer}");
        controller.write("hosts.yml", &hosts);
        let policy = controller.inventory().join("policy/bookstore.toml");
        let warehouse = "[[service]]\nname = \"bookwarehouse\"\n";
        let policy = fs::read_to_string(policy).unwrap();
        assert!(policy.contains(warehouse));
        // Without its host, the gate stops each upgrade.
        let policy = policy.replace(warehouse, &format!("{warehouse}state = \"drained\"\n"));
        controller.write("policy/bookstore.toml", &policy);
        controller.play("examples/bookstore", &[]).await;
        controller.play("site", &[]).await;
        wait_for_books(self.buyer()).await;
        (controller, hosts)
    }

    fn buyer(&self) -> &Guest {
        self.fleet.guest(BUYER)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn playbooks_upgrade_and_replace_machines_of_a_mesh() {
    let Some(built) = Built::boot().await else { return };
    let (controller, hosts) = built.controller().await;
    let fleet = &built.fleet;
    let load = Load::start(built.buyer(), STORE_PORT, "/books/1").await;
    let next = upgrade(fleet, &controller, &built.programs).await;
    renew_bootstrap(fleet, &controller, &next).await;
    fleet.guest(CONTROL_PLANE).run("ironmesh proxy token --service shop/bookstore").await;
    controller.play("rotate", &["-e", &next]).await;
    assert_eq!(fleet.guest(CONTROL_PLANE).run(UNUSED_TOKENS).await, "0");
    let add = ["-e", next.as_str(), "--limit", "store2,cp1"];
    leave_and_return_by_hand(fleet, &controller, &add).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();
    adopt(fleet, &controller, &add).await;

    // A host without the authority of the mesh is no second control plane.
    let second = "cp1: { ansible_host: 10.77.0.11 }\n        store2: {}";
    controller.write("hosts.yml", &hosts.replace("cp1: { ansible_host: 10.77.0.11 }", second));
    let refused = controller.try_play("site", &["-e", &next]).await;
    refused.assert_failed("which do not share a store");
    refused.assert_unchanged();
}

/// A machine that has died is removed, and comes back as a new proxy. Then the control plane returns to its earlier version
/// and state, in which that proxy is not.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it takes five minutes; `make test-long-fleet` runs it"]
async fn playbooks_replace_a_dead_machine_and_restore_an_earlier_version() {
    let Some(built) = Built::boot().await else { return };
    let (controller, _) = built.controller().await;
    let fleet = &built.fleet;
    let next = controller.other_version(&built.programs.package, "0.3.0", "").await;
    controller.play("upgrade", &["-e", &next]).await;

    let add = ["-e", next.as_str(), "--limit", "store2,cp1"];
    fleet.guest(SECOND_STORE).lose_power().await;
    controller.play("remove-machine", &["-e", "ironmesh_remove=store2"]).await;
    fleet.guest(CONTROL_PLANE).run("ironmesh status").await;
    fleet.guest(SECOND_STORE).boot().await;
    controller.try_play("add-machines", &add).await.assert_failed("ironmesh_machine_reenroll");
    let reenroll = [&add[..], &["-e", "ironmesh_machine_reenroll=true"]].concat();
    controller.play("add-machines", &reenroll).await;
    wait_for_books(built.buyer()).await;

    let earlier = controller.backup_variables().to_string();
    let replace = ["-e", &earlier, "-e", "ironmesh_restore_replace=true"];
    controller.play("restore", &replace).await;
    let restored = fleet.guest(CONTROL_PLANE).run("ironmesh --version; ironmesh proxy list").await;
    let version = concat!("ironmesh ", env!("CARGO_PKG_VERSION"), "\n");
    assert!(restored.starts_with(version), "{restored}");
    let synced = restored.lines().filter(|line| line.contains("SYNCED"));
    assert_eq!(synced.count(), 2, "{restored}");

    // A new host of the control plane has nothing of it.
    let uninstall =
        ["-e", "ironmesh_uninstall=cp1", "-e", "ironmesh_uninstall_state=true"].as_slice();
    let control_plane = fleet.guest(CONTROL_PLANE);
    controller.play("uninstall", uninstall).await;
    controller.play("uninstall", uninstall).await.assert_unchanged();
    control_plane.run("! find / -xdev -path /proc -prune -o -path /var/log -prune -o -name '*ironmesh*' -print | grep .").await;
    controller.play("restore", &["-e", &earlier]).await;
    let restored =
        control_plane.wait_until("the proxies", "ironmesh proxy list | grep SYNCED").await;
    assert_eq!(restored.lines().count(), 2, "{restored}");
}

/// Upgrades under load, and returns the variables of the new version: first one machine, which is newer than the control
/// plane then; then all, up to a canary that fails; then all.
async fn upgrade(fleet: &Fleet, controller: &Controller<'_>, programs: &Programs) -> String {
    let version = async |guest: &Guest| {
        guest.run("dpkg-query --show --showformat='${Version}' ironmesh").await
    };
    let [first, broken, next] = ["0.3.0", "0.3.1", "0.3.2"];
    let first = controller.other_version(&programs.package, first, "").await;
    let refused = controller.try_play("site", &["-e", &first]).await;
    refused.assert_failed("Run `upgrade.yml`");
    refused.assert_unchanged();
    controller.play("upgrade", &["-e", &first, "--limit", "store2"]).await;
    wait_for_books(fleet.guest(BUYER)).await;

    let broken = controller.other_version(&programs.package, broken, BREAK_AGENT).await;
    controller
        .try_play("upgrade", &["-e", &broken, "-e", "ironmesh_machine_ready_timeout=5"])
        .await
        .assert_failed("The machine is not ready");
    let mut versions = Vec::new();
    for guest in fleet.guests() {
        versions.push(version(guest).await);
    }
    let own = concat!(env!("CARGO_PKG_VERSION"), "-1");
    assert_eq!(versions, ["0.3.1-1", "0.3.1-1", "0.3.0-1", own]);
    let backup = controller.backup().join("cp1/state.redb");
    let mode = fs::metadata(backup).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // As after a run that has changed the settings, and ended before their use.
    fleet.guest(BUYER).run("touch /etc/ironmesh/agent.toml").await;
    let next = controller.other_version(&programs.package, next, "").await;
    controller.play("upgrade", &["-e", &next]).await;
    assert_eq!(fleet.guest(BUYER).run(EPOCH).await, "1");
    for guest in fleet.guests() {
        assert_eq!(version(guest).await, "0.3.2-1", "{}", guest.name());
        assert_eq!(guest.run("ironmesh --version").await, "ironmesh 0.3.2", "{}", guest.name());
        assert_eq!(guest.run(OLD_PROGRAMS).await, "", "{}", guest.name());
    }
    controller
        .try_play("upgrade", &["-e", &first, "--tags", "control_plane_preflight"])
        .await
        .assert_failed("Return to it by `restore.yml`");
    next
}

/// An Envoy with a bootstrap of an earlier version is reported, and restarted only if a variable says so. Envoys whose
/// supervisor alone is of an earlier version stay.
async fn renew_bootstrap(fleet: &Fleet, controller: &Controller<'_>, next: &str) {
    let (store, buyer) = (fleet.guest(SECOND_STORE), fleet.guest(BUYER));
    store.run(OLDER_BOOTSTRAP).await;
    let store_before = store.run(SUPERVISOR).await;
    let buyer_before = buyer.run(SUPERVISOR).await;
    let report = controller.play("upgrade", &["-e", next, "--limit", "store2"]).await;
    assert!(report.text.contains(OLDER_BOOTSTRAP_REPORT), "{}", report.text);
    assert_eq!(store.run(SUPERVISOR).await, store_before);

    let restart = "ironmesh_machine_restart_for_bootstrap=true";
    let machines = ["-e", next, "-e", restart, "--limit", "store2,buyer1"];
    let report = controller.play("upgrade", &machines).await;
    assert!(!report.text.contains(OLDER_BOOTSTRAP_REPORT), "{}", report.text);
    assert_ne!(store.run(SUPERVISOR).await, store_before);
    assert_eq!(buyer.run(SUPERVISOR).await, buyer_before);
    store
        .run("grep -q '\"bootstrap_version\": [1-9]' /var/lib/ironmesh-agent/proxy/envoy.yaml")
        .await;
}

/// What prevents a join ends the play at its host, with the reason. Each row has what happens on the host before, and
/// after it.
async fn refuse_to_add(fleet: &Fleet, controller: &Controller<'_>, add: &[&str]) {
    let occupy = "systemd-run --quiet --collect --unit=occupier python3 -m http.server 15003";
    let other_system = "sed 's/debian/slackware/gI' /etc/os-release >/run/os-release; \
        mount --bind /run/os-release /usr/lib/os-release";
    let unreachable = r#"{"ironmesh_machine_control_plane_urls": ["https://10.77.0.99:15129"], "ironmesh_machine_ready_timeout": 2}"#;
    let (free, none) = ("systemctl stop occupier", "true");
    for (before, after, variable, message) in [
        (other_system, "umount /usr/lib/os-release", "ironmesh_os_check=fail", "is not supported"),
        (none, none, "ironmesh_package_file=/missing", "The controller has no package of version"),
        (occupy, free, "ironmesh_os_check=fail", "A different program listens on port 15003"),
        (none, none, unreachable, "The machine does not reach 10.77.0.99:15129"),
        (none, none, "ironmesh_machine_token_ttl=1s", "The machine did not join"),
    ] {
        fleet.guest(SECOND_STORE).run(before).await;
        let arguments = [add, &["-vvv", "-e", variable]].concat();
        let report = controller.try_play("add-machines", &arguments).await;
        assert!(!report.text.contains("imt1_"), "the output of a play has a token");
        report.assert_failed(message);
        assert_eq!(report.counts("failed")["store2"], 1, "{}", report.text);
        fleet.guest(SECOND_STORE).run(after).await;
    }
}

/// A machine leaves, and comes back as a new proxy without the collection.
async fn leave_and_return_by_hand(fleet: &Fleet, controller: &Controller<'_>, add: &[&str]) {
    controller.play("remove-machine", &["-e", "ironmesh_remove=store2"]).await;
    refuse_to_add(fleet, controller, add).await;
    let (control_plane, machine) = (fleet.guest(CONTROL_PLANE), fleet.guest(SECOND_STORE));
    bookstore::join_by_hand(control_plane, machine, "shop/bookstore", "", BY_HAND).await;
    wait_for_books(fleet.guest(BUYER)).await;
}

/// A machine that was enrolled by hand keeps its identity with the collection.
async fn adopt(fleet: &Fleet, controller: &Controller<'_>, add: &[&str]) {
    let (control_plane, machine) = (fleet.guest(CONTROL_PLANE), fleet.guest(SECOND_STORE));
    let by_hand = control_plane.run(PROXIES).await;
    let variables =
        json!({ "ironmesh_machine_adopt_folder": FOLDER, "ironmesh_machine_adopt_unit": BY_HAND })
            .to_string();
    let adopt = [add, &["-e", &variables]].concat();
    controller.play("add-machines", &adopt).await;
    wait_for_books(fleet.guest(BUYER)).await;
    assert_eq!(control_plane.run(PROXIES).await, by_hand);
    machine.run("! systemctl is-active envoy-proxy").await;
    controller.play("add-machines", &adopt).await.assert_unchanged();
}
