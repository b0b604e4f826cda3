//! Push, pull, list and roll back.

use std::collections::BTreeMap;
use std::path::Path;

use fs_err as fs;
use serde_json::Value;

use ironmesh_tests::Etcd;

use crate::documents::service;
use crate::workspace::Workspace;

/// All files below `folder`, by path.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let relative = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                files.insert(relative, fs::read_to_string(&path).unwrap());
            }
        }
    }
    files
}

#[tokio::test]
async fn pull_returns_the_pushed_files_unchanged() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    let run = workspace.policy(&["pull", "out"]).await;
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    assert!(
        run.stderr.contains("nothing has been pushed to `/ironmesh/default/policy`"),
        "{run:?}"
    );
    assert!(!workspace.path().join("out").exists());

    workspace.write("policy/a.toml", &service("a"));
    workspace.write("policy/deep/er/ü.toml", &format!("# \"é\" \\ \t\r\n{}", service("b")));
    workspace.write("policy/.hidden.toml", "[[");
    let run =
        workspace.policy(&["push", "policy", "--message", "the \"first\""]).await.assert_success();
    let first = workspace.policy(&["revisions", "--output", "json"]).await.assert_success().json();
    let first = &first["revisions"][0];
    let revision = first["revision"].as_str().unwrap();
    assert!(
        run.stdout.starts_with(&format!("pushed revision {revision}: 2 documents, to ")),
        "{run:?}"
    );
    assert_eq!((&first["current"], &first["message"]), (&true.into(), &"the \"first\"".into()));
    assert!(first["by"].as_str().unwrap().starts_with("anna@"), "{first:#}");

    let mut expected = files(&workspace.path().join("policy"));
    expected.remove(".hidden.toml");
    fs::create_dir(workspace.path().join("empty")).unwrap();
    for out in ["out", "empty", "new/er"] {
        workspace.policy(&["pull", out]).await.assert_success();
        assert_eq!(files(&workspace.path().join(out)), expected, "{out}");
    }
    let run = workspace.policy(&["pull", "out"]).await;
    assert!(run.code == 1 && run.stderr.contains("exists already"), "{run:?}");

    // A second identical push changes nothing.
    let run = workspace.policy(&["push", "policy", "--output", "json"]).await.assert_success();
    assert_eq!(run.json()["pushed"], false, "{run:?}");
    workspace.write("policy/a.toml", &service("c"));
    let second = workspace.push("policy").await;
    let run =
        workspace.policy(&["pull", "old", "--revision", &revision[..6], "--output", "json"]).await;
    assert_eq!(run.assert_success().json()["documents"], 2);
    assert_eq!(files(&workspace.path().join("old")), expected);
    let run = workspace.policy(&["pull", "none", "--revision", "nonsense"]).await;
    assert!(
        run.code == 1 && run.stderr.contains("has no policy revision that begins with"),
        "{run:?}"
    );
    assert_ne!(second, revision);
}

#[tokio::test]
async fn push_rejects_policy_with_errors() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    workspace.write("policy/a.toml", "[[service]]\nname = bookstore\n");
    for json in [false, true] {
        let output = if json { "json" } else { "text" };
        let run = workspace.policy(&["push", "policy", "--output", output]).await;
        assert_eq!(run.code, 3, "{run:?}");
        assert!(run.stdout.contains("IM0101") && run.stdout.contains("a.toml"), "{run:?}");
        assert!(run.stderr.contains("`policy` is rejected: 1 error"), "{run:?}");
        if json {
            assert_eq!(
                (&run.json()["accepted"], &run.json()["pushed"]),
                (&false.into(), &false.into())
            );
        }
    }
    assert!(etcd.keys("/ironmesh").await.is_empty());

    // A warning does not prevent a push.
    let target = "[[traffic_target]]\nname = \"t\"\ndestination = { name = \"a\" }\n\
                  sources = [{ name = \"a\" }]\nrules = [{ kind = \"TCPRoute\", name = \"r\" }]\n\
                  [[tcp_route]]\nname = \"r\"\nmatches = { ports = [3306] }\n";
    workspace.write("policy/a.toml", &format!("{}{target}", service("a")));
    let run = workspace.policy(&["push", "policy"]).await.assert_success();
    assert!(run.stdout.contains("warning[IM"), "{run:?}");

    let run = workspace.policy(&["push", "nowhere"]).await;
    assert!(run.code == 1 && run.stderr.contains("there is no policy folder"), "{run:?}");
    workspace.set("policy = \"policy\"\n");
    let run = workspace.policy(&["push", "policy"]).await;
    assert!(run.code == 1 && run.stderr.contains("set `[policy.etcd] endpoints`"), "{run:?}");
}

