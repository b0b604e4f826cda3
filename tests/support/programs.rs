//! The programs that tests of the whole mesh run, and what happens when one is missing.

use std::path::{Path, PathBuf};

/// Where the programs are.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Envoy: `ENVOY_BIN`, else what `scripts/get-envoy.sh` fetched.
    pub envoy: PathBuf,
    /// Our own binary: `IRONMESH_BIN`, else the one built beside this test.
    pub ironmesh: PathBuf,
}

impl Programs {
    /// Finds both. If one is missing, a person is told and the test is to be skipped: `None`.
    ///
    /// # Panics
    ///
    /// If one is missing and `CI=true`, because there a skipped test would look like a passed one.
    pub fn find() -> Option<Self> {
        Some(Self { envoy: require_envoy()?, ironmesh: require_ironmesh()? })
    }
}

/// The path of Envoy, or `None` as in [`Programs::find`].
pub fn require_envoy() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/envoy");
    require("ENVOY_BIN", fetched, "`make envoy` fetches it")
}

/// The path of etcd, with `etcdctl` beside it, or `None` as in [`Programs::find`].
pub fn require_etcd() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/etcd");
    require("ETCD_BIN", fetched, "`scripts/get-etcd.sh` fetches it")
}

/// The path of Consul, or `None` as in [`Programs::find`].
pub fn require_consul() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/consul");
    require("CONSUL_BIN", fetched, "`scripts/get-consul.sh` fetches it")
}

/// The folder of gRPC's Python client, or `None` as in [`Programs::find`].
pub fn require_grpcio() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/grpcio");
    require("GRPCIO_PATH", fetched, "`scripts/get-grpcio.sh` fetches it")
}

/// The path of our own binary, or `None` as in [`Programs::find`].
pub fn require_ironmesh() -> Option<PathBuf> {
    require("IRONMESH_BIN", built("ironmesh"), "`cargo build --workspace --bins` builds it")
}

/// The path of the load generator, or `None` as in [`Programs::find`].
pub fn require_bench() -> Option<PathBuf> {
    let remedy = "`cargo build --workspace --bins` builds it";
    require("IRONMESH_BENCH_BIN", built("ironmesh-bench"), remedy)
}

/// A binary of ours: a test is `<target>/<profile>/deps/<name>`, and they lie in `<target>/<profile>`.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join(name)
}

fn require(variable: &str, otherwise: PathBuf, remedy: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map_or(otherwise, PathBuf::from);
    if path.exists() {
        return Some(path);
    }
    let missing = format!("{} is missing ({variable}); {remedy}", path.display());
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing}");
    eprintln!("SKIPPED: {missing}");
    None
}
