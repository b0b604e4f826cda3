//! Unmet preconditions of a demo: each error says what to do, and nothing is left.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::Value;
use tokio::process::Command;

use crate::workspace::{Run, Workspace, finish};

/// Writes a script as a fake Envoy.
fn fake_envoy(workspace: &Workspace, name: &str, mode: u32, script: &str) -> PathBuf {
    let path = workspace.path().join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// A script that reports this version, as Envoy does.
fn version_script(version: &str) -> String {
    format!("echo \"$0  version: 0/{version}/Clean/RELEASE/BoringSSL\"")
}

/// Checks that the document of `--check` has the same problems as stderr.
fn assert_document_matches_stderr(run: &Run) {
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(document["passed"], false, "{document:#}");
    let problem = document["problem"].as_str().unwrap();
    assert_eq!(run.stderr.trim_end(), format!("ironmesh: {problem}"));
    let steps = document["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 10, "{document:#}");
    assert!(steps.iter().all(|step| step["problem"] == "not run"), "{document:#}");
}

/// Sets the path of Envoy.
fn named(path: &Path) -> impl Fn(&mut Command) {
    move |command| {
        command.env("ENVOY_BIN", path);
    }
}

/// Checks that the demo is rejected with these words, and leaves nothing.
async fn assert_rejected(workspace: &Workspace, change: impl Fn(&mut Command), words: &[&str]) {
    let json = ["demo", "--check", "--output", "json"];
    for arguments in [&["demo"][..], &["demo", "--check"], &json] {
        let mut command = workspace.command(arguments);
        change(&mut command);
        let run = finish(&mut command).await;
        assert_eq!(run.code, 1, "{run:?}");
        for part in words {
            assert!(run.stderr.contains(part), "no {part:?} in {}", run.stderr);
        }
        if arguments == json {
            assert_document_matches_stderr(&run);
        } else {
            assert_eq!(run.stdout, "");
        }
        // The caretaker may still be running.
        workspace.wait_until_nothing_left().await;
    }
}

#[tokio::test]
async fn missing_envoy_is_reported_with_advice() {
    let Some(workspace) = Workspace::without_envoy().await else { return };
    let words = ["no Envoy found", "`make demo`", "ENVOY_BIN", "PATH"];
    let change = |command: &mut Command| {
        command.env_remove("ENVOY_BIN").env("PATH", "");
    };
    assert_rejected(&workspace, change, &words).await;
}

#[tokio::test]
async fn invalid_envoy_binary_is_named() {
    let Some(workspace) = Workspace::without_envoy().await else { return };
    let file = fake_envoy(&workspace, "file", 0o644, "");
    for path in [file, workspace.path().join("nowhere"), workspace.temporary()] {
        let shown = path.display().to_string();
        let words = ["ENVOY_BIN is not an executable file", &shown];
        assert_rejected(&workspace, named(&path), &words).await;
    }
    let other = fake_envoy(&workspace, "other", 0o755, "echo something else");
    let shown = format!("`{} --version`", other.display());
    assert_rejected(&workspace, named(&other), &[&shown, "`something else`", "set ENVOY_BIN"])
        .await;
}

#[tokio::test]
async fn outdated_envoy_is_rejected_with_the_minimum_version() {
    let Some(workspace) = Workspace::without_envoy().await else { return };
    let old = fake_envoy(&workspace, "old", 0o755, &version_script("1.30.0"));
    let shown = old.display().to_string();
    let words = ["too old: its version is 1.30.0", "1.39.0 or later", "upgrade it", &shown];
    assert_rejected(&workspace, named(&old), &words).await;
}

#[tokio::test]
async fn unusable_temporary_folder_is_reported() {
    let Some(workspace) = Workspace::without_envoy().await else { return };
    let envoy = fake_envoy(&workspace, "envoy", 0o755, &version_script("1.40.0"));
    let within = |temporary: PathBuf| {
        let envoy = envoy.clone();
        move |command: &mut Command| {
            command.env("ENVOY_BIN", &envoy).env("TMPDIR", &temporary);
        }
    };
    let nowhere = workspace.temporary().join("nowhere");
    let shown = nowhere.display().to_string();
    assert_rejected(&workspace, within(nowhere), &[&shown, "set TMPDIR"]).await;
    // Some systems have such long paths, and a socket's path has a maximum length.
    let long = workspace.path().join("long".repeat(30));
    fs::create_dir(&long).unwrap();
    assert_rejected(&workspace, within(long.clone()), &["too long for a socket", "set TMPDIR"])
        .await;
    ironmesh_tests::eventually("the long folder to be empty", async || {
        match fs::read_dir(&long).unwrap().count() {
            0 => Ok(()),
            count => Err(count),
        }
    })
    .await;
}