#[tokio::test]
async fn last_twenty_revisions_are_kept_for_rollback() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    let mut pushed = Vec::new();
    for number in 0..23 {
        workspace.write("policy/a.toml", &service(&format!("s{number}")));
        pushed.insert(0, workspace.push("policy").await);
    }
    let kept = async || {
        let list =
            workspace.policy(&["revisions", "--output", "json"]).await.assert_success().json();
        let revisions = list["revisions"].as_array().unwrap().clone();
        let current: Vec<_> = revisions.iter().map(|r| r["current"].as_bool().unwrap()).collect();
        assert!(current.iter().enumerate().all(|(at, current)| *current == (at == 0)), "{list:#}");
        let names = revisions.iter().map(|r| r["revision"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(kept().await, pushed[..20]);
    assert_eq!(etcd.keys("/ironmesh/default/policy/revisions/").await.len(), 20);
    let run = workspace.policy(&["rollback", &pushed[20]]).await;
    assert!(run.code == 1 && run.stderr.contains("has no policy revision"), "{run:?}");

    let run = workspace.policy(&["rollback", &pushed[19], "--expect", &pushed[1]]).await;
    assert!(run.code == 1 && run.stderr.contains("not pushed: anna@"), "{run:?}");
    assert_eq!(kept().await, pushed[..20]);
    let run = workspace
        .policy(&["rollback", &pushed[19], "--message", "too fast", "--expect", &pushed[0]])
        .await
        .assert_success();
    assert!(run.stdout.contains(&format!("pushed revision {}", pushed[19])), "{run:?}");
    pushed.insert(0, pushed[19].clone());
    assert_eq!(kept().await, pushed[..20]);
    workspace.policy(&["pull", "out"]).await.assert_success();
    assert_eq!(files(&workspace.path().join("out"))["a.toml"], service("s3"));
    let text = workspace.policy(&["revisions"]).await.assert_success().stdout;
    assert!(text.contains("too fast") && text.contains(&format!("* {}", pushed[0])), "{text}");
}

#[tokio::test]
async fn rollback_json_has_equal_keys_for_etcd_and_folder() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    let mut revisions = Vec::new();
    for name in ["a", "b"] {
        workspace.write("policy/a.toml", &service(name));
        revisions.push(workspace.push("policy").await);
    }
    let mut in_etcd = Vec::new();
    for is_old in [false, true] {
        let run = workspace
            .policy(&["rollback", &revisions[0], "--output", "json"])
            .await
            .assert_success();
        let reported = run.json();
        assert_eq!(
            (&reported["accepted"], &reported["is_old"]),
            (&true.into(), &is_old.into()),
            "{reported:#}"
        );
        assert_eq!(reported["policy"]["revision"], revisions[0], "{reported:#}");
        in_etcd = keys(&reported);
    }

    workspace.set("policy = \"policy\"\n");
    let mut serve = workspace.serve().await;
    workspace.wait_until_active(&revisions[1]).await;
    // A revision that was active for less than a second is kept if a command requests it.
    let run =
        workspace.policy(&["rollback", &revisions[1], "--output", "json"]).await.assert_success();
    let reported = run.json();
    assert_eq!(
        (&reported["accepted"], &reported["is_old"]),
        (&true.into(), &true.into()),
        "{reported:#}"
    );
    assert_eq!(reported["policy"]["revision"], revisions[1], "{reported:#}");
    let mut of_the_folder = keys(&reported);
    assert_eq!((&reported["is_folder"], &reported["folder"]), (&true.into(), &Value::Null));
    of_the_folder.retain(|key| !key.contains("folder"));
    assert_eq!(of_the_folder, in_etcd);
    assert!(serve.terminate().await.success());
}

/// All keys of the output, and of the policy in it.
fn keys(reported: &Value) -> Vec<String> {
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut policy = names(&reported["policy"]);
    // Only present with a message.
    policy.retain(|key| key != "message");
    [names(reported), policy].concat()
}

#[tokio::test]
async fn repeated_push_repairs_damaged_chunks() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    workspace.write("policy/a.toml", &service("a"));
    let revision = workspace.push("policy").await;
    let chunks = "/ironmesh/default/policy/revisions/";
    let damages: [(&str, &[&str]); 2] = [("put", &["something else"]), ("del", &[])];
    for (how, value) in damages {
        let chunk = etcd.keys(chunks).await.pop().unwrap();
        etcd.ctl(&[&[how, &chunk], value].concat()).await;
        let run = workspace.policy(&["pull", "out"]).await;
        assert!(run.code == 1 && run.stderr.contains("in etcd"), "{run:?}");
        let run = workspace.policy(&["push", "policy"]).await.assert_success();
        assert!(run.stdout.starts_with(&format!("pushed revision {revision}")), "{run:?}");
        workspace.policy(&["pull", "out"]).await.assert_success();
        assert_eq!(files(&workspace.path().join("out"))["a.toml"], service("a"));
        fs::remove_dir_all(workspace.path().join("out")).unwrap();
        let run = workspace.policy(&["push", "policy"]).await.assert_success();
        assert!(run.stdout.contains("is already current"), "{run:?}");
    }
}

#[tokio::test]
async fn pushed_git_commit_is_listed() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    workspace.write("checkout/policy/a.toml", &service("a"));
    let git = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.current_dir(workspace.path().join("checkout"));
        git.args(["-c", "user.name=x", "-c", "user.email=x@x"]).args(arguments);
        let output = git.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "1"]);
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    workspace.push("checkout/policy").await;
    workspace.write("checkout/policy/a.toml", &service("b"));
    workspace.push("checkout/policy").await;
    let list = workspace.policy(&["revisions", "--output", "json"]).await.assert_success().json();
    assert_eq!(list["revisions"][0]["commit"], format!("{commit}+dirty"));
    assert_eq!(list["revisions"][1]["commit"], commit);
}
