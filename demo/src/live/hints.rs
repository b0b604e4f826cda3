//! Commands to paste into a second terminal, which edit the policy.

use std::path::Path;

/// A command and its purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hint {
    pub(super) command: String,
    pub(super) what: &'static str,
}

/// The commands, for this folder.
pub(super) fn hints(policy_folder: &Path) -> Vec<Hint> {
    let enter = Hint { command: format!("cd {}", quoted(policy_folder)), what: "" };
    let rest = EDITS.iter().map(|(command, what)| Hint { command: (*command).to_owned(), what });
    [enter].into_iter().chain(rest).collect()
}

/// A hint as one line, with its purpose if that fits.
pub(super) fn line(hint: &Hint, columns: usize) -> String {
    let Hint { command, what } = hint;
    let full = format!("  {command:COMMAND_WIDTH$}  # {what}");
    if what.is_empty() || full.chars().count() > columns { format!("  {command}") } else { full }
}

/// The edits. `sed -i` replaces each file by a rename, so the control plane never reads half a file.
const EDITS: [(&str, &str); 5] = [
    ("sed -i 's/weight = [0-9]*/weight = 50/' split.toml", "half to each"),
    (r#"sed -i 's/\["home"\]/["home", "buy"]/' thieves.toml"#, "allow the thief"),
    (r#"sed -i 's/, "buy"//' thieves.toml"#, "deny the thief again"),
    (r#"sed -i 's/"bookbuyer"/"bookbyer"/' buyers.toml"#, "make a mistake"),
    (r#"sed -i 's/"bookbyer"/"bookbuyer"/' buyers.toml"#, "fix the mistake"),
];

const COMMAND_WIDTH: usize = 51;

/// A path quoted for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@%:,".contains(c));
    if is_plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::addresses::Network;
    use crate::policy::PolicyFolder;

    #[test]
    fn hint_commands_have_their_documented_effect() {
        let place = tempfile::Builder::new().prefix("it's a demo-").tempdir().unwrap();
        let network = Network::claim(&[]).unwrap();
        let folder = PolicyFolder::create(place.path().join("policy"), &network).unwrap();
        let hints = hints(folder.path());
        let enter = &hints[0].command;
        let text = |file| fs_err::read_to_string(folder.path().join(file)).unwrap();
        let run = |index: usize| {
            let script = format!("{enter} && {}", hints[index].command);
            assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
        };
        run(1);
        assert_eq!(text("split.toml").matches("weight = 50").count(), 2);
        let thieves = text("thieves.toml");
        run(2);
        assert!(text("thieves.toml").contains("\nrules = [{ kind = \"HTTPRouteGroup\", name = \"bookstore\", matches = [\"home\", \"buy\"] }]"));
        run(3);
        let rules = |text: &str| {
            text.lines()
                .filter(|line| !line.starts_with('#'))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(rules(&text("thieves.toml")), rules(&thieves));
        let buyers = text("buyers.toml");
        run(4);
        assert!(text("buyers.toml").contains("sources = [{ name = \"bookbyer\" }]"));
        run(5);
        assert_eq!(text("buyers.toml"), buyers);
    }

    #[test]
    fn narrow_terminal_shows_hint_commands_without_text() {
        for hint in hints(Path::new("/tmp/ironmesh-demo-abcdef/policy")) {
            assert!(line(&hint, 60).chars().count() <= 60, "{hint:?}");
            assert!(line(&hint, 80).chars().count() <= 80, "{hint:?}");
            assert!(line(&hint, 80).ends_with(hint.what), "{hint:?}");
        }
    }
}
