//! The hidden commands: one ties a program to a demo, and one removes its folder.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use fs_err as fs;
use ironmesh_tests::eventually::patience;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::workspace::{Workspace, finish};

#[tokio::test]
async fn demo_child_replaces_itself_with_the_program() {
    let Some(workspace) = Workspace::without_envoy().await else { return };
    let parent = std::process::id().to_string();
    let tied = ["demo-child", "--parent", &parent, "--", "sh", "-c", "echo $PPID; exit 7"];
    let run = finish(&mut workspace.command(&tied)).await;
    assert_eq!((run.code, run.stdout.trim()), (7, parent.as_str()), "{run:?}");
}

#[tokio::test]
async fn demo_child_does_not_start_without_its_parent() {
    let Some(workspace) = Workspace::without_envoy().await else { return };
    // The system assigns no such id.
    let gone = i32::MAX.to_string();
    let tied = ["demo-child", "--parent", &gone, "--", "echo", "here"];
    let run = finish(&mut workspace.command(&tied)).await;
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
    assert!(run.stderr.contains("the parent is gone already"), "{}", run.stderr);
}

#[tokio::test]
async fn demo_child_names_a_missing_program() {
    let Some(workspace) = Workspace::without_envoy().await else { return };
    let parent = std::process::id().to_string();
    let tied = ["demo-child", "--parent", &parent, "--", "nowhere/x"];
    let run = finish(&mut workspace.command(&tied)).await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("cannot run `nowhere/x`"), "{}", run.stderr);
}

/// A caretaker, and its first output.
async fn caretaker(workspace: &Workspace, parent: &Path) -> (Child, String) {
    let mut command = workspace.command(&["demo-caretaker", parent.to_str().unwrap()]);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut first_line = String::new();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    timeout(patience(), stdout.read_line(&mut first_line)).await.unwrap().unwrap();
    (process, first_line.trim_end().to_owned())
}

/// The caretaker's folder with a file in it, after it read `told` and the end of its pipe.
async fn end_caretaker(workspace: &Workspace, reported: &[u8]) -> PathBuf {
    let (mut process, first_line) = caretaker(workspace, &workspace.temporary()).await;
    let folder = PathBuf::from(first_line.strip_prefix("made ").unwrap());
    assert!(folder.starts_with(workspace.temporary()));
    fs::create_dir_all(folder.join("state/deep")).unwrap();
    fs::write(folder.join("state/deep/file"), "text").unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(reported).await.unwrap();
    drop(stdin);
    assert!(timeout(patience(), process.wait()).await.unwrap().unwrap().success());
    folder
}

#[tokio::test]
async fn caretaker_removes_its_folder_unless_instructed_to_keep_it() {
    let Some(workspace) = Workspace::without_envoy().await else { return };
    let removed = end_caretaker(&workspace, b"").await;
    assert!(!removed.exists());
    let kept = end_caretaker(&workspace, b"keep\n").await;
    assert_eq!(fs::read_to_string(kept.join("state/deep/file")).unwrap(), "text");
    fs::remove_dir_all(kept).unwrap();
    workspace.assert_nothing_left();
}

/// A program without a death signal that names this folder, or none.
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
    let Some(workspace) = Workspace::without_envoy().await else { return };
    // The kernel ends none of these.
    for word in ["", "keep\n"] {
        let (mut process, first_line) = caretaker(&workspace, &workspace.temporary()).await;
        let folder = PathBuf::from(first_line.strip_prefix("made ").unwrap());
        let mut left = stray(Some(&folder));
        // One whose id might be reused, and one that the caretaker was not given.
        let (mut stranger, mut unlisted) = (stray(None), stray(Some(&folder)));
        let (one, other) = (left.id().unwrap(), stranger.id().unwrap());
        let reported = format!("child {one}\nchild {other}\nchild {}\nchild x\n{word}", i32::MAX);
        let mut stdin = process.stdin.take().unwrap();
        stdin.write_all(reported.as_bytes()).await.unwrap();
        drop(stdin);
        assert!(timeout(patience(), process.wait()).await.unwrap().unwrap().success());
        let status = timeout(patience(), left.wait()).await.unwrap().unwrap();
        assert_eq!(status.signal(), Some(9), "{status}");
        for other in [stranger.try_wait(), unlisted.try_wait()] {
            assert_eq!(other.unwrap(), None);
        }
        unlisted.kill().await.unwrap();
        assert_eq!(folder.exists(), !word.is_empty());
        if folder.exists() {
            fs::remove_dir_all(folder).unwrap();
        }
    }
    workspace.assert_nothing_left();
}

#[tokio::test]
async fn caretaker_folder_is_private() {
    use std::os::unix::fs::PermissionsExt as _;

    let Some(workspace) = Workspace::without_envoy().await else { return };
    let (mut process, first_line) = caretaker(&workspace, &workspace.temporary()).await;
    let folder = first_line.strip_prefix("made ").unwrap();
    assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
    drop(process.stdin.take());
    process.wait().await.unwrap();
    workspace.assert_nothing_left();
}

#[tokio::test]
async fn caretaker_reports_why_it_cannot_create_its_folder() {
    let Some(workspace) = Workspace::without_envoy().await else { return };
    let (_process, first_line) = caretaker(&workspace, &workspace.path().join("nowhere")).await;
    assert!(first_line.starts_with("failed ") && first_line.contains("nowhere"), "{first_line}");
}
