//! docs/guides/health-and-upstreams.md, word by word: each block runs as it is printed.

use std::os::unix::fs::PermissionsExt;

use fs_err as fs;
use ironmesh_tests::guide::{GuideBlock, guide_blocks, variables_and_steps};
use ironmesh_tests::{App, Mesh, Programs, eventually};
use tokio::process::Command;

use super::SHORT;
use super::joined::Machine;

/// The mesh before the changes of the guide.
const POLICY: [(&str, &str); 3] = [
    (
        "bookstore.toml",
        r#"
[[service]]
name = "bookstore"
namespace = "shop"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]
"#,
    ),
    ("till.toml", "[[service]]\nname = \"till\"\nnamespace = \"shop\"\n"),
    (
        "access.toml",
        r#"
[[http_route_group]]
name = "all"
namespace = "shop"
matches = [{ name = "all" }]

[[traffic_target]]
name = "bookstore"
namespace = "shop"
destination = { name = "bookstore" }
sources = [{ name = "till" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#,
    ),
];

/// The guide, in docs/guides.
const GUIDE: &str = "health-and-upstreams";

const BOOKSTORES: [u8; 2] = [21, 22];
const TILL: u8 = 11;

/// The hosts of the guide.
struct Hosts {
    mesh: Mesh,
    bookstore: Machine,
    till: Machine,
    variables: Vec<(&'static str, String)>,
}

impl Hosts {
    /// Writes a program `ironmesh` for a host, which finds its settings where the packages put them.
    fn prepare(&self, programs: &Programs) {
        let program = programs.ironmesh.display();
        let settings = self.mesh.folder().join("ironmesh.toml");
        let control_plane = format!("IRONMESH_CONFIG={} exec {program} \"$@\"", settings.display());
        let on = |machine: &Machine| {
            format!("exec {program} \"$@\" --config {}", machine.path("agent.toml").display())
        };
        let hosts = [
            ("control-plane", control_plane),
            ("bookstore", on(&self.bookstore)),
            ("till", on(&self.till)),
        ];
        for (host, command) in hosts {
            let folder = self.mesh.folder().join("bin").join(host);
            fs::create_dir_all(&folder).unwrap();
            let path = folder.join("ironmesh");
            fs::write(&path, format!("#!/bin/sh\n{command}\n")).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
    }

    /// Runs a block as the guide's reader does, and returns what it prints.
    async fn run(&self, block: &GuideBlock) -> String {
        let folder = self.mesh.folder().join("bin").join(&block.place);
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["-ec", &block.text]).current_dir(self.mesh.folder());
        command.env("PATH", path).envs(self.variables.iter().cloned()).kill_on_drop(true);
        let output = command.output().await.unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        // `agent status` exits with 1 if anything is wrong.
        assert!(output.status.success(), "{}{printed}{errors}", block.text);
        printed
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn guide_adds_a_health_check_and_an_upstream() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &POLICY).await;
    let mut applications = Vec::new();
    let mut machines = Vec::new();
    for host in BOOKSTORES {
        applications.push(App::http1("books", mesh.loopback().socket(host, 8080)).await);
        let services = ["shop/bookstore"];
        machines.push(Machine::start(&mesh, &programs, host, &services, ("", SHORT)).await);
    }
    let till = Machine::start(&mesh, &programs, TILL, &["shop/till"], ("", SHORT)).await;
    let variables = vec![
        ("POLICY", mesh.folder().join("policy").display().to_string()),
        ("NEW", mesh.folder().join("new").display().to_string()),
        ("LOCAL", mesh.loopback().host(TILL).to_string()),
    ];
    let hosts = Hosts { mesh, bookstore: machines.remove(0), till, variables };
    hosts.prepare(&programs);
    let (defined, steps) = variables_and_steps(guide_blocks(GUIDE));
    assert_eq!(defined, hosts.variables.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let places: Vec<_> = steps.iter().map(|block| &*block.place).collect();
    let expected = ["control-plane", "bookstore", "control-plane", "control-plane", "till"];
    assert_eq!(places, expected);

    let plan = hosts.run(&steps[0]).await;
    assert!(!plan.contains("will be updated"), "{plan}");
    eventually("the probes of the new health check", async || {
        let status = hosts.bookstore.agent_status(&hosts.mesh).await;
        let state = status["probes"][0]["state"].as_str();
        if state == Some("healthy") { Ok(()) } else { Err(format!("{status:#}")) }
    })
    .await;
    let status = hosts.run(&steps[1]).await;
    assert!(status.contains("probe        shop/bookstore port 80 http: healthy since"), "{status}");
    eventually("the health of both", async || {
        let shown = hosts.run(&steps[2]).await;
        if shown.matches(" healthy").count() == 2 { Ok(()) } else { Err(shown) }
    })
    .await;

    let plan = hosts.run(&steps[3]).await;
    assert!(plan.contains("no connections end"), "{plan}");
    let answer = hosts.run(&steps[4]).await;
    assert!(answer.contains("books"), "{answer}");
    drop(machines);
}
