//! docs/guides/join-a-machine.md, word by word: each block runs on its host as it is printed.

use ironmesh_tests::guide::{GuideBlock, guide_blocks, variables_and_steps};

use crate::bookstore::{self, BUYER, CONTROL_PLANE, STORE};
use crate::fleet::Fleet;

/// The guide, in docs/guides.
const GUIDE: &str = "join-a-machine";

/// The user of agent and Envoy.
pub(crate) const USER: &str = "ironmesh-proxy";

/// The number of commands before the first request.
const COMMANDS: usize = 4;

/// The variables of the guide, as it defines them.
const VARIABLES: [&str; 4] = ["CONTROL_PLANE", "ADDRESS", "SERVICE", "CA_HASH"];

/// Guests have no SSH: this keeps what the test then carries to the other guest.
const SSH: &str = "#!/bin/sh
echo \"$1\" >/run/ssh.host
shift
echo \"$*\" >/run/ssh.command
cat >/run/ssh.input
";

/// A machine that follows the guide.
#[derive(Debug)]
pub(crate) struct Reader<'fleet> {
    fleet: &'fleet Fleet,
    number: u8,
    service: String,
    ca_hash: String,
    steps: Vec<GuideBlock>,
}

impl<'fleet> Reader<'fleet> {
    /// A machine of a fleet with the package, which is in the folder of the reader.
    pub(crate) async fn new(fleet: &'fleet Fleet, number: u8, service: &str) -> Self {
        let control_plane = fleet.guest(CONTROL_PLANE);
        control_plane.write("/usr/local/bin/ssh", SSH).await;
        control_plane.run("chmod 755 /usr/local/bin/ssh").await;
        let (variables, steps) = variables_and_steps(guide_blocks(GUIDE));
        assert_eq!(variables, VARIABLES);
        Self { fleet, number, service: service.to_owned(), ca_hash: String::new(), steps }
    }

    /// Follows the guide to the start of the units; before that, adds lines to the settings.
    pub(crate) async fn join(&mut self, more_settings: &str) {
        self.install().await;
        let more = format!("cat >>/etc/ironmesh/agent.toml <<'END'\n{more_settings}END");
        self.fleet.guest(self.number).run(&more).await;
        self.start().await;
    }

    /// Follows the guide until the units are installed.
    async fn install(&mut self) {
        for step in self.steps.drain(..COMMANDS - 1).collect::<Vec<_>>() {
            self.run(&step).await;
        }
    }

    /// Starts the units.
    async fn start(&mut self) {
        let step = self.steps.remove(0);
        self.run(&step).await;
    }

    /// Brings a new token to the machine.
    async fn repeat_first_step(&mut self) {
        let (_, steps) = variables_and_steps(guide_blocks(GUIDE));
        self.run(&steps[0]).await;
    }

    /// Follows the rest of the guide. Each block is repeated until it succeeds, as its reader does.
    async fn check(&mut self) -> Vec<(String, String)> {
        let mut outputs = Vec::new();
        for step in std::mem::take(&mut self.steps) {
            let host = self.host(&step);
            let output = host.wait_until(&step.text, &self.script(&step)).await;
            outputs.push((step.place, output));
        }
        outputs
    }

    async fn run(&mut self, step: &GuideBlock) {
        let output = self.host(step).run(&self.script(step)).await;
        if step.place != "control-plane" {
            return;
        }
        let hash = output.split_once("--ca-hash ").unwrap_or_else(|| panic!("no hash: {output}"));
        hash.1.split_whitespace().next().unwrap().clone_into(&mut self.ca_hash);
        let (control_plane, machine) = (self.host(step), self.fleet.guest(self.number));
        let host = control_plane.run("cat /run/ssh.host").await;
        assert_eq!(host, format!("root@{}", machine.address()));
        let command = control_plane.run("cat /run/ssh.command").await;
        let input = control_plane.run("cat /run/ssh.input; rm /run/ssh.*").await;
        machine.run_with_input(&command, &format!("{input}\n")).await;
    }

    /// A block with its variables, in the folder of the reader.
    fn script(&self, step: &GuideBlock) -> String {
        let address = self.fleet.guest(self.number).address().to_string();
        let values = ["vm1", &address, &self.service, &self.ca_hash];
        let variables = VARIABLES.iter().zip(values);
        let lines = variables.map(|(name, value)| format!("{name}={value}\n"));
        format!("cd /root\nexec 2>&1\n{}{}", lines.collect::<String>(), step.text)
    }

