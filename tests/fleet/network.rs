//! The network of a fleet: a bridge in a network namespace, and one namespace for each guest.

use std::net::Ipv4Addr;

use tokio::process::Command;

use crate::leftovers::PREFIX;

/// The network of a fleet. [`crate::leftovers::remove`] removes it.
#[derive(Debug)]
pub(crate) struct Network {
    /// The start of the names of its namespaces.
    prefix: String,
}

const CREATE: &str = r#"
ip netns add "$1-lan"
ip -n "$1-lan" link set lo up
ip -n "$1-lan" link add br0 type bridge
ip -n "$1-lan" addr add 10.77.0.1/24 dev br0
ip -n "$1-lan" link set br0 up
"#;

/// A machine that was off has no rules and no connections: its namespace is a new one.
const PLUG_IN: &str = r#"
lan=$1-lan vm=$1-$2 address=$3
ip -n "$lan" link del "$2" 2>/dev/null || true
ip netns del "$vm" 2>/dev/null || true
ip netns add "$vm"
ip -n "$vm" link set lo up
ip link add "$2" netns "$lan" type veth peer name host0 address "$5" netns "$vm"
ip -n "$lan" link set "$2" master br0
ip -n "$vm" addr add "$address/24" dev host0
ip -n "$vm" link set host0 up
ip -n "$vm" route add default via 10.77.0.1
ip -n "$lan" link set "$2" "$4"
"#;

impl Network {
    /// Creates the bridge.
    pub(crate) async fn create(id: &str) -> Self {
        let network = Self { prefix: format!("{PREFIX}{id}") };
        shell(CREATE, &[&network.prefix]).await;
        network
    }

    /// Connects a guest that is off, or creates its interface without a link if `is_cut`.
    pub(crate) async fn plug_in(&self, name: &str, address: Ipv4Addr, is_cut: bool) {
        // A machine keeps its interface, so its neighbors need not learn a new address of it.
        let [a, b, c, d] = address.octets();
        let mac = format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}");
        let address = address.to_string();
        shell(PLUG_IN, &[&self.prefix, name, &address, link_state(is_cut), &mac]).await;
    }

    /// Cuts the link of a guest, or repairs it.
    pub(crate) async fn set_cut(&self, name: &str, is_cut: bool) {
        let script = r#"ip -n "$1-lan" link set "$2" "$3""#;
        shell(script, &[&self.prefix, name, link_state(is_cut)]).await;
    }

    /// The name of the namespace with the bridge.
    pub(crate) fn lan(&self) -> String {
        format!("{}-lan", self.prefix)
    }

    /// The path of a guest's namespace.
    pub(crate) fn namespace(&self, name: &str) -> String {
        format!("/run/netns/{}-{name}", self.prefix)
    }
}

fn link_state(is_cut: bool) -> &'static str {
    if is_cut { "down" } else { "up" }
}

async fn shell(script: &str, arguments: &[&str]) {
    let mut command = Command::new("sh");
    let output = command.args(["-euc", script, "sh"]).args(arguments).output().await.unwrap();
    assert!(
        output.status.success(),
        "{script}\n{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
