//! Several control planes with one store in etcd: built, extended, upgraded and reduced under load.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fs_err as fs;
use ironmesh_tests::programs::require_etcd;
use serde_json::{Value, json};

use super::controller::Controller;
use super::{Programs, STORE_PORT};
use crate::bookstore::CURL;
use crate::fleet::{Fleet, PACKAGE, Release};
use crate::guest::Guest;
use crate::load::{Load, REQUESTS_PER_FAULT};

/// The control planes, a store and a buyer.
const CONTROL_PLANES: [u8; 3] = [1, 2, 3];
const STORE: u8 = 4;
const BUYER: u8 = 5;

const RELEASES: [Release; 5] =
    [Release::Bookworm, Release::Trixie, Release::Bookworm, Release::Trixie, Release::Bookworm];

/// The inventory with these control planes, and these former ones.
fn hosts(control_planes: &[u8], former: &[u8]) -> String {
    let group = |hosts: &[u8]| -> serde_json::Map<String, Value> {
        let host = |n: &u8| (format!("cp{n}"), json!({ "ansible_host": format!("10.77.0.1{n}") }));
        hosts.iter().map(host).collect()
    };
    let groups = json!({
        "ironmesh_control_planes": { "hosts": group(control_planes) },
        "ironmesh_former_control_planes": { "hosts": group(former) },
        "ironmesh_machines": { "children": {
            "bookstore": { "hosts": { "store1": { "ansible_host": "10.77.0.14" } } },
            "bookbuyer": { "hosts": { "buyer1": { "ansible_host": "10.77.0.15" } } },
        } },
    });
    // JSON is YAML.
    json!({ "all": { "children": groups } }).to_string()
}

/// Starts etcd with one member beside the controller, with TLS and access control, in the folder of its first argument.
/// It ends with the fleet.
const ETCD: &str = r#"
certificate() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr" 2>/dev/null
    printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$2" >"$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile "$1.ext" -out "$1.pem" 2>/dev/null
}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=etcd -keyout ca.key -out ca.pem 2>/dev/null
certificate member IP:10.77.0.1
for user in root ironmesh; do certificate $user DNS:$user; done
url=https://10.77.0.1:2379 peer=http://127.0.0.1:2380
"$ETCD" --name m1 --data-dir data --unsafe-no-fsync --listen-client-urls $url --advertise-client-urls $url \
    --listen-peer-urls $peer --initial-advertise-peer-urls $peer --initial-cluster m1=$peer \
    --trusted-ca-file ca.pem --cert-file member.pem --key-file member.key --client-cert-auth >etcd.log 2>&1 </dev/null &
cat >etcdctl <<END
#!/bin/sh
cd $PWD
ETCDCTL_API=3 exec ${ETCD}ctl --endpoints $url --cacert ca.pem --cert root.pem --key root.key "\$@"
END
chmod +x etcdctl
for _ in $(seq 100); do ./etcdctl --command-timeout 1s put ready yes >/dev/null 2>&1 && break; sleep 0.1; done
./etcdctl role add mesh
for keys in state leases policy; do
    ./etcdctl role grant-permission mesh --prefix=true readwrite /ironmesh/default/$keys/
done
for user in root ironmesh; do ./etcdctl user add $user --no-password; done
./etcdctl user grant-role root root
./etcdctl user grant-role ironmesh mesh
./etcdctl auth enable
"#;

/// The control planes that an Envoy knows, without ports.
const ENVOYS_CONTROL_PLANES: &str = "python3 -c 'import json; \
    record = json.load(open(\"/var/lib/ironmesh-agent/proxy/workload.json\"))[\"control_plane\"]; \
    envoy = open(\"/var/lib/ironmesh-agent/proxy/envoy.yaml\").read(); \
    print(*sorted(host for host, _ in record if host in envoy), envoy.count(\"10.77.0.11\"))'";

/// The mesh and its etcd.
struct Mesh<'fleet> {
    fleet: &'fleet Fleet,
    controller: Controller<'fleet>,
    /// The folder of etcd, with its `etcdctl`.
    etcd: &'fleet Path,
}

