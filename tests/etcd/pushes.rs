//! Pushing, pulling, listing and rolling back.

use std::collections::BTreeMap;
use std::path::Path;

use fs_err as fs;
use serde_json::Value;

use crate::cluster::Etcd;
use crate::documents::service;
use crate::place::Place;

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
    let Some(place) = Place::open(&etcd.settings("mesh")) else { return };
    let run = place.policy(&["pull", "out"]).await;
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    assert!(
        run.stderr.contains("nothing has been pushed to `/ironmesh/default/policy`"),
        "{run:?}"
    );
    assert!(!place.path().join("out").exists());

    place.write("policy/a.toml", &service("a"));
    place.write("policy/deep/er/ü.toml", &format!("# \"é\" \\ \t\r\n{}", service("b")));
    place.write("policy/.hidden.toml", "[[");
    let run = place.policy(&["push", "policy", "--message", "the \"first\""]).await.good();
    let first = place.policy(&["revisions", "--output", "json"]).await.good().json();
    let first = &first["revisions"][0];
    let revision = first["revision"].as_str().unwrap();
    assert!(
        run.stdout.starts_with(&format!("pushed revision {revision}: 2 documents, to ")),
        "{run:?}"
    );
    assert_eq!((&first["current"], &first["message"]), (&true.into(), &"the \"first\"".into()));
    assert!(first["by"].as_str().unwrap().starts_with("anna@"), "{first:#}");

    let mut expected = files(&place.path().join("policy"));
    expected.remove(".hidden.toml");
    fs::create_dir(place.path().join("empty")).unwrap();
    for out in ["out", "empty", "new/er"] {
        place.policy(&["pull", out]).await.good();
        assert_eq!(files(&place.path().join(out)), expected, "{out}");
    }
    let run = place.policy(&["pull", "out"]).await;
    assert!(run.code == 1 && run.stderr.contains("exists already"), "{run:?}");

    // The same again is no push.
    let run = place.policy(&["push", "policy", "--output", "json"]).await.good();
    assert_eq!(run.json()["pushed"], false, "{run:?}");
    place.write("policy/a.toml", &service("c"));
    let second = place.push("policy").await;
    let run =
        place.policy(&["pull", "old", "--revision", &revision[..6], "--output", "json"]).await;
    assert_eq!(run.good().json()["documents"], 2);
    assert_eq!(files(&place.path().join("old")), expected);
    let run = place.policy(&["pull", "none", "--revision", "nonsense"]).await;
    assert!(run.code == 1 && run.stderr.contains("keeps no policy whose revision"), "{run:?}");
    assert_ne!(second, revision);
}

#[tokio::test]
async fn push_rejects_policy_with_errors() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(place) = Place::open(&etcd.settings("mesh")) else { return };
    place.write("policy/a.toml", "[[service]]\nname = bookstore\n");
    for json in [false, true] {
        let output = if json { "json" } else { "text" };
        let run = place.policy(&["push", "policy", "--output", output]).await;
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

    // A warning does not hinder.
    let target = "[[traffic_target]]\nname = \"t\"\ndestination = { name = \"a\" }\n\
                  sources = [{ name = \"a\" }]\nrules = [{ kind = \"TCPRoute\", name = \"r\" }]\n\
                  [[tcp_route]]\nname = \"r\"\nmatches = { ports = [3306] }\n";
    place.write("policy/a.toml", &format!("{}{target}", service("a")));
    let run = place.policy(&["push", "policy"]).await.good();
    assert!(run.stdout.contains("warning[IM"), "{run:?}");

    let run = place.policy(&["push", "nowhere"]).await;
    assert!(run.code == 1 && run.stderr.contains("there is no policy folder"), "{run:?}");
    place.set("policy = \"policy\"\n");
    let run = place.policy(&["push", "policy"]).await;
    assert!(run.code == 1 && run.stderr.contains("set `[policy.etcd] endpoints`"), "{run:?}");
}

