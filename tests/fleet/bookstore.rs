//! A mesh on three guests: the control plane on `vm1`, a bookstore on `vm2` and its buyer on `vm3`.

use crate::fleet::{Fleet, PACKAGE};
use crate::guest::Guest;

/// The guests by their parts.
pub(crate) const CONTROL_PLANE: u8 = 1;
pub(crate) const STORE: u8 = 2;
pub(crate) const BUYER: u8 = 3;

/// The folder of a proxy that was enrolled by hand.
pub(crate) const FOLDER: &str = "/etc/ironmesh/proxy";

/// The local port of the bookstore on the guest of the buyer.
pub(crate) const STORE_PORT: u16 = 14001;

const SERVICES: &str = r#"
[[service]]
name = "bookstore"
namespace = "shop"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]

[[service]]
name = "bookbuyer"
namespace = "shop"
"#;

const GRANT: &str = r#"
[[http_route_group]]
name = "books"
namespace = "shop"
matches = [{ name = "read", path_regex = "/books/.*", methods = ["GET"] }]

[[traffic_target]]
name = "buyers"
namespace = "shop"
destination = { name = "bookstore" }
sources = [{ name = "bookbuyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "books" }]
"#;

const SETTINGS: &str = r#"
policy = "/etc/ironmesh/policy"
advertise = ["vm1:15128"]
"#;

const CONTROL_PLANE_UNIT: &str = "
[Unit]
Description=Control plane of the Ironmesh mesh
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=ironmesh serve
Restart=always

[Install]
WantedBy=multi-user.target
";

const ENVOY_UNIT: &str = "
[Unit]
Description=Envoy of the Ironmesh mesh
After=network-online.target
Wants=network-online.target

[Service]
User=envoy
ExecStart=/usr/local/bin/COMMAND
Restart=always

[Install]
WantedBy=multi-user.target
";

const STORE_UNIT: &str = "
[Unit]
Description=The bookstore
Before=ironmesh-envoy.service

[Service]
ExecStart=python3 -m http.server 8080 --protocol HTTP/1.1 --bind 127.0.0.1 --directory /srv
StandardError=null
Restart=always

[Install]
WantedBy=multi-user.target
";

/// Boots three guests, starts the control plane and the store, and enrolls both machines. Policy allows no call yet.
/// `None` skips the test.
pub(crate) async fn start() -> Option<Fleet> {
    let fleet = Fleet::boot(3).await?;
    start_parts(&fleet).await;
    join(&fleet, STORE, "shop/bookstore", "").await;
    join(&fleet, BUYER, "shop/bookbuyer", &format!("--upstream shop/bookstore={STORE_PORT}")).await;
    Some(fleet)
}

/// Boots guests with the package, installs it on the host of the control plane, and starts the control plane and the
/// application of the store; no machine is enrolled, or has installed the package.
pub(crate) async fn boot(count: u8) -> Option<Fleet> {
    let fleet = Fleet::boot_with_package(count).await?;
    install(&fleet, PACKAGE).await;
    Some(fleet)
}

/// Installs this package on the host of the control plane, and starts the control plane and the application of the store.
pub(crate) async fn install(fleet: &Fleet, package: &str) {
    fleet.guest(CONTROL_PLANE).run(&format!("dpkg --install {package}")).await;
    start_parts(fleet).await;
}

async fn start_parts(fleet: &Fleet) {
    start_control_plane(fleet.guest(CONTROL_PLANE)).await;
    start_application(fleet.guest(STORE), "The Name of the Rose").await;
}

/// Starts the application of a store with one book.
pub(crate) async fn start_application(guest: &Guest, book: &str) {
    guest.run(&format!("mkdir /srv/books; echo '{book}' >/srv/books/1")).await;
    guest.install_unit("store", STORE_UNIT).await;
}

/// As [`start`], and allows the buyer's calls.
pub(crate) async fn start_with_grant() -> Option<Fleet> {
    let fleet = start().await?;
    grant(&fleet).await;
    wait_until_sold(&fleet).await;
    Some(fleet)
}

/// Starts the control plane as a unit, and waits until it is ready.
async fn start_control_plane(guest: &Guest) {
    guest.write("/etc/ironmesh/ironmesh.toml", SETTINGS).await;
    guest.write("/etc/ironmesh/policy/services.toml", SERVICES).await;
    guest.install_unit("ironmesh", CONTROL_PLANE_UNIT).await;
    wait_until_ready(guest).await;
}

/// Waits until the control plane is ready.
pub(crate) async fn wait_until_ready(guest: &Guest) {
    let ready = format!("{CURL} --fail http://127.0.0.1:15014/readyz");
    guest.wait_until("the control plane to be ready", &ready).await;
}

async fn join(fleet: &Fleet, number: u8, service: &str, options: &str) {
    let (control_plane, machine) = (fleet.guest(CONTROL_PLANE), fleet.guest(number));
    join_by_hand(control_plane, machine, service, options, "ironmesh-envoy").await;
}

/// Enrolls a machine by a token, and starts its Envoy as this unit with the command that `agent join` prints.
pub(crate) async fn join_by_hand(
    control_plane: &Guest,
    machine: &Guest,
    service: &str,
    options: &str,
    unit: &str,
) {
    let token = format!(
        "ironmesh proxy token --service {service} --address {}/32 --output json",
        machine.address()
    );
    let created: serde_json::Value =
        serde_json::from_str(&control_plane.run(&token).await).unwrap();
    let part = |pointer: &str| created.pointer(pointer).unwrap().as_str().unwrap();
    machine.write("/run/ironmesh-token", part("/tokens/0/token")).await;
    let joined = machine
        .run(&format!(
            "ironmesh agent join https://{}:15129 --token-file /run/ironmesh-token --ca-hash {} \
             --address {} {options} --out {FOLDER}
             rm /run/ironmesh-token
             useradd --system envoy
             chown -R envoy: {FOLDER}",
            part("/enrollment/0/0"),
            part("/ca_hashes/0"),
            machine.address()
        ))
        .await;
    let command = joined.lines().find(|line| line.trim().starts_with("envoy -c"));
    let command = command.unwrap_or_else(|| panic!("no command: {joined}")).trim();
    machine.install_unit(unit, &ENVOY_UNIT.replace("COMMAND", command)).await;
}

/// Allows the buyer to read books.
pub(crate) async fn grant(fleet: &Fleet) {
    let control_plane = fleet.guest(CONTROL_PLANE);
    control_plane.write("/etc/ironmesh/policy/buyers.toml", GRANT).await;
}

/// Waits until the buyer gets a book.
pub(crate) async fn wait_until_sold(fleet: &Fleet) {
    let buyer = fleet.guest(BUYER);
    let book = buyer.wait_until("a book", &format!("{CURL} --fail {}", book())).await;
    assert_eq!(book, "The Name of the Rose");
}

/// The status of a request of the buyer; `000` without a response.
pub(crate) async fn status(fleet: &Fleet) -> String {
    let request =
        format!("{CURL} --output /dev/null --write-out '%{{http_code}}' {} || true", book());
    fleet.guest(BUYER).run(&request).await
}

fn book() -> String {
    format!("http://127.0.0.1:{STORE_PORT}/books/1")
}

pub(crate) const CURL: &str = "curl --silent --show-error --max-time 5";
