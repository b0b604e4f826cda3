//! The machines' network: a bridge in a network namespace, and one namespace for each machine.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ironmesh_tests::Loopback;
use ironmesh_tests::process::Launcher;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A place in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Site {
    /// A machine with a member of etcd and a control plane, 0 to 2.
    Machine(u8),
    /// The machine of all proxies, operators and applications.
    Proxies,
}

/// All sites.
pub(crate) const SITES: [Site; 4] =
    [Site::Machine(0), Site::Machine(1), Site::Machine(2), Site::Proxies];

impl Site {
    fn name(self) -> String {
        match self {
            Self::Machine(number) => format!("m{number}"),
            Self::Proxies => "proxies".to_owned(),
        }
    }

    /// The addresses of the site. Its own connections come from the first one.
    fn addresses(self) -> Vec<String> {
        match self {
            // etcd accepts a certificate of a member from the member's address only.
            Self::Machine(number) => {
                vec![format!("10.77.9.{}", number + 1), format!("10.77.{number}.1")]
            }
            Self::Proxies => vec!["10.77.8.1".to_owned()],
        }
    }
}

/// The address of the control plane of a machine.
pub(crate) fn of_control_plane(machine: u8) -> IpAddr {
    IpAddr::from([10, 77, machine, 1])
}

/// The network of the proxies, which are all at their site.
pub(crate) fn of_proxies() -> Loopback {
    Loopback::in_namespaces([127, 77, 0])
}

/// The network of the members of etcd.
pub(crate) fn of_etcd() -> Loopback {
    Loopback::in_namespaces([10, 77, 9])
}

/// The network. Dropping it removes the namespaces.
#[derive(Debug)]
pub(crate) struct Network {
    /// The start of the names of the namespaces.
    prefix: String,
}

impl Network {
    /// Creates the namespaces.
    pub(crate) fn create() -> Self {
        remove_those_of_ended_tests();
        let network = Self { prefix: format!("{PREFIX}{}", std::process::id()) };
        let lan = format!("{}-lan", network.prefix);
        shell(&format!(
            "ip netns add {lan}\nip -n {lan} link set lo up\nip -n {lan} link add br0 type bridge\n\
             ip -n {lan} link set br0 up\n"
        ));
        for site in SITES {
            let (name, namespace) = (site.name(), network.name(site));
            let mut script = format!(
                "ip netns add {namespace}\nip -n {namespace} link set lo up\n\
                 ip link add {name} netns {lan} type veth peer name host0 netns {namespace}\n\
                 ip -n {lan} link set {name} master br0\nip -n {lan} link set {name} up\n"
            );
            for address in site.addresses() {
                writeln!(script, "ip -n {namespace} addr add {address}/16 dev host0").unwrap();
            }
            writeln!(script, "ip -n {namespace} link set host0 up").unwrap();
            shell(&script);
        }
        network
    }

    fn name(&self, site: Site) -> String {
        format!("{}-{}", self.prefix, site.name())
    }

    fn path(&self, site: Site) -> PathBuf {
        Path::new("/run/netns").join(self.name(site))
    }

    /// How to start a program at a site.
    pub(crate) fn launcher(&self, site: Site) -> Launcher {
        Launcher::in_namespace(&self.path(site))
    }

    /// Moves this thread to a site: its sockets and the processes that it starts are there.
    pub(crate) fn enter(&self, site: Site) -> impl Fn() + Send + Sync + Clone + use<> {
        let path = self.path(site);
        move || {
            let namespace = fs_err::File::open(&path).unwrap();
            move_into_link_name_space(
                std::os::fd::AsFd::as_fd(&namespace),
                Some(LinkNameSpaceType::Network),
            )
            .unwrap();
        }
    }

    /// Drops all packets from each first site to the second one, and no others.
    pub(crate) fn cut(&self, cuts: &[(Site, Site)]) {
        for site in SITES {
            // One transaction: there is no moment without rules.
            let mut rules = "table inet cuts\ndelete table inet cuts\ntable inet cuts {\n\
                chain input { type filter hook input priority 0;\n"
                .to_owned();
            for (from, _) in cuts.iter().filter(|(_, to)| *to == site) {
                writeln!(rules, "ip saddr {{ {} }} drop", from.addresses().join(", ")).unwrap();
            }
            rules.push_str("}\n}\n");
            let mut command = self.launcher(site).command(Path::new("nft"));
            let mut nft =
                command.as_std_mut().args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
            nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
            assert!(nft.wait().unwrap().success(), "nft rejects:\n{rules}");
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let names = SITES.map(|site| self.name(site)).into_iter();
        for name in names.chain([format!("{}-lan", self.prefix)]) {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}

/// A test that was killed leaves its namespaces, whose processes have ended with it.
fn remove_those_of_ended_tests() {
    for entry in fs_err::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let test = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
        let Some((Ok(test), _)) = test.map(|(test, site)| (test.parse::<u32>(), site)) else {
            continue;
        };
        if !Path::new(&format!("/proc/{test}")).exists() {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}

/// The start of the names of all namespaces of this suite, before the id of the process.
const PREFIX: &str = "ironmesh-chaos-";

fn shell(script: &str) {
    let output = Command::new("sh").args(["-euc", script]).output().unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
}
