//! Several control planes with one store in etcd: built, extended, upgraded and reduced under load.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fs_err as fs;
use ironmesh_tests::programs::require_etcd;
use serde_json::{Value, json};

use super::controller::Controller;
use super::{Programs, STORE_PORT};
use crate::bookstore::CURL;
use crate::fleet::{Fleet, Release};
use crate::guest::Guest;
use crate::load::{Load, REQUESTS_PER_FAULT};

/// The control planes, a store and a buyer.
const CONTROL_PLANES: [u8; 3] = [1, 2, 3];
const STORE: u8 = 4;
const BUYER: u8 = 5;

const RELEASES: [Release; 5] =
    [Release::Bookworm, Release::Trixie, Release::Bookworm, Release::Trixie, Release::Bookworm];

/// The hosts with two control planes. The third is in its own group, where it is none.
const HOSTS: &str = r"
all:
  children:
    ironmesh_control_planes:
      hosts:
        cp1: { ansible_host: 10.77.0.11 }
        cp2: { ansible_host: 10.77.0.12 }
    ironmesh_former_control_planes:
      hosts:
        cp3: { ansible_host: 10.77.0.13 }
    ironmesh_machines:
      children:
        bookstore: { hosts: { store1: { ansible_host: 10.77.0.14 } } }
        bookbuyer: { hosts: { buyer1: { ansible_host: 10.77.0.15 } } }
