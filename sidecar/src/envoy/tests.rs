use std::ffi::OsStr;
use std::time::Duration;

use ironmesh_catalog::CertificateSource;
use serde_json::json;

use super::*;
use crate::DRIVERS;

fn settings(table: Value) -> Result<DriverSettings, String> {
    let envoy = serde_json::from_value(table).map_err(|error| error.to_string())?;
    Ok(DriverSettings { envoy })
}

fn workload() -> Workload {
    let mut workload: Workload = serde_json::from_value(json!({
        "id": "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f",
        "name": "bookstore-1",
        "service": "shop/bookstore",
        "address": "10.0.0.5",
        "metadata": { "upstreams": [{ "service": "shop/buyer", "local_port": 14001 }] },
        "control_plane": [["cp.example", 15128]],
        "control_plane_id": "spiffe://mesh.internal/control-plane",
        "field_of_a_newer_version": 1,
    }))
    .unwrap();
    workload.folder = "/var/lib/ironmesh/proxy".into();
    workload
}

fn bootstrap(workload: &Workload, settings: &DriverSettings) -> Value {
    let files = Envoy.files(workload, settings, None).unwrap();
    let file = files.iter().find(|file| file.name == CONFIGURATION).unwrap();
    serde_json::from_str(&file.content).unwrap()
}

fn joined(arguments: &[OsString]) -> String {
    arguments.join(OsStr::new(" ")).into_string().unwrap()
}

#[test]
fn envoy_without_an_agent_probes_by_health_discovery() {
    let by_hand = workload();
    let mut with_agent = workload();
    with_agent.metadata.certificates = CertificateSource::Agent;
    let read = bootstrap(&by_hand, &DriverSettings::default());
    let cluster = &read["hds_config"]["grpc_services"][0]["envoy_grpc"]["cluster_name"];
    assert_eq!(*cluster, CONTROL_PLANE_CLUSTER);
    assert_eq!(read["node"]["metadata"]["ironmesh"]["bootstrap_version"], 2);
    let read = bootstrap(&with_agent, &DriverSettings::default());
    assert_eq!(read.get("hds_config"), None, "the agent probes");
}

#[test]
fn node_metadata_has_the_addresses_of_the_control_plane() {
    let control_plane = ["10.0.0.9", "fd00::1", "cp.example"];
    let control_plane = control_plane.map(|host| (host.to_owned(), 15128)).into();
    let read = bootstrap(&Workload { control_plane, ..workload() }, &DriverSettings::default());
    assert_eq!(
        read["node"]["metadata"]["ironmesh"]["control_plane"],
        json!(["10.0.0.9:15128", "[fd00::1]:15128", "cp.example:15128"])
    );
}

#[test]
fn missing_envoy_settings_have_defaults() {
    let read = settings(json!({})).unwrap();
    assert_eq!(read, DriverSettings::default());
    assert_eq!(read.envoy.parent_shutdown_time, Duration::from_secs(60));
    assert_eq!((read.envoy.ports.metrics, read.envoy.ports.admin), (15010, 15000));
}

#[test]
fn invalid_envoy_settings_are_rejected_with_the_reason() {
    for (table, reason) in [
        (json!({ "drain_tme": "1s" }), "unknown field `drain_tme`"),
        (json!({ "log_level": "warn" }), "unknown variant `warn`"),
        (json!({ "concurrency": 0 }), "nonzero"),
        (json!({ "drain_time": "30" }), "expected a duration, as in `30s`"),
        (json!({ "drain_time": "1500ms" }), "expected whole seconds, from 1s to 24h: `1500ms`"),
        (json!({ "drain_maximum": "2d" }), "expected whole seconds, from 1s to 24h: `2d`"),
        (
            json!({ "drain_time": "60s" }),
            "`parent_shutdown_time` must be longer than `drain_time`: 60s is not longer than 60s",
        ),
        (
            json!({ "drain_minimum": "61s" }),
            "`drain_minimum` must be at most `drain_maximum`: 61s is more than 60s",
        ),
        (json!({ "ports": { "metrics": 15000 } }), "must differ: both are 15000"),
        (json!({ "ports": { "metrics": 15003 } }), "`ports.metrics` must not be 15003"),
        (json!({ "ports": { "admin": 15128 } }), "`ports.admin` must not be 15128"),
        (json!({ "ports": { "admin": 0 } }), "`ports.admin` must not be 0"),
        (json!({ "ports": { "health": 1 } }), "unknown field `health`"),
        (json!({ "binary": "" }), "`binary` must not be empty"),
    ] {
        let error = settings(table.clone()).unwrap_err();
        assert!(error.contains(reason), "{table}: {error}");
    }
}