#[tokio::test]
async fn last_twenty_revisions_are_kept_for_rollback() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(place) = Place::open(&etcd.settings("mesh")) else { return };
    let mut pushed = Vec::new();
    for number in 0..23 {
        place.write("policy/a.toml", &service(&format!("s{number}")));
        pushed.insert(0, place.push("policy").await);
    }
    let kept = async || {
        let list = place.policy(&["revisions", "--output", "json"]).await.good().json();
        let revisions = list["revisions"].as_array().unwrap().clone();
        let current: Vec<_> = revisions.iter().map(|r| r["current"].as_bool().unwrap()).collect();
        assert!(current.iter().enumerate().all(|(at, current)| *current == (at == 0)), "{list:#}");
        let names = revisions.iter().map(|r| r["revision"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(kept().await, pushed[..20]);
    assert_eq!(etcd.keys("/ironmesh/default/policy/revisions/").await.len(), 20);
    let run = place.policy(&["rollback", &pushed[20]]).await;
    assert!(run.code == 1 && run.stderr.contains("keeps no policy"), "{run:?}");

    let run = place.policy(&["rollback", &pushed[19], "--message", "too fast"]).await.good();
    assert!(run.stdout.contains(&format!("pushed revision {}", pushed[19])), "{run:?}");
    pushed.insert(0, pushed[19].clone());
    assert_eq!(kept().await, pushed[..20]);
    place.policy(&["pull", "out"]).await.good();
    assert_eq!(files(&place.path().join("out"))["a.toml"], service("s3"));
    let text = place.policy(&["revisions"]).await.good().stdout;
    assert!(text.contains("too fast") && text.contains(&format!("* {}", pushed[0])), "{text}");
}

#[tokio::test]
async fn rollback_json_has_equal_keys_for_etcd_and_folder() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(place) = Place::open(&etcd.settings("mesh")) else { return };
    let mut revisions = Vec::new();
    for name in ["a", "b"] {
        place.write("policy/a.toml", &service(name));
        revisions.push(place.push("policy").await);
    }
    let mut in_etcd = Vec::new();
    for is_old in [false, true] {
        let run = place.policy(&["rollback", &revisions[0], "--output", "json"]).await.good();
        let told = run.json();
        assert_eq!(
            (&told["accepted"], &told["is_old"]),
            (&true.into(), &is_old.into()),
            "{told:#}"
        );
        assert_eq!(told["policy"]["revision"], revisions[0], "{told:#}");
        in_etcd = keys(&told);
    }

    place.set("policy = \"policy\"\n");
    let mut serve = place.serve().await;
    place.in_force(&revisions[1]).await;
    // What was in force for less than a second is kept when somebody asks for it.
    let run = place.policy(&["rollback", &revisions[1], "--output", "json"]).await.good();
    let told = run.json();
    assert_eq!((&told["accepted"], &told["is_old"]), (&true.into(), &true.into()), "{told:#}");
    assert_eq!(told["policy"]["revision"], revisions[1], "{told:#}");
    let mut of_the_folder = keys(&told);
    assert_eq!((&told["is_folder"], &told["folder"]), (&true.into(), &Value::Null));
    of_the_folder.retain(|key| !key.contains("folder"));
    assert_eq!(of_the_folder, in_etcd);
    assert!(serve.terminate().await.success());
}

/// All keys of what is told, and of the policy in it.
fn keys(told: &Value) -> Vec<String> {
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut policy = names(&told["policy"]);
    // Only where there is one.
    policy.retain(|key| key != "message");
    [names(told), policy].concat()
}

#[tokio::test]
async fn repeated_push_repairs_damaged_chunks() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(place) = Place::open(&etcd.settings("mesh")) else { return };
    place.write("policy/a.toml", &service("a"));
    let revision = place.push("policy").await;
    let chunks = "/ironmesh/default/policy/revisions/";
    let damages: [(&str, &[&str]); 2] = [("put", &["something else"]), ("del", &[])];
    for (how, value) in damages {
        let chunk = etcd.keys(chunks).await.pop().unwrap();
        etcd.ctl(&[&[how, &chunk], value].concat()).await;
        let run = place.policy(&["pull", "out"]).await;
        assert!(run.code == 1 && run.stderr.contains("in etcd"), "{run:?}");
        let run = place.policy(&["push", "policy"]).await.good();
        assert!(run.stdout.starts_with(&format!("pushed revision {revision}")), "{run:?}");
        place.policy(&["pull", "out"]).await.good();
        assert_eq!(files(&place.path().join("out"))["a.toml"], service("a"));
        fs::remove_dir_all(place.path().join("out")).unwrap();
        let run = place.policy(&["push", "policy"]).await.good();
        assert!(run.stdout.contains("is already current"), "{run:?}");
    }
}

#[tokio::test]
async fn pushed_git_commit_is_listed() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(place) = Place::open(&etcd.settings("mesh")) else { return };
    place.write("checkout/policy/a.toml", &service("a"));
    let git = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.current_dir(place.path().join("checkout"));
        git.args(["-c", "user.name=x", "-c", "user.email=x@x"]).args(arguments);
        let output = git.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "1"]);
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    place.push("checkout/policy").await;
    place.write("checkout/policy/a.toml", &service("b"));
    place.push("checkout/policy").await;
    let list = place.policy(&["revisions", "--output", "json"]).await.good().json();
    assert_eq!(list["revisions"][0]["commit"], format!("{commit}+dirty"));
    assert_eq!(list["revisions"][1]["commit"], commit);
}
