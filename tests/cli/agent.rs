//! `ironmesh agent run` and `ironmesh agent status`: the agent enrolls the machine by its settings, and tells what is
//! wrong.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use fs_err as fs;
use ironmesh_tests::eventually;
use ironmesh_tests::process::Child;
use serde_json::{Value, json};

use crate::command::{Run, finish};
use crate::enrollment::{EnrollmentServer, Invitation};

/// A machine whose agent has its settings in `machine/agent.toml`.
struct Machine<'a> {
    running: &'a EnrollmentServer,
}

impl<'a> Machine<'a> {
    /// Writes the settings, with further lines.
    fn new(running: &'a EnrollmentServer, invitation: &Invitation, more: &str) -> Self {
        let (address, hash) = (running.address(), &invitation.ca_hash);
        let settings = format!(
            "control_plane = [\"https://{address}\"]\nca_hash = [\"{hash}\"]\ntoken_file = \"token\"\n\
             folder = \"proxy\"\n{more}"
        );
        running.server.workspace.write("machine/agent.toml", &settings);
        Self { running }
    }

    fn give(&self, token: &str) {
        self.running.server.workspace.write("machine/token", token);
    }

    fn path(&self, file: &str) -> PathBuf {
        self.running.out("machine").join(file)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let config = ["--config", "machine/agent.toml"];
        self.running.server.workspace.command(&[arguments, &config].concat())
    }

    fn start(&self) -> Child {
        let mut command = tokio::process::Command::from(self.command(&["agent", "run"]));
        Child::start("the agent", &mut command, &self.path("agent.log"))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("agent.log")).unwrap()
    }

    fn status(&self) -> Run {
        finish(&mut self.command(&["agent", "status", "--output", "json"]))
    }

    /// The status, as soon as the pointer into it has this value.
    async fn status_with(&self, pointer: &str, value: &Value) -> Value {
        eventually("the status of the machine", async || {
            let run = self.status();
            let status: Value =
                serde_json::from_str(&run.stdout).map_err(|_| format!("{run:?}"))?;
            if status.pointer(pointer) == Some(value) { Ok(status) } else { Err(run.stdout) }
        })
        .await
    }
}

/// The problems of a status, as one text.
fn problems(status: &Value) -> String {
    status["problems"].to_string()
}

#[tokio::test]
async fn agent_enrolls_the_machine_and_tells_its_status() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let invitation = running.invite(&[]);
    let machine = Machine::new(&running, &invitation, "upstreams = [\"buyer=8000\"]\n");
    let before = machine.status();
    assert_eq!(before.code, 1, "{before:?}");
    assert!(before.stdout.contains("the machine is not enrolled"), "{before:?}");
    machine.give(&invitation.token);
    let mut agent = machine.start();
    let status = machine.status_with("/agent/phase", &json!("enrolled")).await;
    assert_eq!(status["proxy"]["service"], "default/store");
    assert!(status["agent"]["errors"].as_array().unwrap().is_empty(), "{status}");
    // Envoy does not run, and that is all that is wrong.
    assert_eq!(status["problems"].as_array().unwrap().len(), 1, "{status}");
    assert!(problems(&status).contains("Envoy does not run"), "{status}");
    assert!(fs::read_to_string(machine.path("proxy/envoy.yaml")).unwrap().contains("8000"));
    let socket = fs::metadata(machine.path("proxy.agent.sock")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);

    // One agent for each proxy.
    let second = finish(&mut machine.command(&["agent", "run"]));
    assert_eq!(second.code, 1, "{second:?}");
    let first = format!("process {}", agent.id().unwrap());
    assert!(second.stderr.contains(&first), "{}", second.stderr);

    // It is killed, and the next one goes on without the control plane's help.
    agent.kill_hard().await;
    let dead = machine.status();
    assert!(dead.stdout.contains("the agent does not run"), "{dead:?}");
    let mut agent = machine.start();
    machine.status_with("/agent/phase", &json!("enrolled")).await;
    assert!(agent.terminate().await.success());
}

