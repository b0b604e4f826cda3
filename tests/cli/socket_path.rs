//! A state folder whose path is too long for the admin socket in it.

use crate::command::Place;

#[test]
fn overlong_socket_path_is_reported_with_length_and_limit() {
    let Some(place) = Place::open() else { return };
    let name = "s".repeat(120);
    place.write("ironmesh.toml", &format!("state = \"{name}\"\npolicy = \"policy\"\n"));
    place.write("policy/a.toml", "[[service]]\nname = \"store\"\n");
    let socket = place.path().join(&name).join("admin.sock");
    for command in [
        &["serve"][..],
        &["status"],
        &["proxy", "list"],
        &["endpoints"],
        &["proxy", "bootstrap", "--service", "store", "--address", "127.0.0.1", "--out", "proxy"],
    ] {
        let run = place.run(&[command, &["--config", "ironmesh.toml"]].concat());
        assert_eq!((run.code, &*run.stdout), (1, ""), "{command:?} {run:?}");
        for part in [
            format!(
                "the admin socket has {} bytes, and Linux allows 107",
                socket.as_os_str().len()
            ),
            socket.display().to_string(),
            "set `state` in the settings to a folder with a shorter path".to_owned(),
        ] {
            assert!(run.stderr.contains(&part), "{command:?}: no {part:?} in {}", run.stderr);
        }
    }
    assert!(!place.path().join(&name).exists(), "a start that fails leaves no state");
    assert!(!place.path().join("proxy").exists());
}
