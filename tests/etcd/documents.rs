//! Policies to push.

use crate::workspace::Workspace;

/// A document with one service.
pub(crate) fn service(name: &str) -> String {
    format!("[[service]]\nname = \"{name}\"\nports = [{{ port = 80, protocol = \"http\" }}]\n")
}

/// Writes a policy of `count` documents with the word `mark` to `folder`; together they exceed
/// etcd's transaction limit.
pub(crate) fn write_large(workspace: &Workspace, folder: &str, mark: &str, count: usize) {
    let filler = format!("# {}\n", "x".repeat(100)).repeat(200);
    for number in 0..count {
        let text = format!("# {mark}\n{}{filler}", service(&format!("s{number}")));
        workspace.write(&format!("{folder}/part-{}/{number}.toml", number % 7), &text);
    }
}
