//! A real Envoy validates the compiled resources without running them.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use fs_err as fs;
use ironmesh_catalog::Proxy;
use ironmesh_catalog::{Domain, TrustDomain};
use ironmesh_config_language::{Document, yaml_value};
use ironmesh_sidecar::{Admin, DriverSettings, SidecarDriver as _, Workload, envoy};
use ironmesh_tests::programs::require_envoy;
use serde_json::Value;
use tempfile::TempDir;

use crate::case::Case;
use crate::certificates::RealCertificates;
use crate::rendering;

#[test]
fn envoy_accepts_the_resources_of_every_proxy() {
    let Some(program) = require_envoy() else { return };
    let certificates = RealCertificates::new();
    let mut rejected = String::new();
    for case in Case::all() {
        for one in case.compile() {
            let bootstrap = rendering::bootstrap(&one.compiled, &certificates);
            if let Err(output) = validate(&program, &bootstrap) {
                writeln!(rejected, "\n{}, {}:\n{output}", case.name, one.label).unwrap();
            }
        }
    }
    assert!(rejected.is_empty(), "{rejected}");
}

#[test]
fn envoy_accepts_the_bootstrap_of_every_proxy() {
    let Some(program) = require_envoy() else { return };
    let certificates = RealCertificates::new();
    let mut rejected = String::new();
    for case in Case::all() {
        for one in case.compile() {
            let folder = sidecar_folder(&one.proxy, &certificates, None);
            if let Err(output) = validate_file(&program, &folder.path().join(envoy::CONFIGURATION))
            {
                writeln!(rejected, "\n{}, {}:\n{output}", case.name, one.label).unwrap();
            }
        }
    }
    assert!(rejected.is_empty(), "{rejected}");
}

#[test]
fn envoy_validates_a_bootstrap_with_an_overlay() {
    const OVERLAY: &str = "
node: { locality: { zone: eu-1 } }
static_resources:
  clusters:
  - name: statsd
    type: STRICT_DNS
    load_assignment:
      cluster_name: statsd
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: localhost, port_value: 8125 } } }
stats_sinks:
- name: envoy.stat_sinks.statsd
  typed_config:
    '@type': type.googleapis.com/envoy.config.metrics.v3.StatsdSink
    tcp_cluster_name: statsd
";
    let Some(program) = require_envoy() else { return };
    let certificates = RealCertificates::new();
    let case = Case::all().into_iter().find(|case| case.name == "bookstore").unwrap();
    let proxy = case.compile().into_iter().next().unwrap().proxy;
    let validate = |text: &str| {
        let overlay = yaml_value(&Document::new("overlay.yaml", text)).unwrap();
        let folder = sidecar_folder(&proxy, &certificates, Some(&overlay));
        validate_file(&program, &folder.path().join(envoy::CONFIGURATION))
    };
    validate(OVERLAY).unwrap();
    let rejection = validate(&OVERLAY.replace("tcp_cluster_name", "tcp_clster")).unwrap_err();
    assert!(rejection.contains("tcp_clster"), "{rejection}");
}

/// Guards the other tests here: Envoy must validate inlined resources.
#[test]
fn envoy_rejects_mistakes_in_inlined_routes_and_secrets() {
    let Some(program) = require_envoy() else { return };
    let certificates = RealCertificates::new();
    let case = Case::all().into_iter().find(|case| case.name == "bookstore").unwrap();
    let store = case.compile().into_iter().find(|one| one.label == "bookstore-v1").unwrap();
    let good = rendering::bootstrap(&store.compiled, &certificates).to_string();
    for (from, to, complaint) in [
        (
            r#""cluster":"default/bookstore-v1|14001|local""#,
            r#""cluster":"gone""#,
            "unknown cluster",
        ),
        (r#""regex":"(?:/books/.*)(?s:.*)""#, r#""regex":"(""#, "missing )"),
        ("-----BEGIN PRIVATE KEY-----", "-----BEGIN-----", "private key"),
    ] {
        let bad = good.replace(from, to);
        assert_ne!(bad, good, "nothing to break: {from}");
        let rejection = validate(&program, &serde_json::from_str(&bad).unwrap()).unwrap_err();
        assert!(rejection.contains(complaint), "{complaint}: {rejection}");
    }
}

/// The files of `ironmesh proxy bootstrap` for `proxy`.
fn sidecar_folder(
    proxy: &Proxy,
    certificates: &RealCertificates,
    overlay: Option<&Value>,
) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let workload = Workload {
        driver: proxy.record.driver.clone(),
        id: proxy.record.id,
        name: proxy.record.display_name(),
        service: proxy.record.services.first().unwrap().clone(),
        more_services: Vec::new(),
        address: proxy.record.mesh_address.ip(),
        metadata: proxy.metadata.clone(),
        admin: Admin::Socket,
        control_plane: vec![("127.0.0.1".to_owned(), 15128), ("::1".to_owned(), 15128)],
        control_plane_id: TrustDomain::new(Domain::default()).control_plane().0,
        folder: folder.path().to_owned(),
    };
    let files = envoy::Envoy.files(&workload, &DriverSettings::default(), overlay).unwrap();
    let (chain, key) = certificates.of_proxy(proxy);
    let keys = [
        (envoy::CERTIFICATE, &*chain),
        (envoy::KEY, key.expose()),
        (envoy::ROOTS, &certificates.roots()),
    ];
    let files = files.iter().map(|file| (file.name, &*file.content));
    for (name, content) in files.chain(keys) {
        fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

/// Envoy's output for a bootstrap: `Ok` if it accepts, `Err` if it rejects.
pub(crate) fn validate(program: &Path, bootstrap: &Value) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("envoy.json");
    fs::write(&file, bootstrap.to_string()).unwrap();
    validate_file(program, &file)
}

fn validate_file(program: &Path, file: &Path) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(["--mode", "validate", "-l", "warning", "-c"]).arg(file);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    if output.status.success() { Ok(text) } else { Err(text) }
}
