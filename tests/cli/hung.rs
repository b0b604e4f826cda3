//! A control plane that is stopped (SIGSTOP): every command ends by itself and says what is wrong.

use rustix::process::Signal;

use crate::server::Server;

const SERVICE: &str = "[[service]]\nname = \"store\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn stopped_control_plane_makes_every_command_exit_4() {
    let Some(server) = Server::open("") else { return };
    server.place.write("policy/a.toml", SERVICE);
    let child = server.start().await;
    server.ready().await;
    child.signal(Signal::STOP);
    let commands: [&[&str]; 7] = [
        &["status"],
        &["endpoints"],
        &["proxy", "list"],
        &["policy", "plan", "policy"],
        &["policy", "explain", "--from", "default/store", "--to", "default/store"],
        &["policy", "rollback", "0123abcd"],
        &[
            "proxy",
            "bootstrap",
            "--service",
            "default/store",
            "--address",
            "10.0.0.9",
            "--out",
            "out",
        ],
    ];
    for command in commands {
        let run = server.run(command);
        assert_eq!(run.code, 4, "{command:?}: {run:?}");
        assert!(run.stderr.contains("has not answered /healthz for 3 s"), "{command:?}: {run:?}");
    }
    child.signal(Signal::CONT);
    let run = server.run(&["status"]);
    assert_eq!(run.code, 0, "{run:?}");
}
