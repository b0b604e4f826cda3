//! The command that starts a sidecar.

use std::ffi::OsStr;
use std::path::Path;

use ironmesh_sidecar::Patch;

/// The complete command by which a person starts the sidecar of a patch: the variables of its environment, and the
/// process, if it has one.
pub fn start_command(patch: &Patch) -> String {
    let mut words: Vec<String> =
        patch.environment.iter().map(|(name, value)| format!("{name}={}", word(value))).collect();
    if let Some(process) = &patch.process {
        let command = process.standalone();
        words.push(quoted(&command.program));
        words.extend(command.arguments.iter().map(|argument| word(argument)));
    }
    words.join(" ")
}

fn word(text: &OsStr) -> String {
    quoted(Path::new(text))
}

/// A path quoted for a shell.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@%:,".contains(c));
    if is_plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
