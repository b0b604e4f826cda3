//! `ironmesh serve` under signals, and with a log that cannot be written.

use std::io::pipe;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use fs_err as fs;
use ironmesh_tests::{eventually, get_once};
use rustix::process::Signal;
use tokio::process::Command;

use crate::server::Server;

const POLICY: &str =
    "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n";

fn log(server: &Server) -> String {
    fs::read_to_string(server.workspace.path().join("serve.log")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_without_writable_log_follows_policy_and_stops_cleanly() {
    let (reader, closed_pipe) = pipe().unwrap();
    drop(reader);
    let full = fs::File::create("/dev/full").unwrap().into_parts().0;
    for (what, stderr) in [("/dev/full", Stdio::from(full)), ("a pipe", Stdio::from(closed_pipe))] {
        let Some(server) = Server::open("") else { return };
        server.workspace.write("policy/a.toml", POLICY);
        let command = server.workspace.command(&["serve", "--config", "ironmesh.toml"]);
        let mut command = Command::from(command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).kill_on_drop(true);
        let mut serve = command.spawn().unwrap();
        let address = server.loopback.socket(1, 15014);
        let revision = async || {
            let answer = get_once(address, "/readyz", &[]).await?;
            anyhow::ensure!(answer.status == 200, "{what}: {}", answer.text());
            anyhow::Ok(answer.json()["policy"]["revision"].clone())
        };
        let first = eventually("readiness", revision).await;
        // The control plane logs the next revision, too.
        server.workspace.write("policy/a.toml", &POLICY.replace("store", "till"));
        eventually("the next revision", async || {
            let next = revision().await?;
            anyhow::ensure!(next != first, "{what}: {next}");
            Ok(())
        })
        .await;
        let pid = rustix::process::Pid::from_raw(serve.id().unwrap().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        let status =
            eventually("the end", async || serve.try_wait().unwrap().ok_or("it runs")).await;
        assert!(status.success(), "{what}: {status}");
    }
}

#[tokio::test]
async fn unhandled_signals_are_logged_and_ignored() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", POLICY);
    let mut child = server.start().await;
    server.ready().await;
    for (signal, name) in [(Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2")] {
        child.signal(signal);
        eventually("a line of the log", async || {
            let log = log(&server);
            let is_logged = |line: &str| line.contains("signal ignored") && line.contains(name);
            if log.lines().any(is_logged) { Ok(()) } else { Err(log) }
        })
        .await;
        child.assert_running();
    }
    assert_eq!(server.readyz().await.status, 200);
    assert!(child.terminate().await.success());
    assert!(log(&server).contains("SIGTERM"), "{}", log(&server));
}

#[tokio::test]
async fn sighup_reloads_what_can_change_and_names_the_rest() {
    let Some(server) = Server::open("settle = \"10ms\"\n") else { return };
    let caller = "[[service]]\nname = \"buyer\"\n";
    server.workspace.write("policy/a.toml", &format!("{POLICY}{caller}"));
    let mut child = server.start().await;
    server.ready().await;
    let call = ["policy", "explain", "--from", "default/buyer", "--to", "default/store"];
    assert_eq!(server.run(&call).code, 1, "strict denies");
    let settings = server.workspace.path().join("ironmesh.toml");
    let first = fs::read_to_string(&settings).unwrap();
    let logged = async |words: &'static str| {
        eventually("a line of the log", async || {
            let log = log(&server);
            log.lines().find(|line| line.contains(words)).map(str::to_owned).ok_or(log)
        })
        .await
    };

    fs::write(&settings, format!("mode = \"permissive\"\nmesh = \"other\"\n{first}")).unwrap();
    child.signal(Signal::HUP);
    let line = logged("settings reloaded, except").await;
    assert!(line.contains("changed=\"mode\"") && line.contains("needs_restart=\"mesh\""), "{line}");
    eventually("the new mode", async || match server.run(&call) {
        run if run.code == 0 => Ok(()),
        run => Err(format!("{run:?}")),
    })
    .await;

    fs::write(&settings, "mode = 1\n").unwrap();
    child.signal(Signal::HUP);
    let line = logged("reload failed").await;
    assert!(line.contains("IM0104") || line.contains("ironmesh.toml:1:"), "{line}");
    child.assert_running();
    fs::write(&settings, "").unwrap();
    child.signal(Signal::HUP);
    logged("is missing or empty").await;
    fs::write(&settings, &first).unwrap();
    assert_eq!(server.run(&call).code, 0, "an invalid file changes nothing");
    assert!(child.terminate().await.success());
}

#[tokio::test]
async fn sigquit_stops_serve_cleanly() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", POLICY);
    let mut child = server.start().await;
    server.ready().await;
    child.signal(Signal::QUIT);
    assert!(child.wait().await.success());
    let log = log(&server);
    let is_stop = |line: &str| line.contains("control plane stopping") && line.contains("SIGQUIT");
    assert!(log.lines().any(is_stop), "{log}");
}

// Tasks end in any order, so one run shows little.
#[tokio::test]
async fn clean_stop_logs_no_error_also_before_readiness() {
    for policy in [POLICY, "[[service]]\nname = 1\n"] {
        let Some(server) = Server::open("") else { return };
        server.workspace.write("policy/a.toml", policy);
        for _ in 0..6 {
            let mut child = server.start().await;
            if policy == POLICY {
                server.ready().await;
            }
            let status = child.terminate().await;
            let log = log(&server);
            assert!(status.success(), "{status}: {log}");
            // A signal during the start ends it with words of its own.
            let (_, last) = log.rsplit_once("control plane stop").unwrap();
            assert!(!log.contains("channel closed") && !last.contains("ERROR"), "{log}");
        }
    }
}

/// Signs of life follow the heartbeat of the reconciler, which continues while nothing changes.
#[tokio::test(flavor = "multi_thread")]
async fn idle_serve_gives_signs_of_life() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", POLICY);
    let socket = server.workspace.path().join("notify");
    let systemd = UnixDatagram::bind(&socket).unwrap();
    systemd.set_nonblocking(true).unwrap();
    let command = server.workspace.command(&["serve", "--config", "ironmesh.toml"]);
    let mut command = Command::from(command);
    // Half of it is the interval of the signs.
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "11000000");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let _serve = command.spawn().unwrap();
    let mut signs = 0;
    eventually("three signs of life", async || {
        let mut message = [0; 256];
        while let Ok(length) = systemd.recv(&mut message) {
            signs += u32::from(&message[..length] == b"WATCHDOG=1");
        }
        if signs < 3 { Err(signs) } else { Ok(()) }
    })
    .await;
}
