//! The policy section of `ironmesh status`, and its exit code.

use fs_err as fs;
use ironmesh_tests::eventually;
use serde_json::Value;

use crate::command::Run;
use crate::server::Server;

const SERVICE: &str = "[[service]]\nname = \"store\"\n";
const OTHER_SERVICE: &str = "[[service]]\nname = \"till\"\n";

/// Runs `status` until a condition holds.
async fn status_where(server: &Server, what: &str, condition: impl Fn(&Run) -> bool) -> Run {
    eventually(what, async || match server.run(&["status"]) {
        run if condition(&run) => Ok(run),
        run => Err(format!("{run:?}")),
    })
    .await
}

/// The active revision.
async fn revision(server: &Server) -> String {
    let policy = server.readyz().await.json()["policy"].clone();
    policy["revision"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn status_lists_errors_first() {
    let Some(server) = Server::open("") else { return };
    assert_eq!(server.run(&["status"]).code, 4, "nothing runs");
    server.workspace.write("policy/services.toml", "[[service]]\nname = \"Store\"\n");
    let _child = server.start().await;
    let run = server.run(&["status"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.starts_with("wrong: the control plane is not ready"), "{run:?}");

    server.workspace.write("policy/services.toml", SERVICE);
    server.ready().await;
    server.workspace.write("policy/services.toml", "[[service]]\nname = \"Store\"\n");
    eventually("a rejected policy", async || match server.run(&["status"]) {
        run if run.stdout.contains("is rejected since") && run.code == 1 => Ok(()),
        run => Err(format!("{run:?}")),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_names_the_check_command_for_a_rejected_policy() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", SERVICE);
    let _child = server.start().await;
    server.ready().await;
    server.workspace.write("policy/a.toml", "[[service]]\nname = \"Store\"\n");
    let run = status_where(&server, "the rejection", |run| run.code == 1).await;
    let folder = server.workspace.path().join("policy");
    let folder = folder.display();
    assert!(run.stdout.starts_with(&format!("wrong: the policy in `{folder}` is rejected since ")));
    let advice =
        format!("       `ironmesh policy check {folder}` shows each error with file and line\n");
    assert!(run.stdout.contains(&advice), "{run:?}");
    assert_eq!(server.workspace.run(&["policy", "check", &folder.to_string()]).code, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_reports_why_the_policy_source_is_unreadable() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", SERVICE);
    let _child = server.start().await;
    server.ready().await;
    let (policy, away) =
        (server.workspace.path().join("policy"), server.workspace.path().join("away"));
    fs::rename(&policy, &away).unwrap();
    let run = status_where(&server, "that it is away", |run| run.code == 1).await;
    let begin = format!("wrong: the policy in `{}` cannot be read since ", policy.display());
    assert!(run.stdout.starts_with(&begin), "{run:?}");
    assert!(run.stdout.contains("there is no policy folder at"), "{run:?}");
    let words = "the previous policy stays active; the control plane keeps retrying";
    assert!(run.stdout.contains(words), "{run:?}");
    assert!(!run.stdout.contains("refused") && !run.stdout.contains("policy check"), "{run:?}");
    fs::rename(&away, &policy).unwrap();
    status_where(&server, "that it is back", |run| run.code == 0).await;
}

// A rollback is deliberate: status shows it, and reports no error.
#[tokio::test(flavor = "multi_thread")]
async fn status_notes_a_rollback_without_an_error() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", SERVICE);
    let _child = server.start().await;
    server.ready().await;
    let first = revision(&server).await;
    // A revision that was active for less than a second is kept on request.
    assert_eq!(server.run(&["policy", "rollback", &first]).code, 0);
    server.workspace.write("policy/a.toml", OTHER_SERVICE);
    let second = eventually("the second", async || match revision(&server).await {
        same if same == first => Err(same),
        other => Ok(other),
    })
    .await;
    let run = server.run(&["policy", "rollback", &first, "--message", "till is slow"]);
    assert_eq!(run.code, 0, "{run:?}");

    let run = server.run(&["status"]);
    assert_eq!(run.code, 0, "{run:?}");
    let policy = server.workspace.path().join("policy");
    let policy = policy.display();
    let words = [
        "note: ".to_owned(),
        format!(" rolled policy back to {first} at "),
        format!(" (\"till is slow\"): the content of `{policy}` (revision {second}) is not active"),
        format!("      `ironmesh policy rollback {second}` ends the rollback"),
        format!("policy         revision {first}, instead of the content of `{policy}`\n"),
    ];
    for words in words {
        assert!(run.stdout.contains(&words), "{words}\n{run:?}");
    }
    assert!(!run.stdout.contains("wrong") && !run.stdout.contains("policy check"), "{run:?}");
    let run = server.run(&["status", "--output", "json"]);
    let reported: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((reported["wrong"].as_array(), run.code), (Some(&vec![]), 0));
    assert_eq!(reported["notes"].as_array().unwrap().len(), 1, "{reported:#}");

    // An unreadable folder is an error as well.
    fs::rename(server.workspace.path().join("policy"), server.workspace.path().join("away"))
        .unwrap();
    let run = status_where(&server, "that it is away", |run| run.code == 1).await;
    assert!(
        run.stdout.contains("wrong: the policy in") && run.stdout.contains("note: "),
        "{run:?}"
    );
    assert!(run.stdout.contains("cannot be read: "), "{run:?}");
    fs::rename(server.workspace.path().join("away"), server.workspace.path().join("policy"))
        .unwrap();
    status_where(&server, "that it is back", |run| run.code == 0).await;
    assert_eq!(server.run(&["policy", "rollback", &second]).code, 0);
    let run = server.run(&["status"]);
    assert!(run.code == 0 && !run.stdout.contains("note"), "{run:?}");
}

/// Six services.
fn six_services() -> String {
    let numbers = ["0", "1", "2", "3", "4", "5"];
    numbers.map(|number| ["[[service]]\nname = \"s", number, "\"\n"].concat()).concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn held_back_removal_is_shown_until_accepted() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", &six_services());
    server.workspace.write("policy/b.toml", SERVICE);
    let _child = server.start().await;
    server.ready().await;
    let before = revision(&server).await;
    fs::remove_file(server.workspace.path().join("policy/a.toml")).unwrap();
    let run = status_where(&server, "the hold", |run| run.code == 1).await;
    for part in [
        "wrong: warning[IM0118]: the removal of 6 of 7 objects: 6 service is held back until ",
        "`ironmesh policy accept` activates it now; if not, restore the files in `",
    ] {
        assert!(run.stdout.contains(part), "no {part:?} in {run:?}");
    }
    assert_eq!(revision(&server).await, before);
    let policy = server.readyz().await.json()["policy"].clone();
    assert_eq!((&policy["held"]["removed"], &policy["held"]["of"]), (&6.into(), &7.into()));
    let plan = server.run(&["policy", "plan", "policy"]);
    assert!(plan.stdout.contains("\nremoves 6 of 7 objects: 6 service\n"), "{plan:?}");

    let run = server.run(&["policy", "accept"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("is active; it removes 6 of 7 objects: 6 service\n"), "{run:?}");
    let run = server.run(&["status"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(server.readyz().await.json()["policy"]["held"].is_null());
    let run = server.run(&["policy", "accept"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("no removal from the policy folder is held back"), "{run:?}");

    // A rollback is deliberate: it states what it removes, and is not held back.
    server.workspace.write("policy/a.toml", &six_services());
    eventually("the services", async || match revision(&server).await {
        same if same == before => Ok(()),
        other => Err(other),
    })
    .await;
    assert_eq!(server.run(&["policy", "rollback", &before]).code, 0);
    let list = server.run(&["policy", "revisions", "--output", "json"]).stdout;
    let list: Value = serde_json::from_str(&list).unwrap();
    let small = list["revisions"].as_array().unwrap().iter().find(|one| one["revision"] != *before);
    let small = small.unwrap()["revision"].as_str().unwrap().to_owned();
    let run = server.run(&["policy", "rollback", &small]);
    assert!(run.stdout.contains("it removes 6 of 7 objects: 6 service"), "{run:?}");
    assert_eq!(revision(&server).await, small);
}

#[tokio::test(flavor = "multi_thread")]
async fn emptied_folder_keeps_the_last_good_policy_over_a_restart() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", SERVICE);
    let mut child = server.start().await;
    server.ready().await;
    let before = revision(&server).await;
    fs::remove_file(server.workspace.path().join("policy/a.toml")).unwrap();
    let is_empty = |run: &Run| run.code == 1 && run.stdout.contains("error[IM0115]");
    status_where(&server, "the emptied folder", is_empty).await;
    assert_eq!(revision(&server).await, before);
    assert!(child.terminate().await.success());
    let _child = server.start().await;
    server.ready().await;
    assert_eq!(revision(&server).await, before);
    assert!(is_empty(&server.run(&["status"])));
    server.workspace.write("policy/none.toml", "# Nothing is allowed.\n");
    status_where(&server, "an intended empty policy", |run| run.code == 0).await;
}
