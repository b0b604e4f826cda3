//! The renewal of each kind of certificate, under load.

use std::path::Path;

use fs_err as fs;
use ironmesh_tests::{
    Envoy, Http1Connection, Load, Mesh, ProxyOptions, REQUESTS_PER_FAULT, eventually,
};
use serde_json::Value;

use crate::bookstore::{Bookstore, HOST, ensure_status};
use crate::restart::wait_for_streams;

#[tokio::test(flavor = "multi_thread")]
async fn replaced_proxy_certificate_is_used_without_a_restart() {
    let Some(mut store) = Bookstore::open().await else { return };
    let mut connection = Http1Connection::connect(store.local_address()).await.unwrap();
    ensure_status(&connection.get("/books/1", HOST).await.unwrap(), 200).unwrap();
    let ours = store.mesh.folder().join("proxies/default-bookbuyer-11");
    let kept = store.mesh.folder().join("kept");
    fs::create_dir(&kept).unwrap();
    for file in PAIR {
        fs::copy(ours.join(file), kept.join(file)).unwrap();
    }
    let first = proxy_serial(&store.buyer).await;

    // No command renews a proxy certificate yet. The test installs the pair of another proxy, which
    // Envoy cannot distinguish from a renewed one.
    let other = store.mesh.bootstrap(&ProxyOptions::new("default/bookbuyer", 13)).await;
    install_pair(&other, &ours);
    let second =
        eventually("another certificate", async || match proxy_serial(&store.buyer).await {
            now if now != first => Ok(now),
            now => Err(now),
        })
        .await;
    // The stream and all traffic continue with the certificate of their connection.
    assert_eq!(store.buyer.stat(CONNECTED).await, 1);
    ensure_status(&connection.get("/books/1", HOST).await.unwrap(), 200).unwrap();

    // The next connection uses the new files. The control plane rejects it, since the node id does
    // not match the certificate.
    store.mesh.restart_control_plane().await;
    let rejection = "the node id contradicts the certificate";
    eventually("a rejection", async || match store.mesh.log() {
        log if log.contains(rejection) => Ok(()),
        log => Err(log),
    })
    .await;
    assert_eq!(proxy_serial(&store.buyer).await, second);

    // With its own pair back, the next connection is accepted.
    install_pair(&kept, &ours);
    eventually("the first certificate", async || match proxy_serial(&store.buyer).await {
        now if now == first => Ok(()),
        now => Err(now),
    })
    .await;
    eventually("the stream to the control plane", async || {
        match store.buyer.stat(CONNECTED).await {
            1 => Ok(()),
            state => Err(state),
        }
    })
    .await;
    ensure_status(&connection.get("/books/1", HOST).await.unwrap(), 200).unwrap();
    store.buyer.assert_running();
    store.assert_no_update_errors().await;
}

/// The certificates of services last 24 hours, that of the control plane 30 days: the clock moves on by a day at a time.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_services_and_control_plane_are_renewed_under_load() {
    let settings = "xds = { max_connection_age = \"2s\" }";
    let store = Bookstore::open_with_settings(settings, &[], &[], |proxy| proxy).await;
    let Some(mut store) = store else { return };
    store.mesh.restart_with_own_clock().await;
    wait_for_streams(&store.buyer, 1).await;
    let load = Load::start(store.local_address(), HOST, "/books/1");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let own = own_serial(&store.mesh).await;
    let mut serials = store.v1.serials().await;
    for day in 1..=21 {
        store.mesh.set_clock(day * DAY);
        serials = eventually("a new service certificate", async || {
            let now = store.v1.serials().await;
            if now == serials { Err(format!("day {day}: {now:?}")) } else { Ok(now) }
        })
        .await;
    }
    eventually("a new certificate of the control plane", async || {
        let now = own_serial(&store.mesh).await;
        if now == own { Err(now) } else { Ok(()) }
    })
    .await;
    // Connections end after two seconds: these streams are on new ones, which verified the new certificate.
    let renewed = store.buyer.sum(CONNECTIONS).await;
    eventually("a new connection to the control plane", async || {
        let now = store.buyer.sum(CONNECTIONS).await;
        if now > renewed + 1 { Ok(()) } else { Err(now) }
    })
    .await;
    wait_for_streams(&store.buyer, 1).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let report = load.finish().await;
    report.assert_undisturbed();
    eprintln!("{} requests, none failed", report.requests);
    store.assert_no_update_errors().await;
}

/// The serial number of the control plane's own certificate.
async fn own_serial(mesh: &Mesh) -> String {
    let output = mesh.run(&["cert", "list", "--kind", "control_plane", "--output", "json"]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let serial = list.pointer("/certificates/0/serial").and_then(Value::as_str);
    serial.unwrap_or_default().to_owned()
}

/// Replaces the pair in `to` by that in `from`, one file after the other.
pub(crate) fn install_pair(from: &Path, to: &Path) {
    for file in PAIR {
        // Outside the folder, which Envoy watches.
        let part = to.with_extension("part");
        fs::copy(from.join(file), &part).unwrap();
        fs::rename(part, to.join(file)).unwrap();
    }
}

/// The serial number of the certificate that an Envoy presents to the control plane.
pub(crate) async fn proxy_serial(envoy: &Envoy) -> String {
    let certs = envoy.certs().await;
    let chains = certs.pointer("/certificates").and_then(Value::as_array);
    let serials: Vec<_> = chains
        .into_iter()
        .flatten()
        .filter_map(|one| one.pointer("/cert_chain/0"))
        .filter(|own| {
            let name = own.pointer("/subject_alt_names/0/uri").and_then(Value::as_str);
            name.is_some_and(|name| name.starts_with("spiffe://mesh.internal/proxy/"))
        })
        .filter_map(|own| own.pointer("/serial_number")?.as_str())
        .collect();
    assert_eq!(serials.len(), 1, "one proxy certificate is expected in {certs:#}");
    serials.concat()
}

const PAIR: [&str; 2] = ["proxy.crt", "proxy.key"];
const DAY: i64 = 24 * 3600;
const CONNECTIONS: &str = r"^cluster\.ironmesh-control-plane\.upstream_cx_total$";
pub(crate) const CONNECTED: &str = "control_plane.connected_state";
