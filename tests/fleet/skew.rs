//! A skew of one version in both directions: the control plane of this version with machines of the pinned one, and the
//! reverse. `make test-long-skew` builds the pinned version.

use std::path::PathBuf;

use ironmesh_tests::programs::{require_other_version, require_package};

use crate::bookstore::{self, BUYER, CONTROL_PLANE, CURL, STORE};
use crate::fleet::{CONTROL_PLANE_PACKAGE, Fleet};
use crate::guide::{Reader, USER};
use crate::load::{Load, REQUESTS_PER_FAULT};

/// The book of the store, through the buyer's Envoy.
const BOOK: &str = "http://bookstore.shop.mesh.internal/books/1";

/// Waits of Envoy that are shorter than on real machines. An HTTP/2 connection accepts new requests for 5 s of its drain.
const SETTINGS: &str = r#"
[envoy]
drain_time = "8s"
parent_shutdown_time = "10s"
drain_minimum = "1s"
"#;

/// Everything in which a machine and its control plane exchange messages: join, xDS, renewal, change of services, leave.
async fn exchange(control_plane: PathBuf, machine: PathBuf) -> Option<Fleet> {
    let fleet = Fleet::boot_with_packages(3, control_plane, machine).await?;
    let (host, store) = (fleet.guest(CONTROL_PLANE), fleet.guest(STORE));
    bookstore::install(&fleet, CONTROL_PLANE_PACKAGE).await;
    bookstore::grant(&fleet).await;
    for (number, service) in [(STORE, "shop/bookstore"), (BUYER, "shop/bookbuyer")] {
        Reader::new(&fleet, number, service).await.join(SETTINGS).await;
    }
    let request = format!("{CURL} --fail --proxy 127.0.0.1:15080 {BOOK}");
    let buyer = fleet.guest(BUYER);
    buyer.wait_until("a book", &request).await;

    let load = Load::start(buyer, 15080, BOOK).await;
    let as_user = |command: &str| format!("runuser -u {USER} -- ironmesh {command}");
    store.run(&as_user("proxy bootstrap --renew /var/lib/ironmesh-agent/proxy --force")).await;
    store.run("systemctl reload ironmesh-envoy").await;
    let status = as_user("agent status");
    store.wait_until("the renewed store to be ready", &status).await;
    let id = "ironmesh proxy list --output json | python3 -c 'import json, sys; \
        print([one[\"id\"] for one in json.load(sys.stdin) if one[\"services\"] == [\"shop/bookstore\"]][0])'";
    let id = host.run(id).await;
    let services = "--service shop/bookstore --service shop/bookbuyer";
    host.run(&format!("ironmesh proxy set-services {id} {services}")).await;
    host.run("ironmesh policy wait --timeout 30s").await;
    store.wait_until("the store to be ready", &status).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();
    Some(fleet)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it needs a build of the pinned version; `make test-long-skew` makes it"]
async fn skew_of_one_version_works_in_both_directions() {
    let Some((own, other)) = require_package().zip(require_other_version()) else { return };
    let Some(fleet) = exchange(own.clone(), other.clone()).await else { return };
    fleet.guest(BUYER).run(&format!("runuser -u {USER} -- ironmesh agent leave")).await;
    drop(fleet);

    // The control plane of the pinned version, and then an upgrade of it: the machines stay connected, with its state.
    let Some(fleet) = exchange(other, own.clone()).await else { return };
    let load = Load::start(fleet.guest(BUYER), 15080, BOOK).await;
    let host = fleet.guest(CONTROL_PLANE);
    host.write("/root/next.deb", fs_err::read(own).unwrap()).await;
    host.run("dpkg --install /root/next.deb").await;
    bookstore::wait_until_ready(host).await;
    for number in [STORE, BUYER] {
        let status = format!("runuser -u {USER} -- ironmesh agent status");
        fleet.guest(number).wait_until("the machine to be ready", &status).await;
    }
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();
    fleet.guest(BUYER).run(&format!("runuser -u {USER} -- ironmesh agent leave")).await;
}