impl<'fleet> Mesh<'fleet> {
    /// Starts etcd and the applications. No host has a part of the mesh.
    async fn prepare(
        fleet: &'fleet Fleet,
        programs: &Programs,
        etcd: &'fleet Path,
        more: &Value,
    ) -> Self {
        let controller = Controller::new(fleet, &programs.ansible, "static").await;
        let program = fs::canonicalize(require_etcd().unwrap()).unwrap();
        controller.run(etcd, &format!("ETCD={}\n{ETCD}", program.display())).await;
        controller.write("hosts.yml", &hosts(&[1, 2], &[]));
        let policy = controller.inventory().join("policy/bookstore.toml");
        let policy = fs::read_to_string(policy).unwrap();
        let warehouse = "[[service]]\nname = \"bookwarehouse\"\n";
        assert!(policy.contains(warehouse));
        // Without its host, the gate stops each upgrade.
        let policy = policy.replace(warehouse, &format!("{warehouse}state = \"drained\"\n"));
        controller.write("policy/bookstore.toml", &policy);
        let mut variables = programs.variables();
        extend(&mut variables, more);
        let store = json!({
            "ironmesh_control_plane_store": "etcd",
            "ironmesh_control_plane_store_etcd": { "endpoints": ["https://10.77.0.1:2379"] },
            "ironmesh_control_plane_store_ca_file": etcd.join("ca.pem"),
            "ironmesh_control_plane_store_certificate_file": etcd.join("ironmesh.pem"),
            "ironmesh_control_plane_store_key_file": etcd.join("ironmesh.key"),
            "ironmesh_control_plane_policy_source": "etcd",
        });
        extend(&mut variables, &store);
        let controller = controller.with_variables(&variables);
        controller.play("examples/bookstore", &[]).await;
        Self { fleet, controller, etcd }
    }

    /// Checks what `site.yml` has built with two control planes, and printed.
    async fn assert_built(&self, built: &str) {
        let request = format!("{CURL} --fail http://127.0.0.1:{STORE_PORT}/books/1");
        self.buyer().wait_until("a book", &request).await;
        let keys = self.keys(&CONTROL_PLANES[..2]).await;
        assert_eq!(keys[0], keys[1]);
        for secret in [keys[0].as_str(), "PRIVATE KEY", "imt1_"] {
            assert!(!built.contains(secret), "the output of a play has a secret");
        }
    }

    /// The key-encryption keys of these hosts, each of which only root can read.
    async fn keys(&self, hosts: &[u8]) -> Vec<String> {
        let mut keys = Vec::new();
        for host in hosts {
            let guest = self.fleet.guest(*host);
            let key = guest.run("stat --format='%U %a' /etc/ironmesh/kek; cat /etc/ironmesh/kek");
            let (mode, key) =
                key.await.split_once('\n').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
            assert_eq!((mode.as_str(), key.len()), ("root 600", 64));
            keys.push(key);
        }
        keys
    }

    fn buyer(&self) -> &Guest {
        self.fleet.guest(BUYER)
    }

    async fn load(&self) -> Load<'_> {
        Load::start(self.buyer(), STORE_PORT, "/books/1").await
    }

    /// The Envoys of both machines name these control planes.
    async fn assert_known(&self, addresses: &str) {
        for host in [STORE, BUYER] {
            assert_eq!(self.fleet.guest(host).run(ENVOYS_CONTROL_PLANES).await, addresses);
        }
    }

    /// These hosts run this version.
    async fn assert_version(&self, version: &str, hosts: &[u8]) {
        for host in hosts {
            let found = self.fleet.guest(*host).run("ironmesh --version").await;
            assert_eq!(found, format!("ironmesh {version}"));
        }
    }

    /// The upgrade has left a snapshot of etcd, and the key for its owner alone.
    fn assert_backed_up(&self) {
        assert!(fs::metadata(self.etcd.join("snapshot")).unwrap().len() > 0);
        let key = self.controller.backup().with_file_name("backup-key").join("cp1/kek");
        assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
    }

    /// Kills each control plane under load, so each proxy loses its own at least once.
    async fn kill_each(&self, hosts: &[u8], load: &Load<'_>) {
        for host in hosts {
            let host = self.fleet.guest(*host);
            host.run("systemctl kill --signal=KILL ironmesh; systemctl stop ironmesh").await;
            load.wait_for_requests(REQUESTS_PER_FAULT).await;
            host.run("systemctl start ironmesh").await;
            let status = "runuser -u ironmesh -- ironmesh status";
            host.wait_until("a mesh without problems", status).await;
        }
    }

    /// The variables of an upgrade to `version`, with a snapshot of etcd.
    async fn upgrade_variables(&self, programs: &Programs, version: &str) -> String {
        let next = self.controller.other_version(&programs.package, version, "").await;
        let mut next: Value = serde_json::from_str(&next).unwrap();
        let command = [
            self.etcd.join("etcdctl"),
            "snapshot".into(),
            "save".into(),
            self.etcd.join("snapshot"),
        ];
        extend(&mut next, &json!({ "ironmesh_backup_etcd_command": command }));
        next.to_string()
    }
}

