//! A policy folder discloses neither files outside it nor lines of policy to users without read
//! access.

use std::os::unix::fs::symlink;

use fs_err as fs;
use ironmesh_tests::eventually;

use crate::server::{Server, readyz_by_socket};

#[tokio::test(flavor = "multi_thread")]
async fn link_out_of_the_policy_folder_reveals_nothing() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", "[[service]]\nname = \"store\"\n");
    let _child = server.start().await;
    server.ready().await;
    let key = fs::read_to_string(server.state().join("kek")).unwrap();
    let (policy, key) = (server.workspace.path().join("policy"), key.trim());
    symlink("../state/kek", policy.join("key.toml")).unwrap();
    let answer = eventually("the finding", async || {
        let answer = server.readyz().await;
        if answer.text().contains("IM0119") { Ok(answer.text()) } else { Err(answer.text()) }
    })
    .await;
    let by_socket = readyz_by_socket(&server.state().join("admin.sock")).await.unwrap().text();
    let check = server.run(&["policy", "check", "policy"]);
    assert_eq!(check.code, 3, "{check:?}");
    assert!(check.stdout.contains("`key.toml` is a symbolic link that leads out of"), "{check:?}");
    let log = fs::read_to_string(server.workspace.path().join("serve.log")).unwrap();
    assert!(log.contains("IM0119"), "{log}");
    for text in [&answer, &by_socket, &check.stdout, &log] {
        assert!(!text.contains(&key[..16]), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_source_lines_appear_only_on_the_admin_socket() {
    let Some(server) = Server::open("") else { return };
    server
        .workspace
        .write("policy/a.toml", "[[service]]\nname = \"store\"\nprots = [] # do not tell\n");
    let _child = server.start().await;
    let answer = server.readyz().await;
    assert!(!answer.text().contains("do not tell"), "{}", answer.text());
    let rendered = answer.json()["policy"]["rendered"].as_str().unwrap().to_owned();
    for part in ["error[IM0102]", "a.toml:3:1", "did you mean `ports`"] {
        assert!(rendered.contains(part), "no {part:?} in {rendered}");
    }
    let by_socket = readyz_by_socket(&server.state().join("admin.sock")).await.unwrap().json();
    let annotated = by_socket["policy"]["annotated"].as_str().unwrap();
    assert!(annotated.contains("3 | prots = [] # do not tell"), "{annotated}");
    // Log collectors read the log.
    let log = fs::read_to_string(server.workspace.path().join("serve.log")).unwrap();
    assert!(!log.contains("do not tell"), "{log}");
    let line =
        log.lines().find(|line| line.contains("code=IM0102")).unwrap_or_else(|| panic!("{log}"));
    for part in ["ERROR", "policy finding", "at=a.toml:3:1", "/policy\"", "did you mean `ports`"] {
        assert!(line.contains(part), "no {part:?} in {line}");
    }
    // No earlier policy exists that could stay.
    let run = server.run(&["status"]);
    assert!(
        run.stdout.contains("no policy is active, and the control plane serves no proxy"),
        "{run:?}"
    );
    assert!(!run.stdout.contains("stays"), "{run:?}");
}
