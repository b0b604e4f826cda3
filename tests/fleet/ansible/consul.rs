//! Services that are registered in Consul join the mesh, and leave it: two of one host, one of them registered by others.
//! The hosts come from Consul, too, and policy is in etcd.

use fs_err as fs;
use ironmesh_tests::programs::{require_consul, require_etcd};
use serde_json::{Value, json};

use super::controller::{Controller, repository};
use super::{LOG, Programs, RELEASES, REVISION};
use crate::bookstore::CURL;
use crate::fleet::Fleet;
use crate::guest::Guest;
use crate::load::{Load, REQUESTS_PER_FAULT};

/// The hosts: Consul's server beside the control plane, two hosts of both services, and their caller.
const SERVER: u8 = 1;
const FIRST: u8 = 2;
const SECOND: u8 = 3;
const CALLER: u8 = 4;

/// The local ports of the caller.
const STOCK: u16 = 14001;
const BOOKS: u16 = 14002;

/// Consul's management token. The cluster denies everything without a token.
const TOKEN: &str = "6e3a5d1c-6d6c-4b6f-9f0e-0c0ffee0c0de";

const POLICY: &str = r#"
[[service]]
name = "stock"
namespace = "shop"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]
[service.endpoints.consul]

[[service]]
name = "books"
namespace = "shop"
service_account = "stock"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8081 }]
[service.endpoints.consul]

[[service]]
name = "caller"
namespace = "shop"

[[http_route_group]]
name = "all"
namespace = "shop"
matches = [{ name = "read", path_regex = "/.*", methods = ["GET"] }]

