//! The programs that tests of the whole mesh run, and how tests are skipped without them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The paths of the programs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Envoy: `ENVOY_BIN`, else the file from `scripts/get-envoy.sh`.
    pub envoy: PathBuf,
    /// The `ironmesh` binary: `IRONMESH_BIN`, else the one built next to this test.
    pub ironmesh: PathBuf,
}

impl Programs {
    /// Finds both programs. If one is missing, it prints which, and `None` skips the test.
    ///
    /// # Panics
    ///
    /// If a program is missing and `CI=true`, because a skipped test would look like a passed one.
    pub fn find() -> Option<Self> {
        Some(Self { envoy: require_envoy()?, ironmesh: require_ironmesh()? })
    }
}

/// The path of Envoy; `None` as in [`Programs::find`].
pub fn require_envoy() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/envoy");
    require("ENVOY_BIN", fetched, "`make envoy` fetches it")
}

/// The path of etcd, with `etcdctl` in the same folder; `None` as in [`Programs::find`].
pub fn require_etcd() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/etcd");
    require("ETCD_BIN", fetched, "`scripts/get-etcd.sh` fetches it")
}

/// The path of Consul; `None` as in [`Programs::find`].
pub fn require_consul() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/consul");
    require("CONSUL_BIN", fetched, "`scripts/get-consul.sh` fetches it")
}

/// The path of Prometheus; `None` as in [`Programs::find`].
pub fn require_prometheus() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/prometheus");
    require("PROMETHEUS_BIN", fetched, "`scripts/get-prometheus.sh` fetches it")
}

/// The path of promtool, which checks rules of Prometheus; `None` as in [`Programs::find`].
pub fn require_promtool() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/promtool");
    require("PROMTOOL_BIN", fetched, "`scripts/get-prometheus.sh` fetches it")
}

/// The path of schemathesis; `None` as in [`Programs::find`].
pub fn require_schemathesis() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/schemathesis");
    require("SCHEMATHESIS_BIN", fetched, "`scripts/get-schemathesis.sh` fetches it")
}

/// The path of Chromium, whose driver is installed too; `None` as in [`Programs::find`].
pub fn require_chromium() -> Option<PathBuf> {
    let remedy = "install the packages chromium and chromium-driver";
    if Command::new("chromedriver").arg("--version").output().is_err() {
        return skip(&format!("the driver of Chromium is missing; {remedy}"));
    }
    require("CHROMIUM_BIN", PathBuf::from("/usr/bin/chromium"), remedy)
}

/// The folder of gRPC's Python client; `None` as in [`Programs::find`].
pub fn require_grpcio() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/grpcio");
    require("GRPCIO_PATH", fetched, "`scripts/get-grpcio.sh` fetches it")
}

/// The root folder of the machines of a fleet; `None` as in [`Programs::find`], and without the right to boot them.
pub fn require_debian() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/debian");
    let root = require("DEBIAN_ROOT", fetched, "`sudo scripts/get-debian.sh` builds it")?;
    // What a boot begins with: only root may do it, and not in every container.
    let namespaces = ["--mount", "--net", "mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"];
    let has_right = Command::new("unshare").args(namespaces).output();
    if !has_right.is_ok_and(|output| output.status.success()) {
        return skip("the right to boot machines is missing; run the tests as root");
    }
    for tool in ["systemd-nspawn", "ip"] {
        if Command::new(tool).arg("--help").output().is_err() {
            return skip(&format!("{tool} is missing; `scripts/get-debian.sh` names its package"));
        }
    }
    Some(root)
}

/// The root folder of machines with Debian 13; `None` as in [`require_debian`].
pub fn require_trixie() -> Option<PathBuf> {
    require_debian()?;
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/debian-trixie");
    require("DEBIAN_TRIXIE_ROOT", fetched, "`sudo scripts/get-debian.sh trixie` builds it")
}

/// The folder of Ansible; `None` as in [`Programs::find`].
pub fn require_ansible() -> Option<PathBuf> {
    // Ansible connects by it.
    if Command::new("ssh").arg("-V").output().is_err() {
        return skip("ssh is missing; install the package openssh-client");
    }
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/ansible");
    require("ANSIBLE_HOME", fetched, "`scripts/get-ansible.sh` fetches it")
}

/// The path of the `ironmesh` binary; `None` as in [`Programs::find`].
pub fn require_ironmesh() -> Option<PathBuf> {
    require("IRONMESH_BIN", built("ironmesh"), "`cargo build --workspace --bins` builds it")
}

/// The path of the package of the `ironmesh` binary; `None` as in [`Programs::find`], and if it is older than that.
pub fn require_package() -> Option<PathBuf> {
    let name = format!("package/ironmesh_{}-1_amd64.deb", env!("CARGO_PKG_VERSION"));
    let package = require("IRONMESH_DEB", built(&name), "`make test` builds it")?;
    let modified = |path: &Path| fs_err::metadata(path).and_then(|metadata| metadata.modified());
    if modified(&package).ok() < modified(&require_ironmesh()?).ok() {
        return skip(&format!(
            "{} is older than the binary; `make test` builds it",
            package.display()
        ));
    }
    Some(package)
}

/// The path of the package of the pinned version (`tests/fleet/other-version`); `None` as in [`Programs::find`].
pub fn require_other_version() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/other-version/ironmesh.deb");
    require("OTHER_DEB", built, "`scripts/get-other-version.sh` builds it")
}

/// The path of the load generator; `None` as in [`Programs::find`].
pub fn require_bench() -> Option<PathBuf> {
    let remedy = "`cargo build --workspace --bins` builds it";
    require("IRONMESH_BENCH_BIN", built("ironmesh-bench"), remedy)
}

/// A binary of this workspace: tests are in `<target>/<profile>/deps`, binaries in
/// `<target>/<profile>`.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join(name)
}

fn require(variable: &str, otherwise: PathBuf, remedy: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map_or(otherwise, PathBuf::from);
    if path.exists() {
        return Some(path);
    }
    skip(&format!("{} is missing ({variable}); {remedy}", path.display()))
}

fn skip(missing: &str) -> Option<PathBuf> {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing}");
    eprintln!("SKIPPED: {missing}");
    None
}
