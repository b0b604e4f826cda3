//! Local ports that several proxies of a machine declare, or that another program holds.

use std::net::SocketAddr;

use ironmesh_xds_server::simulated::SimulatedClient;
use ironmesh_xds_wire::ResourceType::Listener;

use super::harness::Harness;

/// Two callers, `x` and `y`, with these upstreams.
fn policy(x: &str, y: &str) -> String {
    format!(
        r#"[[service]]
name = "x"
upstreams = [{x}]

[[service]]
name = "y"
upstreams = [{y}]

[[service]]
name = "one"
ports = [{{ name = "web", port = 80, protocol = "http" }}]
"#
    )
}

const ONE: &str = "{ service = \"one\", local_port = 9001 }";

impl Harness {
    /// Connects a proxy of machine 10.0.0.1.
    fn on_one_machine(&self, number: u8, service: &str) -> SimulatedClient {
        let port = 15003 + u16::from(number);
        let mesh_address = SocketAddr::from(([10, 0, 0, 1], port));
        self.connect(&self.join_at(number, mesh_address, &[service]))
    }

    /// The findings with this code, each with its help.
    fn findings_with_code(&self, code: u16) -> Vec<String> {
        let findings = self.feeds.mesh_findings.borrow();
        let of_code = findings.iter().filter(|finding| finding.code.0 == code);
        of_code.map(|one| format!("{one} {}", one.help.clone().unwrap_or_default())).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn local_port_of_two_proxies_of_a_machine_is_reported_with_both() {
    let mut harness = Harness::open(&policy(ONE, ONE));
    let mut first = harness.on_one_machine(1, "x");
    let mut second = harness.on_one_machine(2, "y");
    // A machine of its own.
    let mut other = harness.proxy(3, &["y"]);
    harness.settle(&mut [&mut first, &mut second, &mut other]);
    let found = harness.findings_with_code(412);
    let [finding] = &found[..] else { panic!("{found:?}") };
    for part in ["warning[IM0412]", "10.0.0.1", "127.0.0.1:9001", "default/x", "default/y"] {
        assert!(finding.contains(part), "{part} in {finding}");
    }

    harness.set_policy(&policy(ONE, "{ service = \"one\", local_port = 9002 }"));
    harness.settle(&mut [&mut first, &mut second, &mut other]);
    assert_eq!(harness.findings_with_code(412), Vec::<String>::new());

    harness.set_policy(&policy(ONE, ONE));
    harness.settle(&mut [&mut first, &mut second, &mut other]);
    assert_eq!(harness.findings_with_code(412).len(), 1);
    drop(second);
    harness.pass();
    assert_eq!(harness.findings_with_code(412), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn nacked_upstream_listener_names_policy_line_and_program_search() {
    let mut harness = Harness::open(&policy(ONE, ""));
    let x = harness.proxy(1, &["x"]);
    harness.pass();
    let name = "upstream|9001";
    assert!(x.set().contains(Listener, name));
    x.nack(Listener, name, "cannot bind '127.0.0.1:9001': Address already in use");
    harness.pass();
    harness.pass();
    let found = harness.findings_with_code(413);
    let [finding] = &found[..] else { panic!("{found:?}") };
    for part in [
        "error[IM0413]",
        "127.0.0.1:9001",
        "`default/one` (policy of default/x",
        "Address already in use",
        "p.toml:3:",
        "ss -ltnp 'sport = :9001'",
        "change `local_port` in policy",
    ] {
        assert!(finding.contains(part), "{part} in {finding}");
    }

    // Another port resolves it, without an answer of the proxy.
    harness.set_policy(&policy("{ service = \"one\", local_port = 9002 }", ""));
    harness.pass();
    assert_eq!(harness.findings_with_code(413), Vec::<String>::new());
}