[[traffic_target]]
name = "callers"
namespace = "shop"
destination = { name = "stock" }
sources = [{ name = "caller" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

/// The groups of the nodes, which have the names of their guests.
const GROUPS: &str = "
[ironmesh_control_planes]
vm1
[sellers]
vm2
vm3
[callers]
vm4
";

/// The variables of the groups. Controller and machines have the token in files.
fn inventory() -> Value {
    let services = json!([
        { "name": "stock", "service": "shop/stock" },
        {
            "name": "books", "service": "shop/books", "port": 8081,
            "checks": [{ "HTTP": "http://127.0.0.1:8081/", "Interval": "1s" }],
        },
    ]);
    json!({ "all": {
        "vars": {
            "ansible_user": "root",
            "ironmesh_version": env!("CARGO_PKG_VERSION"),
            "ironmesh_package_source": "file",
            "ironmesh_machine_envoy_source": "file",
            "ironmesh_policy_folder": "policy",
        },
        "children": {
            "ironmesh_control_planes": {
                "vars": {
                    "ironmesh_control_plane_policy_source": "etcd",
                    "ironmesh_control_plane_etcd": { "endpoints": ["http://127.0.0.1:2379"] },
                    "ironmesh_control_plane_consul": { "agents": ["http://127.0.0.1:8500"] },
                    "ironmesh_control_plane_consul_token_file": "consul-token.txt",
                },
            },
            "ironmesh_machines": { "children": {
                "sellers": {
                    "vars": {
                        "ironmesh_consul_services": services,
                        "ironmesh_consul_token_file": "/etc/consul-token",
                    },
                },
                "callers": {
                    "vars": {
                        "ironmesh_machine_services": ["shop/caller"],
                        "ironmesh_machine_upstreams":
                            [format!("shop/stock={STOCK}"), format!("shop/books={BOOKS}")],
                    },
                },
            } },
        },
    } })
}

const APPLICATION: &str = "
[Unit]
Before=ironmesh-envoy.service

[Service]
ExecStart=python3 -m http.server PORT --protocol HTTP/1.1 --bind 127.0.0.1 --directory /srv
StandardError=null
Restart=always

[Install]
WantedBy=multi-user.target
";

const AGENT: &str = "
[Service]
ExecStart=/usr/local/bin/consul agent -config-file=/etc/consul.json
Restart=always

[Install]
WantedBy=multi-user.target
";

const ETCD: &str = "
[Service]
ExecStart=/usr/local/bin/etcd --data-dir /var/lib/etcd --log-level error
Restart=always

[Install]
WantedBy=multi-user.target
";

/// Starts a Consul agent, which is a server on [`SERVER`].
async fn start_consul(guest: &Guest) {
    let address = guest.address().to_string();
    let is_server = address == "10.77.0.11";
    let mut settings = json!({
        "node_name": guest.name(),
        "data_dir": "/var/lib/consul",
        "bind_addr": address,
        "retry_join": ["10.77.0.11"],
        "server": is_server,
        "performance": { "raft_multiplier": 1 },
        "acl": {
            "enabled": true,
            "default_policy": "deny",
            "tokens": { "master": TOKEN, "agent": TOKEN },
        },
    });
    if is_server {
        settings["bootstrap_expect"] = json!(1);
        // The controller reads the nodes.
        settings["client_addr"] = json!(format!("127.0.0.1 {address}"));
    }
    guest.write("/etc/consul.json", settings.to_string()).await;
    guest.write("/etc/consul-token", TOKEN).await;
    guest.install_unit("consul", AGENT).await;
}

/// What the Consul agent of a host knows at this path.
async fn consul(guest: &Guest, path: &str) -> String {
    let request = format!("{CURL} --fail --header 'X-Consul-Token: {TOKEN}' http://127.0.0.1:8500");
    guest.wait_until("Consul", &format!("{request}{path}")).await
}

/// Registers the stock as its operators do, without the collection.
async fn register_stock(guest: &Guest) {
    let address = guest.address().to_string();
    let definition =
        json!({ "Name": "stock", "Address": address, "Port": 8080, "Meta": { "rack": "7" } });
    consul(guest, &format!("/v1/agent/service/register --request PUT --data '{definition}'")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_in_consul_join_and_leave_by_one_variable() {
    let Some(programs) = Programs::find() else { return };
    let Some((consul_program, etcd)) = require_consul().zip(require_etcd()) else { return };
    let servers = vec![(consul_program, "/usr/local/bin/consul"), (etcd, "/usr/local/bin/etcd")];
    // The control plane gets its key as a credential of the systemd of Debian 13, which uses an ACL.
    let mut releases = RELEASES;
    releases.reverse();
    let releases = &releases[1..];
    let Some(fleet) = Fleet::boot_bare(releases, servers).await else { return };
    for guest in fleet.guests() {
        start_consul(guest).await;
    }
    consul(fleet.guest(SERVER), "/v1/status/leader | grep :").await;
    fleet.guest(SERVER).install_unit("etcd", ETCD).await;
    for number in [FIRST, SECOND] {
        let guest = fleet.guest(number);
        for port in [8080, 8081] {
            let unit = APPLICATION.replace("PORT", &port.to_string());
            guest.install_unit(&format!("application-{port}"), &unit).await;
        }
        register_stock(guest).await;
    }
    let stock = consul(fleet.guest(FIRST), "/v1/agent/service/stock").await;
    let controller = Controller::new(&fleet, &programs.ansible, "static").await;
    let address = "http://10.77.0.11:8500".to_owned();
    let controller = controller
        .with_variables(&programs.variables())
        .with_environment([("CONSUL_HTTP_ADDR", address), ("CONSUL_HTTP_TOKEN", TOKEN.to_owned())]);
    let folder = controller.inventory();
    fs::remove_dir_all(&folder).unwrap();
    let program = repository().join("deploy-ansible/inventories/consul/consul.py");
    fs::create_dir_all(&folder).unwrap();
    fs::copy(program, folder.join("consul.py")).unwrap();
    controller.write("consul-groups.ini", GROUPS);
    controller.write("groups.yml", &inventory().to_string());
    controller.write("policy/shop.toml", POLICY);
    controller.write("consul-token.txt", TOKEN);

    let built = controller.play("site", &["-vvv"]).await;
    assert!(!built.text.contains(TOKEN), "the output of a play has the Consul token");
    controller.play("site", &[]).await.assert_unchanged();
    let caller = fleet.guest(CALLER);
    for port in [STOCK, BOOKS] {
        caller.wait_until("a call", &format!("{CURL} --fail http://127.0.0.1:{port}/")).await;
    }
    assert_eq!(consul(fleet.guest(FIRST), "/v1/agent/service/stock").await, stock);
    let books = consul(fleet.guest(FIRST), "/v1/agent/service/books").await;
    assert!(books.contains("ironmesh-proxy"), "{books}");
    roll_back(&fleet, &controller).await;

    // A request that fails shows no token. What a removal that failed has left is repaired.
    let add = ["--limit", "vm1,vm2"];
    let wrong = ["-vvv", "-e", "ironmesh_consul_url=http://127.0.0.1:1"];
    let refused = controller.try_play("add-machines", &[&add[..], &wrong].concat()).await;
    refused.assert_failed("The Consul agent at http://127.0.0.1:1 answers");
    assert!(!refused.text.contains(TOKEN), "the output of a play has the Consul token");
    let maintenance = "/v1/agent/service/maintenance/stock?enable=true&reason=ironmesh";
    consul(fleet.guest(FIRST), &format!("'{maintenance}' --request PUT")).await;
    controller.play("add-machines", &add).await;
    consul(fleet.guest(FIRST), "/v1/agent/health/service/name/stock").await;

    // A host leaves: maintenance first, so no call fails. Only what the collection registered is deregistered.
    for port in [STOCK, BOOKS] {
        let load = Load::start(caller, port, "/").await;
        if port == STOCK {
            controller.play("remove-machine", &["-e", "ironmesh_remove=vm2"]).await;
        }
        load.wait_for_requests(REQUESTS_PER_FAULT).await;
        load.finish().await.assert_undisturbed();
    }
    let left = consul(fleet.guest(FIRST), "/v1/agent/services").await;
    assert!(left.contains("\"rack\"") && !left.contains("books"), "{left}");
    let proxies = fleet.guest(SERVER).run("ironmesh proxy list --output json").await;
    let proxies: Vec<Value> = serde_json::from_str(&proxies).unwrap();
    let states = proxies.iter().filter(|proxy| proxy["state"] == "revoked");
    assert_eq!(states.count(), 1, "{proxies:#?}");
}

/// A policy in etcd that an Envoy rejects is rolled back.
async fn roll_back(fleet: &Fleet, controller: &Controller<'_>) {
    let revision = async || fleet.guest(SERVER).run(REVISION).await;
    let good = revision().await;
    fleet.guest(FIRST).run("mkdir /var/log/ironmesh-agent/folder").await;
    controller.write("policy/log.toml", LOG);
    let short = ["-e", "ironmesh_policy_timeout=5s"];
    controller.try_play("release-policy", &short).await.assert_failed("folder");
    assert_eq!(revision().await, good);
    controller.remove("policy/log.toml");
}
