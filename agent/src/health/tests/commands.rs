//! Command probes.

use std::path::Path;

use tempfile::TempDir;

use super::*;

/// A command that runs a script of `sh`.
fn script(text: &str) -> Commands {
    let words = ["/bin/sh", "-c", text].map(str::to_owned).to_vec();
    Commands::from([("check".parse().unwrap(), words)])
}

async fn run(commands: &Commands, limit: Duration) -> Result<(), String> {
    let command = Probe::Command { name: "check".parse().unwrap() };
    probe(&command, ([127, 0, 0, 1], 1).into(), limit, commands).await
}

/// The id of a process that a script has written into a file.
async fn written_id(file: &Path) -> i32 {
    loop {
        let text = fs_err::read_to_string(file).unwrap_or_default();
        if let Some(id) = text.strip_suffix('\n') {
            return id.parse().unwrap();
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until a process has ended, or is only a zombie that its parent has not reaped yet.
async fn wait_for_end(id: i32) {
    let is_running = || {
        let stat = fs_err::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    while is_running() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn command_succeeds_by_its_status() {
    assert_eq!(run(&script("exit 0"), LIMIT).await, Ok(()));
    let failed = run(&script("exit 3"), LIMIT).await.unwrap_err();
    assert!(failed.contains("exit status: 3"), "{failed}");
    let missing = Commands::from([("check".parse().unwrap(), vec!["/no/such/program".to_owned()])]);
    let failed = run(&missing, LIMIT).await.unwrap_err();
    assert!(failed.starts_with("cannot run `/no/such/program`"), "{failed}");
}

#[tokio::test]
async fn command_that_the_machine_does_not_define_is_not_run() {
    let failed = run(&Commands::new(), LIMIT).await.unwrap_err();
    assert_eq!(failed, "`[commands]` of this machine has no `check`");
}

#[tokio::test]
async fn hanging_command_is_killed_with_everything_that_it_forked() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("id");
    let text = format!("sleep 1000 & echo $! > {}; wait", file.display());
    // The limit begins anew, until the busy machine has run the script so far.
    while !file.exists() {
        let failed = run(&script(&text), SHORT).await.unwrap_err();
        assert!(failed.starts_with("no answer within"), "{failed}");
    }
    wait_for_end(written_id(&file).await).await;
}

#[tokio::test]
async fn fork_that_outlives_its_command_is_killed() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("id");
    let text = format!("sleep 1000 & echo $! > {}", file.display());
    assert_eq!(run(&script(&text), LIMIT).await, Ok(()));
    wait_for_end(written_id(&file).await).await;
}

#[tokio::test]
async fn endless_output_is_discarded() {
    let failed = run(&script("yes"), SHORT).await.unwrap_err();
    assert_eq!(failed, "no answer within 200 ms");
}

#[tokio::test]
async fn command_gets_no_environment_of_the_agent() {
    // `env` has PATH, and what the shell adds itself.
    let text = "test \"$(env | grep -v -e ^PATH= -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD=)\" = ''";
    assert_eq!(run(&script(text), LIMIT).await, Ok(()));
}
