//! The hidden commands: what ties a program to a demo, and what takes care of its folder.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use fs_err as fs;
use ironmesh_tests::eventually::patience;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::place::{Place, finish};

#[tokio::test]
async fn demo_child_replaces_itself_with_the_program() {
    let Some(place) = Place::without_envoy().await else { return };
    let parent = std::process::id().to_string();
    let tied = ["demo-child", "--parent", &parent, "--", "sh", "-c", "echo $PPID; exit 7"];
    let run = finish(&mut place.command(&tied)).await;
    assert_eq!((run.code, run.stdout.trim()), (7, parent.as_str()), "{run:?}");
}

#[tokio::test]
async fn demo_child_does_not_start_without_its_parent() {
    let Some(place) = Place::without_envoy().await else { return };
    // The system gives no such id.
    let gone = i32::MAX.to_string();
    let tied = ["demo-child", "--parent", &gone, "--", "echo", "here"];
    let run = finish(&mut place.command(&tied)).await;
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
    assert!(run.stderr.contains("the parent is gone already"), "{}", run.stderr);
}

#[tokio::test]
async fn demo_child_names_a_missing_program() {
    let Some(place) = Place::without_envoy().await else { return };
    let parent = std::process::id().to_string();
    let tied = ["demo-child", "--parent", &parent, "--", "nowhere/x"];
    let run = finish(&mut place.command(&tied)).await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("cannot run `nowhere/x`"), "{}", run.stderr);
}

/// A caretaker, and what it said first.
async fn caretaker(place: &Place, parent: &Path) -> (Child, String) {
    let mut command = place.command(&["demo-caretaker", parent.to_str().unwrap()]);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    timeout(patience(), stdout.read_line(&mut said)).await.unwrap().unwrap();
    (process, said.trim_end().to_owned())
}

/// Its folder, with something in it, after the word `told` and the end of its pipe.
async fn dismissed_with(place: &Place, told: &[u8]) -> PathBuf {
    let (mut process, said) = caretaker(place, &place.temporary()).await;
    let folder = PathBuf::from(said.strip_prefix("made ").unwrap());
    assert!(folder.starts_with(place.temporary()));
    fs::create_dir_all(folder.join("state/deep")).unwrap();
    fs::write(folder.join("state/deep/file"), "text").unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(told).await.unwrap();
    drop(stdin);
    assert!(timeout(patience(), process.wait()).await.unwrap().unwrap().success());
    folder
}

#[tokio::test]
async fn caretaker_removes_its_folder_unless_instructed_to_keep_it() {
    let Some(place) = Place::without_envoy().await else { return };
    let removed = dismissed_with(&place, b"").await;
    assert!(!removed.exists());
    let kept = dismissed_with(&place, b"keep\n").await;
    assert_eq!(fs::read_to_string(kept.join("state/deep/file")).unwrap(), "text");
    fs::remove_dir_all(kept).unwrap();
    place.assert_nothing_left();
}

/// A program without the death signal that names this folder, or none.
fn stray(named: Option<&Path>) -> Child {
    let mut command = Command::new("sleep");
    command.arg("600").kill_on_drop(true);
    if let Some(folder) = named {
        command.env("FOLDER", folder);
    }
    command.spawn().unwrap()
}

#[tokio::test]
async fn caretaker_kills_only_remaining_demo_processes() {
    let Some(place) = Place::without_envoy().await else { return };
    // The kernel ends none of these.
    for word in ["", "keep\n"] {
        let (mut process, said) = caretaker(&place, &place.temporary()).await;
        let folder = PathBuf::from(said.strip_prefix("made ").unwrap());
        let mut left = stray(Some(&folder));
        // As if the id of a child had been given to somebody else; and one who was not told of.
        let (mut stranger, mut untold) = (stray(None), stray(Some(&folder)));
        let (one, other) = (left.id().unwrap(), stranger.id().unwrap());
        let told = format!("child {one}\nchild {other}\nchild {}\nchild x\n{word}", i32::MAX);
        let mut stdin = process.stdin.take().unwrap();
        stdin.write_all(told.as_bytes()).await.unwrap();
        drop(stdin);
        assert!(timeout(patience(), process.wait()).await.unwrap().unwrap().success());
        let status = timeout(patience(), left.wait()).await.unwrap().unwrap();
        assert_eq!(status.signal(), Some(9), "{status}");
        for other in [stranger.try_wait(), untold.try_wait()] {
            assert_eq!(other.unwrap(), None);
        }
        untold.kill().await.unwrap();
        assert_eq!(folder.exists(), !word.is_empty());
        if folder.exists() {
            fs::remove_dir_all(folder).unwrap();
        }
    }
    place.assert_nothing_left();
}

#[tokio::test]
async fn caretaker_folder_is_private() {
    use std::os::unix::fs::PermissionsExt as _;

    let Some(place) = Place::without_envoy().await else { return };
    let (mut process, said) = caretaker(&place, &place.temporary()).await;
    let folder = said.strip_prefix("made ").unwrap();
    assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
    drop(process.stdin.take());
    process.wait().await.unwrap();
    place.assert_nothing_left();
}

#[tokio::test]
async fn caretaker_reports_why_it_cannot_create_its_folder() {
    let Some(place) = Place::without_envoy().await else { return };
    let (_process, said) = caretaker(&place, &place.path().join("nowhere")).await;
    assert!(said.starts_with("failed ") && said.contains("nowhere"), "{said}");
}