#[test]
fn commands_have_the_settings() {
    let folder = Path::new("/var/lib/ironmesh/proxy");
    let process = |settings: &DriverSettings| Envoy.runtime(folder, settings).process.unwrap();
    let default = process(&DriverSettings::default());
    let file = "/var/lib/ironmesh/proxy/envoy.yaml";
    assert_eq!(default.program, Path::new("envoy"));
    let standalone = format!("-c {file} --disable-hot-restart --drain-time-s 30");
    assert_eq!(joined(&default.standalone().arguments), standalone);
    let supervised = format!("-c {file} --drain-time-s 30 --parent-shutdown-time-s 60 -l warning");
    assert_eq!(joined(&default.supervised), supervised);
    let validation = default.validation(Path::new("/tmp/envoy.yaml"));
    assert_eq!(joined(&validation.arguments), "--mode validate -l warning -c /tmp/envoy.yaml");

    let settings = settings(json!({
        "binary": "/opt/envoy",
        "log_level": "debug",
        "concurrency": 2,
        "drain_time": "2m",
        "parent_shutdown_time": "1h",
    }));
    let chosen = process(&settings.unwrap());
    assert_eq!(chosen.program, Path::new("/opt/envoy"));
    let standalone =
        format!("-c {file} --disable-hot-restart --drain-time-s 120 -l debug --concurrency 2");
    assert_eq!(joined(&chosen.standalone().arguments), standalone);
    let supervised = format!(
        "-c {file} --drain-time-s 120 --parent-shutdown-time-s 3600 -l debug --concurrency 2"
    );
    assert_eq!(joined(&chosen.supervised), supervised);
}

#[test]
fn bootstrap_has_the_ports_of_the_settings_and_the_agents_metrics() {
    let settings = settings(json!({ "ports": { "metrics": 9102, "admin": 9901 } })).unwrap();
    let workload = Workload { admin: Admin::Tcp, ..workload() };
    let bootstrap = bootstrap(&workload, &settings);
    let at = |path: &str| bootstrap.pointer(path).unwrap();
    let listener = "/static_resources/listeners/0";
    assert_eq!(at(&format!("{listener}/address/socket_address/port_value")), 9102);
    assert_eq!(at("/admin/address/socket_address/port_value"), 9901);
    let routes = "filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes";
    let route = at(&format!("{listener}/{routes}/2"));
    assert_eq!(route["match"]["path"], "/agent/metrics");
    assert_eq!(
        route["route"],
        json!({ "cluster": "ironmesh-agent", "prefix_rewrite": "/metrics" })
    );
    let address = "load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/pipe/path";
    let socket = at(&format!("/static_resources/clusters/2/{address}"));
    assert_eq!(socket, "/var/lib/ironmesh/proxy.agent.sock");
}

#[test]
fn bootstrap_has_the_agents_socket_if_certificates_come_from_there() {
    let cluster = |workload: &Workload| {
        let bootstrap = bootstrap(workload, &DriverSettings::default());
        let clusters = bootstrap["static_resources"]["clusters"].as_array().unwrap().iter();
        clusters.clone().find(|one| one["name"] == CERTIFICATES_CLUSTER).cloned()
    };
    let mut workload = workload();
    assert_eq!(cluster(&workload), None);
    workload.metadata.certificates = CertificateSource::Agent;
    let cluster = cluster(&workload).unwrap();
    let address = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/pipe/path";
    assert_eq!(cluster.pointer(address).unwrap(), "/var/lib/ironmesh/proxy/sds.sock");
    let reported = &bootstrap(&workload, &DriverSettings::default())["node"]["metadata"];
    assert_eq!(reported["ironmesh"]["certificates"], "agent");
}

#[test]
fn upstream_on_an_own_port_is_rejected() {
    let settings = settings(json!({ "ports": { "metrics": 14001 } })).unwrap();
    let error = Envoy.files(&workload(), &settings, None).unwrap_err().to_string();
    assert!(error.contains("`shop/buyer` has the local port 14001"), "{error}");
    assert!(error.contains("port `metrics`"), "{error}");
}

#[test]
fn admin_socket_in_a_deep_folder_is_rejected() {
    let folder = format!("/{}", "x".repeat(100)).into();
    let deep = Workload { folder, ..workload() };
    let error = Envoy.files(&deep, &DriverSettings::default(), None).unwrap_err().to_string();
    assert!(error.contains("choose a shorter folder"), "{error}");
    // With a TCP port, only the agent's metrics are missing.
    let deep = Workload { admin: Admin::Tcp, ..deep };
    let clusters = &bootstrap(&deep, &DriverSettings::default())["static_resources"]["clusters"];
    assert_eq!(clusters.as_array().unwrap().len(), 2);
}

#[test]
fn driver_is_registered_by_its_name() {
    let names: Vec<_> = DRIVERS.names().collect();
    assert_eq!(names, [NAME]);
    assert_eq!(ironmesh_catalog::DriverName::default().as_str(), NAME);
}