/// Control planes are upgraded one after the other, and then each of them is killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it takes three minutes; `make test-long-fleet` runs it"]
async fn playbooks_upgrade_control_planes_with_a_shared_store() {
    let Some(programs) = Programs::find() else { return };
    if require_etcd().is_none() {
        return;
    }
    // Copies of the programs take a third of the time: other tests have them.
    let bound =
        vec![(programs.envoy.clone(), "/usr/local/bin/envoy"), (programs.package.clone(), PACKAGE)];
    let Some(fleet) = Fleet::boot_bare(&RELEASES, bound).await else { return };
    let etcd = tempfile::tempdir().unwrap();
    let present =
        json!({ "ironmesh_machine_envoy_source": "present", "ironmesh_upgrade_serial": ["100%"] });
    let mesh = Mesh::prepare(&fleet, &programs, etcd.path(), &present).await;
    for host in [CONTROL_PLANES[0], CONTROL_PLANES[1], STORE, BUYER] {
        fleet.guest(host).run(&format!("dpkg --install {PACKAGE}")).await;
    }
    let controller = &mesh.controller;
    let package_is_there = ["-e", "ironmesh_package_source=present"];
    let built = controller.play("site", &package_is_there).await;
    mesh.assert_built(&built.text).await;
    let control_planes = ["--limit", "ironmesh_control_planes"];
    let again = [package_is_there, control_planes].concat();
    controller.play("site", &again).await.assert_unchanged();

    let load = mesh.load().await;
    let next = mesh.upgrade_variables(&programs, "0.3.0").await;
    controller.play("upgrade", &[&["-e", next.as_str()], &control_planes[..]].concat()).await;
    mesh.assert_version("0.3.0", &CONTROL_PLANES[..2]).await;
    mesh.assert_backed_up();
    mesh.kill_each(&CONTROL_PLANES[..2], &load).await;
    load.finish().await.assert_undisturbed();
}

/// A control plane is added, and the first one removed. What an embedded store needs is refused.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it takes six minutes; `make test-long-fleet` runs it"]
async fn playbooks_add_and_remove_a_control_plane() {
    let Some(programs) = Programs::find() else { return };
    if require_etcd().is_none() {
        return;
    }
    let Some(fleet) = Fleet::boot_bare(&RELEASES, Vec::new()).await else { return };
    let etcd = tempfile::tempdir().unwrap();
    let mesh = Mesh::prepare(&fleet, &programs, etcd.path(), &json!({})).await;
    let controller = &mesh.controller;
    let releases = "ironmesh_control_plane_policy_source=releases";
    for (variable, message) in [
        ("ironmesh_control_plane_store=embedded", "which do not share a store"),
        (releases, "which belongs to one host. Set it to `etcd`"),
        ("ironmesh_control_plane_key_encryption_key=short", "must have 64 hexadecimal digits"),
    ] {
        let refused = controller.try_play("site", &["-e", variable]).await;
        refused.assert_failed(message);
        refused.assert_unchanged();
    }
    controller.play("site", &["--check", "--diff"]).await;
    fleet.guest(CONTROL_PLANES[0]).run("! ls -d /etc/ironmesh").await;
    let built = controller.play_and_dump("site").await;
    mesh.assert_built(&built.text).await;
    mesh.assert_known("10.77.0.11 10.77.0.12 1").await;
    let load = mesh.load().await;

    controller.write("hosts.yml", &hosts(&[1, 2, 3], &[]));
    controller.play("site", &["--check", "--diff"]).await;
    controller.play("site", &[]).await;
    let keys = mesh.keys(&CONTROL_PLANES).await;
    assert_eq!((&keys[0], &keys[1]), (&keys[1], &keys[2]));
    mesh.assert_known("10.77.0.11 10.77.0.12 10.77.0.13 1").await;
    controller.play("site", &[]).await.assert_unchanged();

    let next = mesh.upgrade_variables(&programs, "0.3.0").await;
    let without_command = ["-e", &next, "-e", r#"{"ironmesh_backup_etcd_command": []}"#];
    let refused = controller.try_play("upgrade", &without_command).await;
    refused.assert_failed("Set `ironmesh_backup_etcd_command`");
    refused.assert_unchanged();
    controller.try_play("restore", &["-e", &next]).await.assert_failed("Nothing was changed.");
    controller.play("upgrade", &["-e", &next]).await;
    mesh.assert_version("0.3.0", &[1, 2, 3, STORE, BUYER]).await;
    mesh.assert_backed_up();
    mesh.kill_each(&CONTROL_PLANES, &load).await;

    // Machines were enrolled at the first one.
    controller.write("hosts.yml", &hosts(&[2, 3], &[1]));
    controller.play("site", &["-e", &next]).await;
    mesh.assert_known("10.77.0.12 10.77.0.13 0").await;
    controller.play("uninstall", &["-e", "ironmesh_uninstall=cp1"]).await;
    let gone = "! ls -d /etc/ironmesh /var/lib/ironmesh; ! id ironmesh";
    fleet.guest(CONTROL_PLANES[0]).run(gone).await;
    controller.play("site", &["-e", &next]).await.assert_unchanged();
    controller.play("rotate", &[]).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();
}

/// Adds the keys of `more`.
fn extend(variables: &mut Value, more: &Value) {
    variables.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
}
