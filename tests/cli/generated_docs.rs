//! `ironmesh completions` and `ironmesh man`.

use std::process::Command;

use crate::command::Workspace;

#[test]
fn completions_offer_commands_but_no_hidden_ones() {
    let Some(workspace) = Workspace::open() else { return };
    for shell in ["bash", "zsh", "fish"] {
        let run = workspace.run(&["completions", shell]);
        assert_eq!((run.code, &*run.stderr), (0, ""), "{run:?}");
        for shown in ["explain", "set-services", "output"] {
            assert!(run.stdout.contains(shown), "{shell} lacks {shown}");
        }
        assert!(!run.stdout.contains("demo-c"), "{shell} offers a hidden command");
    }
    workspace.write("bash", &workspace.run(&["completions", "bash"]).stdout);
    let script = "source ./bash; COMP_WORDS=(ironmesh pol); COMP_CWORD=1; _ironmesh ironmesh pol; echo $COMPREPLY";
    let output =
        Command::new("bash").args(["-c", script]).current_dir(workspace.path()).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "policy\n");
}

#[test]
fn man_prints_the_first_page_or_writes_a_page_for_each_command() {
    let Some(workspace) = Workspace::open() else { return };
    let run = workspace.run(&["man"]);
    assert_eq!((run.code, &*run.stderr), (0, ""), "{run:?}");
    assert!(run.stdout.contains(".TH ironmesh 1") && run.stdout.contains("ironmesh\\-policy(1)"));

    let run = workspace.run(&["man", "--out", "pages/man1"]);
    assert_eq!((run.code, &*run.stdout), (0, ""), "{run:?}");
    let folder = workspace.path().join("pages/man1");
    for (name, word) in [("ironmesh", "Envoy"), ("ironmesh-policy-check", "PATH")] {
        let page = fs_err::read_to_string(folder.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(word), "{page}");
    }
    let names = fs_err::read_dir(&folder).unwrap();
    let hidden = names
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("demo-c"));
    assert_eq!(hidden.count(), 0);
}
