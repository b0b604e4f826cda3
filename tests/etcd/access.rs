//! Users without access get an error that says what to fix, and no error discloses a secret.

use fs_err as fs;

use ironmesh_tests::Etcd;

use crate::documents::service;
use crate::workspace::Workspace;

#[tokio::test]
async fn etcd_access_errors_name_the_fix_without_secrets() {
    let Some(etcd) = Etcd::start_three().await else { return };
    let Some(workspace) = Workspace::open("") else { return };
    etcd.ctl(&["user", "add", "paul:right"]).await;
    etcd.ctl(&["user", "grant-role", "paul", "policy"]).await;
    workspace.write("policy/a.toml", &service("a"));
    workspace.write("right", "right\n");
    workspace.write("wrong", "s3cr3t-and-wrong\n");
    let other = Etcd::start_three().await.unwrap();
    fs::copy(other.file("ca.pem"), workspace.path().join("other-ca.pem")).unwrap();
    fs::copy(other.file("mesh.pem"), workspace.path().join("other.pem")).unwrap();
    fs::copy(other.file("mesh.key"), workspace.path().join("other.key")).unwrap();
    let mesh = etcd.settings("mesh");
    let password = |user: &str, file: &str| {
        format!("{}username = \"{user}\"\npassword_file = \"{file}\"\n", etcd.settings("stranger"))
    };
    let without = |keys: &[&str]| {
        let is_kept = |line: &&str| !keys.iter().any(|key| line.starts_with(key));
        mesh.lines().filter(is_kept).collect::<Vec<_>>().join("\n")
    };
    let with = |keys: &[&str], more: &str| format!("{}\n{more}", without(keys));
    for (settings, expected) in [
        (password("paul", "wrong"), "rejects the user `paul`: authentication failed"),
        (password("nobody", "right"), "look at `username` and `password_file` in the settings"),
        (password("paul", "missing"), "cannot read the file of `password_file` in `[policy.etcd]`"),
        (
            etcd.settings("stranger"),
            "stranger.pem` to read: grant a role of that user the permission",
        ),
        (with(&[], "prefix = \"/elsewhere\""), "the permission on the prefix `/elsewhere/`"),
        (with(&["ca"], "ca = \"other-ca.pem\""), "look at `ca` in the settings"),
        (without(&["certificate", "key"]), "none of the etcd endpoints can be used"),
        (
            with(&["certificate", "key"], "certificate = \"other.pem\"\nkey = \"other.key\""),
            "none of the etcd endpoints can be used",
        ),
    ] {
        workspace.set(&settings);
        for arguments in [&["push", "policy"][..], &["revisions"], &["pull", "out"]] {
            let run = workspace.policy(arguments).await;
            assert!(
                run.code == 1 && run.stderr.contains(expected),
                "{expected}: {run:?}\n{settings}"
            );
            assert!(!run.stderr.contains("s3cr3t"), "{run:?}");
        }
    }
    // A control plane without access reports the same, and goes on once it has access.
    workspace.set(&password("paul", "wrong"));
    let mut serve = workspace.serve().await;
    let readyz = workspace
        .wait_for_readyz("a reason", |readyz| {
            readyz["waiting_for"][0]
                .as_str()
                .is_some_and(|why| why.contains("authentication failed"))
        })
        .await;
    assert_eq!(readyz["ready"], false);
    workspace.write("wrong", "right\n");
    let first = workspace.push("policy").await;
    workspace.wait_until_active(&first).await;
    assert!(serve.terminate().await.success());
    let log = fs::read_to_string(workspace.path().join("serve.log")).unwrap();
    assert!(!log.contains("s3cr3t"), "{log}");

    // Before anything else: a missing file.
    workspace.set(&password("paul", "missing"));
    fs::remove_dir_all(workspace.path().join("state")).unwrap();
    let output = workspace.command(&["serve"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!workspace.path().join("state").exists());
}