    fn host(&self, step: &GuideBlock) -> &'fleet crate::guest::Guest {
        match &*step.place {
            "control-plane" => self.fleet.guest(CONTROL_PLANE),
            "machine" | "caller" => self.fleet.guest(self.number),
            place => panic!("no host for {place}"),
        }
    }
}

/// The number of commands in a block: lines that neither continue one nor are its input.
fn commands(text: &str) -> usize {
    let mut count = 0;
    let mut lines = text.trim().lines();
    while let Some(line) = lines.next() {
        count += 1;
        let mut line = line;
        while line.ends_with(['|', '\\']) {
            line = lines.next().unwrap();
        }
        if let Some((_, end)) = line.split_once("<<") {
            lines.by_ref().find(|line| *line == end).unwrap();
        }
    }
    count
}

/// Two machines follow the guide; the second one sends the first request of both.
#[tokio::test(flavor = "multi_thread")]
async fn guide_leads_from_a_bare_machine_to_the_first_request() {
    let (_, steps) = variables_and_steps(guide_blocks(GUIDE));
    for step in &steps[..COMMANDS] {
        assert_eq!(commands(&step.text), 1, "{}", step.text);
    }
    let Some(fleet) = bookstore::boot(3).await else { return };
    bookstore::grant(&fleet).await;
    let mut store = Reader::new(&fleet, STORE, "shop/bookstore").await;
    store.join("").await;
    let mut buyer = Reader::new(&fleet, BUYER, "shop/bookbuyer").await;
    buyer.join("").await;
    // A token is the root user's alone.
    let token = fleet.guest(BUYER).run("stat --format '%U %a' /etc/ironmesh/join-token").await;
    assert_eq!(token, "root 600");

    let outputs = buyer.check().await;
    let places: Vec<_> = outputs.iter().map(|(place, _)| &**place).collect();
    assert_eq!(places, ["machine", "machine", "control-plane", "caller"]);
    assert!(outputs[2].1.contains("SYNCED"), "{}", outputs[2].1);
    assert!(outputs[3].1.contains("The Name of the Rose"), "{}", outputs[3].1);

    // The units run as their user, which alone reads their folder; systemd ignores none of their lines.
    let machine = fleet.guest(BUYER);
    let owners = machine.run("ps -o user= -C ironmesh,envoy | sort -u").await;
    assert_eq!(owners, USER);
    let readable =
        machine.try_run("setpriv --reuid nobody --clear-groups ls /var/lib/ironmesh-agent").await;
    assert!(!readable.status.success(), "{readable:?}");
    let ignored =
        "journalctl --no-pager --identifier systemd | grep ironmesh | grep --ignore-case ignoring";
    let ignored = machine.try_run(ignored).await;
    assert_eq!(ignored.status.code(), Some(1), "{ignored:?}");
    // Without a token the agent starts all the same.
    machine.run("systemctl restart ironmesh-agent").await;
    // A reload is a hot restart, which needs shared memory and sockets of its own.
    machine.run("systemctl reload ironmesh-envoy").await;

    // The machine leaves for good, and joins again as the guide says.
    machine.run(&format!("runuser -u {USER} -- ironmesh agent leave")).await;
    let status = format!("runuser -u {USER} -- ironmesh agent status");
    let left = machine.try_run(&status).await;
    assert!(!left.status.success(), "{left:?}");
    let unit = machine.try_run("systemctl is-active ironmesh-envoy").await;
    assert_eq!(unit.stdout, b"inactive\n", "{unit:?}");
    machine.run("rm -r /var/lib/ironmesh-agent/proxy").await;
    buyer.repeat_first_step().await;
    machine.run("systemctl restart ironmesh-agent ironmesh-envoy").await;
    machine.wait_until("the machine to be back", &status).await;
}

/// Without a token, the units count as started, so that the boot ends; with one, the machine enrolls.
#[tokio::test(flavor = "multi_thread")]
async fn machine_without_a_token_boots_and_enrolls_when_it_has_one() {
    let Some(fleet) = bookstore::boot(2).await else { return };
    let machine = fleet.guest(STORE);
    let mut store = Reader::new(&fleet, STORE, "shop/bookstore").await;
    store.install().await;
    machine.run("mv /etc/ironmesh/join-token /root/join-token").await;
    store.start().await;
    machine.reboot().await;
    let status = format!("runuser -u {USER} -- ironmesh agent status");
    let waits = format!("{status} | grep 'waits for a new token'");
    machine.wait_until("the machine to wait", &waits).await;
    machine.run("systemctl is-active ironmesh-agent ironmesh-envoy").await;
    machine.run("mv /root/join-token /etc/ironmesh/join-token").await;
    machine.run("systemctl restart ironmesh-agent").await;
    machine.wait_until("the machine to join", &status).await;
}