#[tokio::test]
async fn rejected_token_waits_for_another_and_raises_no_alarm() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let invitation = running.invite(&[]);
    let machine = Machine::new(&running, &invitation, "");
    let _agent = machine.start();
    let status = machine.status_with("/agent/phase", &json!("waiting_for_token")).await;
    assert!(problems(&status).contains("waits for a new token"), "{status}");
    let revoked = running.server.run(&["proxy", "token", "revoke", &invitation.id]);
    assert_eq!(revoked.code, 0, "{revoked:?}");
    machine.give(&invitation.token);
    eventually("the rejection", async || {
        let text = machine.log();
        if text.contains("token is unknown, expired or already used") { Ok(()) } else { Err(text) }
    })
    .await;
    machine.give(&running.invite(&[]).token);
    let status = machine.status_with("/agent/phase", &json!("enrolled")).await;
    assert_eq!(status["agent"]["is_failing"], false, "{status}");
}

#[tokio::test]
async fn agent_refuses_what_only_an_operator_can_correct() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let invitation = running.invite(&[]);
    let machine = Machine::new(&running, &invitation, "");
    for (settings, words) in [
        ("folder = \"proxy\"\nfoldr = \"x\"\n", ["line 2", "unknown field `foldr`"]),
        ("folder = \"proxy\"\n", ["is not enrolled", "`control_plane`"]),
        ("upstreams = [\"a=1\", \"b=1\"]\n", ["agent.toml", "local port 1"]),
    ] {
        fs::write(machine.path("agent.toml"), settings).unwrap();
        let run = finish(&mut machine.command(&["agent", "run"]));
        assert_eq!(run.code, 1, "{run:?}");
        for part in words {
            assert!(run.stderr.contains(part), "no {part:?} in {}", run.stderr);
        }
    }

    // The wrong CA hash: a man in the middle, or another mesh. Nothing is sent, and the agent says so.
    let settings = format!(
        "control_plane = [\"https://{}\"]\nca_hash = [\"sha256:{}\"]\ntoken_file = \"token\"\nfolder = \"proxy\"\n",
        running.address(),
        "0".repeat(64)
    );
    fs::write(machine.path("agent.toml"), &settings).unwrap();
    machine.give(&invitation.token);
    let agent = machine.start();
    let status = machine.status_with("/agent/is_failing", &json!(true)).await;
    assert!(problems(&status).contains("nothing was sent"), "{status}");
    assert_eq!(running.token_state(&invitation.id), "unused");
    drop(agent);

    // The folder of another mesh.
    let joined = running.join(&invitation, "machine/proxy", &[]);
    assert_eq!(joined.code, 0, "{joined:?}");
    let run = finish(&mut machine.command(&["agent", "run"]));
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("belongs to another mesh"), "{}", run.stderr);
}

#[tokio::test]
async fn revoked_machine_says_so() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let invitation = running.invite(&[]);
    let machine = Machine::new(&running, &invitation, "name = \"store-1\"\n");
    machine.give(&invitation.token);
    let agent = machine.start();
    machine.status_with("/agent/phase", &json!("enrolled")).await;
    drop(agent);
    let revoked = running.server.run(&["proxy", "revoke", "store-1"]);
    assert_eq!(revoked.code, 0, "{revoked:?}");
    // Due at once: the certificate looks old.
    let enrollment = machine.path("proxy/enrollment.json");
    let mut state: Value = serde_json::from_str(&fs::read_to_string(&enrollment).unwrap()).unwrap();
    state["issued_at"] = json!("2020-01-01T00:00:00Z");
    fs::write(&enrollment, state.to_string()).unwrap();
    let _agent = machine.start();
    let status = machine.status_with("/agent/phase", &json!("revoked")).await;
    assert!(problems(&status).contains("the proxy is revoked"), "{status}");
}
