//! A state folder whose path is too long for the admin socket in it.

use crate::command::Workspace;

#[test]
fn overlong_socket_path_is_reported_with_length_and_limit() {
    let Some(workspace) = Workspace::open() else { return };
    let name = "s".repeat(120);
    workspace.write("ironmesh.toml", &format!("state = \"{name}\"\npolicy = \"policy\"\n"));
    workspace.write("policy/a.toml", "[[service]]\nname = \"store\"\n");
    let socket = workspace.path().join(&name).join("admin.sock");
    for command in [
        &["serve"][..],
        &["status"],
        &["proxy", "list"],
        &["endpoints"],
        &["proxy", "bootstrap", "--service", "store", "--address", "127.0.0.1", "--out", "proxy"],
    ] {
        let run = workspace.run(&[command, &["--config", "ironmesh.toml"]].concat());
        assert_eq!((run.code, &*run.stdout), (1, ""), "{command:?} {run:?}");
        for part in [
            format!(
                "the path of a socket has {} bytes, and Linux allows 107",
                socket.as_os_str().len()
            ),
            socket.display().to_string(),
            "set `state` in the settings, or `group_socket` if that is the socket, to a shorter path".to_owned(),
        ] {
            assert!(run.stderr.contains(&part), "{command:?}: no {part:?} in {}", run.stderr);
        }
    }
    assert!(!workspace.path().join(&name).exists(), "a start that fails leaves no state");
    assert!(!workspace.path().join("proxy").exists());
}
