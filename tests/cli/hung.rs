//! A control plane that is stopped (SIGSTOP) or answers only `/healthz`: every command ends by
//! itself with a clear error.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::thread;

use fs_err as fs;
use rustix::process::Signal;

use crate::server::Server;

const SERVICE: &str = "[[service]]\nname = \"store\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn every_command_exits_4_if_the_control_plane_is_stopped() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", SERVICE);
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

#[test]
fn commands_exit_4_in_3_s_if_only_healthz_answers() {
    let Some(server) = Server::open("") else { return };
    fs::create_dir(server.state()).unwrap();
    let listener = UnixListener::bind(server.state().join("admin.sock")).unwrap();
    thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 12];
            if stream.read_exact(&mut head).is_ok() && head == *b"GET /healthz" {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
            }
            open.push(stream);
        }
    });
    let id = "6b1f2c1e-0b5c-4c62-9b8e-3f5a0f8f7c11";
    let commands: [(&[&str], &str); 5] = [
        (&["status"], "GET /readyz"),
        (&["endpoints"], "GET /v1/endpoints"),
        (&["proxy", "list"], "GET /v1/proxies"),
        (&["cert", "list"], "GET /v1/certificates"),
        (&["proxy", "show", id], "GET /v1/proxies/6b1f2c1e"),
    ];
    for (command, request) in commands {
        let run = server.run(command);
        assert_eq!(run.code, 4, "{command:?}: {run:?}");
        assert!(run.stderr.contains(request), "{command:?}: {run:?}");
        assert!(run.stderr.contains("within 3 s; see its log"), "{command:?}: {run:?}");
    }
}
