//! Rollback to an earlier revision with a policy folder, and the Git commit of a revision.

use fs_err as fs;
use serde_json::Value;

use crate::server::Server;

pub(crate) fn service(name: &str) -> String {
    format!("[[service]]\nname = \"{name}\"\n")
}

/// Writes the only document, and waits until it is active. Returns its revision.
pub(crate) async fn publish(server: &Server, name: &str) -> String {
    let before = server.readyz().await.json()["policy"]["revision"].clone();
    server.workspace.write("policy/a.toml", &service(name));
    let policy = server
        .wait_for_policy(name, |policy| {
            policy["revision"] != before && policy["stale_since"].is_null()
        })
        .await;
    policy["revision"].as_str().unwrap().to_owned()
}

/// The listed revisions, and the current one.
fn revisions(server: &Server) -> (Vec<String>, Option<String>) {
    let run = server.run(&["policy", "revisions", "--output", "json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let list: Value = serde_json::from_str(&run.stdout).unwrap();
    let list = list["revisions"].as_array().unwrap();
    let name = |revision: &Value| revision["revision"].as_str().unwrap().to_owned();
    let mut current = list.iter().filter(|revision| revision["current"] == true).map(name);
    let first = current.next();
    assert_eq!(current.next(), None);
    (list.iter().map(name).collect(), first)
}

#[tokio::test]
async fn rollback_survives_a_restart_until_the_folder_changes() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", &service("zero"));
    let mut child = server.start().await;
    server.ready().await;
    let first = publish(&server, "one").await;
    keep_revision(&server, &first);
    let second = publish(&server, "two").await;
    assert_eq!(revisions(&server).0[..2], [second.clone(), first.clone()]);

    let run = server.run(&["policy", "rollback", &first[..8], "--message", "two is slow"]);
    assert_eq!(run.code, 0, "{run:?}");
    let expected = format!(
        "revision {first} is active; the content of the policy folder ({second}) is not active until it \
         changes to an accepted policy\nit removes 1 of 1 objects: 1 service\n"
    );
    assert_eq!(run.stdout, expected);
    let is_pinned = |policy: &Value| {
        policy["revision"] == *first
            && policy["rolled_back"]["folder"] == *second
            && policy["rolled_back"]["message"] == "two is slow"
            && policy["rolled_back"]["by"].is_string()
            && policy["stale_since"] == policy["rolled_back"]["at"]
            && policy["rendered"].as_str().unwrap().contains("is not active until it is replaced")
    };
    let policy = server.readyz().await.json()["policy"].clone();
    assert!(is_pinned(&policy), "it is so when the command has ended: {policy:#}");
    assert_eq!(revisions(&server).1, Some(first.clone()));
    let text = server.run(&["policy", "revisions"]).stdout;
    assert!(text.contains("The policy folder is NOT active: "), "{text}");
    assert!(text.contains(&format!("rolled back from {second} to {first}")), "{text}");

    assert!(child.terminate().await.success());
    let mut child = server.start().await;
    server.ready().await;
    let policy = server.readyz().await.json()["policy"].clone();
    assert!(is_pinned(&policy), "{policy:#}");

    // Neither an invalid policy nor the policy of the rollback ends it.
    server.workspace.write("policy/a.toml", "[[");
    server.wait_for_policy("a finding", |policy| policy["findings"][0]["code"] == "IM0101").await;
    server.workspace.write("policy/a.toml", &service("two"));
    server.wait_for_policy("the rollback again", is_pinned).await;
    let third = publish(&server, "three").await;
    let policy = server.readyz().await.json()["policy"].clone();
    assert_eq!(
        (&policy["rolled_back"], &policy["rendered"]),
        (&Value::Null, &"".into()),
        "{policy:#}"
    );
    let log = fs::read_to_string(server.workspace.path().join("serve.log")).unwrap();
    assert!(log.contains("the policy folder has changed: the rollback is over"), "{log}");
    assert!(child.terminate().await.success());
    let mut child = server.start().await;
    server.ready().await;
    assert_eq!(server.readyz().await.json()["policy"]["revision"], *third);
    assert!(child.terminate().await.success());
}

/// Keeps the active revision at once: one that is active for less than a second is kept only on
/// request. A rollback to it changes nothing else.
pub(crate) fn keep_revision(server: &Server, revision: &str) {
    let run = server.run(&["policy", "rollback", revision]);
    assert_eq!(run.code, 0, "{run:?}");
}

#[tokio::test]
async fn rollback_to_the_folder_revision_ends_the_rollback() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", &service("one"));
    let mut child = server.start().await;
    server.ready().await;
    let first = server.readyz().await.json()["policy"]["revision"].as_str().unwrap().to_owned();
    keep_revision(&server, &first);
    let second = publish(&server, "two").await;
    let run = server.run(&["policy", "rollback", &second]);
    let expected =
        format!("revision {second} is already active; it is the content of the policy folder\n");
    assert_eq!((run.code, run.stdout), (0, expected));
    assert_eq!(server.run(&["policy", "rollback", &first]).code, 0);
    let policy = server.readyz().await.json()["policy"].clone();
    assert_eq!((&policy["revision"], policy["rolled_back"].is_null()), (&first.into(), false));

    let run = server.run(&["policy", "rollback", &second, "--output", "json"]);
    let done: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (&done["policy"]["revision"], &done["is_folder"]),
        (&second.as_str().into(), &true.into())
    );
    let policy = server.readyz().await.json()["policy"].clone();
    assert_eq!(policy["revision"], *second);
    assert!(policy["rolled_back"].is_null() && policy["stale_since"].is_null(), "{policy:#}");
    // From here on the folder is followed again.
    publish(&server, "three").await;

    let run = server.run(&["policy", "rollback", "nonsense"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stderr.contains("no stored policy has a revision that is or begins with"),
        "{run:?}"
    );
    let run = server.run(&["policy", "rollback", ""]);
    assert!(run.code == 1 && run.stderr.contains("give more characters"), "{run:?}");
    assert!(child.terminate().await.success());
    let run = server.run(&["policy", "rollback", &second]);
    assert_eq!(run.code, 4, "{run:?}");
}

#[tokio::test]
async fn git_commit_of_the_policy_folder_is_shown() {
    let Some(server) = Server::open("") else { return };
    let git = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.current_dir(server.workspace.path().join("policy"));
        git.args(["-c", "user.name=x", "-c", "user.email=x@x"]).args(arguments);
        let output = git.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    server.workspace.write("policy/a.toml", &service("one"));
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "1"]);
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    let mut child = server.start().await;
    let shows = async |expected: &str| {
        server.wait_for_policy(expected, |policy| policy["active"]["commit"] == expected).await;
    };
    shows(&commit).await;
    publish(&server, "two").await;
    shows(&format!("{commit}+dirty")).await;
    let run = server.run(&["policy", "revisions"]);
    assert!(run.stdout.contains(&format!("{commit}+dirty")), "{run:?}");
    // A checkout rewrites the documents.
    git(&["checkout", "--quiet", "--", "."]);
    shows(&commit).await;
    assert!(child.terminate().await.success());
}