";

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
    async fn prepare(fleet: &'fleet Fleet, programs: &Programs, etcd: &'fleet Path) -> Self {
        let controller = Controller::new(fleet, &programs.ansible, "static").await;
        let program = fs::canonicalize(require_etcd().unwrap()).unwrap();
        controller.run(etcd, &format!("ETCD={}\n{ETCD}", program.display())).await;
        controller.write("hosts.yml", HOSTS);
        let policy = controller.inventory().join("policy/bookstore.toml");
        let policy = fs::read_to_string(policy).unwrap();
        let warehouse = "[[service]]\nname = \"bookwarehouse\"\n";
        assert!(policy.contains(warehouse));
        // Without its host, the gate stops each upgrade.
        let policy = policy.replace(warehouse, &format!("{warehouse}state = \"drained\"\n"));
        controller.write("policy/bookstore.toml", &policy);
        let mut variables = programs.variables();
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

    /// Builds the mesh with two control planes.
    async fn build(&self) {
        let store = "ironmesh_control_plane_store=embedded";
        let refused = self.controller.try_play("site", &["-e", store]).await;
        refused.assert_failed("which do not share a store");
        refused.assert_unchanged();
        let built = self.controller.play_and_dump("site").await;
        self.wait_for_book().await;
        let keys = self.keys(&CONTROL_PLANES[..2]).await;
        assert_eq!(keys[0], keys[1]);
        for secret in [keys[0].as_str(), "PRIVATE KEY", "imt1_"] {
            assert!(!built.text.contains(secret), "the output of a play has a secret");
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

    async fn wait_for_book(&self) {
        let request = format!("{CURL} --fail http://127.0.0.1:{STORE_PORT}/books/1");
        self.buyer().wait_until("a book", &request).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn playbooks_upgrade_control_planes_with_a_shared_store() {
    let Some(programs) = Programs::find() else { return };
    if require_etcd().is_none() {
        return;
    }
    let Some(fleet) = Fleet::boot_bare(&RELEASES, Vec::new()).await else { return };
    let etcd = tempfile::tempdir().unwrap();
    let mesh = Mesh::prepare(&fleet, &programs, etcd.path()).await;
    mesh.build().await;
    let controller = &mesh.controller;
    controller.play("site", &[]).await.assert_unchanged();

    let load = mesh.load().await;
    let next = mesh.upgrade_variables(&programs, "0.3.0").await;
    let without_command = ["-e", &next, "-e", r#"{"ironmesh_backup_etcd_command": []}"#];
    let refused = controller.try_play("upgrade", &without_command).await;
    refused.assert_failed("Set `ironmesh_backup_etcd_command`");
    refused.assert_unchanged();
    controller.play("upgrade", &["-e", &next]).await;
    for host in [CONTROL_PLANES[0], CONTROL_PLANES[1], STORE, BUYER] {
        assert_eq!(fleet.guest(host).run("ironmesh --version").await, "ironmesh 0.3.0");
    }
    assert!(fs::metadata(etcd.path().join("snapshot")).unwrap().len() > 0);
    let key = controller.backup().with_file_name("backup-key").join("cp1/kek");
    assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
    controller.try_play("restore", &["-e", &next]).await.assert_failed("Nothing was changed.");

    // Each fails once, so each proxy loses its control plane at least once.
    for host in &CONTROL_PLANES[..2] {
        let control_plane = fleet.guest(*host);
        control_plane.run("systemctl kill --signal=KILL ironmesh; systemctl stop ironmesh").await;
        load.wait_for_requests(REQUESTS_PER_FAULT).await;
        control_plane.run("systemctl start ironmesh").await;
        let status = "runuser -u ironmesh -- ironmesh status";
        control_plane.wait_until("a mesh without problems", status).await;
    }
    load.finish().await.assert_undisturbed();
}

/// A control plane is added, and a different one is removed. The key of a host that was rebuilt comes from the others.
#[tokio::test(flavor = "multi_thread")]
async fn playbooks_add_and_remove_a_control_plane() {
    let Some(programs) = Programs::find() else { return };
    if require_etcd().is_none() {
        return;
    }
    let Some(fleet) = Fleet::boot_bare(&RELEASES, Vec::new()).await else { return };
    let etcd = tempfile::tempdir().unwrap();
    let mesh = Mesh::prepare(&fleet, &programs, etcd.path()).await;
    mesh.build().await;
    mesh.assert_known("10.77.0.11 10.77.0.12 1").await;
    let controller = &mesh.controller;
    let load = mesh.load().await;

    let former = "    ironmesh_former_control_planes:\n      hosts:\n";
    controller.write("hosts.yml", &HOSTS.replace(former, ""));
    controller.play("site", &[]).await;
    let keys = mesh.keys(&CONTROL_PLANES).await;
    assert_eq!((&keys[0], &keys[1]), (&keys[1], &keys[2]));
    mesh.assert_known("10.77.0.11 10.77.0.12 10.77.0.13 1").await;
    controller.play("site", &[]).await.assert_unchanged();

    // The first one leaves: machines were enrolled at it.
    let first = "        cp1: { ansible_host: 10.77.0.11 }\n";
    let others = HOSTS.replace(first, "").replace("        cp3", "        #").replace(former, "");
    let hosts = others.replace(
        "        cp2: { ansible_host: 10.77.0.12 }\n",
        "        cp2: { ansible_host: 10.77.0.12 }\n        cp3: { ansible_host: 10.77.0.13 }\n",
    );
    let hosts = hosts.replace("        #: { ansible_host: 10.77.0.13 }\n", "");
    let hosts =
        hosts.replace("    ironmesh_machines:", &format!("{former}{first}    ironmesh_machines:"));
    controller.write("hosts.yml", &hosts);
    controller.play("site", &[]).await;
    mesh.assert_known("10.77.0.12 10.77.0.13 0").await;
    controller.play("uninstall", &["-e", "ironmesh_uninstall=cp1"]).await;
    let gone = "! ls -d /etc/ironmesh /var/lib/ironmesh; ! id ironmesh";
    fleet.guest(CONTROL_PLANES[0]).run(gone).await;
    controller.play("site", &[]).await.assert_unchanged();
    controller.play("rotate", &[]).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();
}

/// Adds the keys of `more`.
fn extend(variables: &mut Value, more: &Value) {
    variables.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
}
