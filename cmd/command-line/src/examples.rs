//! The examples at the end of the help of each command.
//!
//! A test parses each of them, and requires one for each command without subcommands.

use clap::Command;

/// The commands with their examples, each as it is typed.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("serve", &["ironmesh serve", "ironmesh serve --config ironmesh.toml --policy policy"]),
    ("status", &["ironmesh status --watch", "ironmesh status --context prod --output json"]),
    ("demo", &["ironmesh demo", "ironmesh demo --check"]),
    (
        "policy check",
        &["ironmesh policy check policy", "ironmesh policy check --output json policy"],
    ),
    ("policy plan", &["ironmesh policy plan policy"]),
    (
        "policy explain",
        &["ironmesh policy explain --from shop/buyer --to shop/store --path /books"],
    ),
    ("policy access", &["ironmesh policy access", "ironmesh policy access --namespace shop"]),
    ("policy show", &["ironmesh policy show"]),
    ("policy import", &["ironmesh policy import --out imported.toml split.yaml access.yaml"]),
    ("policy apply", &["ironmesh policy apply policy --message 'open the store' --wait"]),
    ("policy push", &["ironmesh policy push policy"]),
    ("policy pull", &["ironmesh policy pull policy"]),
    ("policy revisions", &["ironmesh policy revisions"]),
    ("policy rollback", &["ironmesh policy rollback 5a40e5f8f6bc"]),
    ("policy wait", &["ironmesh policy wait --revision 5a40e5f8f6bc --timeout 60s"]),
    ("policy accept", &["ironmesh policy accept"]),
    ("policy schema", &["ironmesh policy schema"]),
    (
        "proxy bootstrap",
        &["ironmesh proxy bootstrap --service shop/store --address 10.1.0.7 --out store-1"],
    ),
    ("proxy list", &["ironmesh proxy list", "ironmesh proxy list --state nacked --output wide"]),
    ("proxy show", &["ironmesh proxy show store-1", "ironmesh proxy show store-1 --resources"]),
    ("proxy cordon", &["ironmesh proxy cordon store-1 --reason 'a new disk'"]),
    ("proxy uncordon", &["ironmesh proxy uncordon store-1"]),
    (
        "proxy drain",
        &[
            "ironmesh proxy drain store-1 --dry-run",
            "ironmesh proxy drain store-1 --reason 'a new kernel'",
        ],
    ),
    ("proxy versions", &["ironmesh proxy versions"]),
    ("proxy revoke", &["ironmesh proxy revoke store-1 --reason 'the machine was stolen'"]),
    ("proxy token", &["ironmesh proxy token --service shop/store"]),
    ("proxy token list", &["ironmesh proxy token list"]),
    ("proxy token revoke", &["ironmesh proxy token revoke 5f0c9a1be2d34e67"]),
    ("proxy set-services", &["ironmesh proxy set-services store-1 --service shop/store"]),
    ("cert list", &["ironmesh cert list", "ironmesh cert list --output wide"]),
    ("cert status", &["ironmesh cert status"]),
    (
        "agent join",
        &[
            "ironmesh agent join https://cp1.example.com --token-file token --out proxy --ca-hash sha256:d2a1bf9f8e0c4f7c3ee0c65b1fa3d8c3f2d4e5b60718293a4b5c6d7e8f901234",
        ],
    ),
    ("agent run", &["ironmesh agent run"]),
    ("agent leave", &["ironmesh agent leave"]),
    ("agent status", &["ironmesh agent status"]),
    ("store init", &["ironmesh store init"]),
    ("store export", &["ironmesh store export mesh.export"]),
    ("store import", &["ironmesh store import mesh.export"]),
    ("envoy run", &["ironmesh envoy run"]),
    ("envoy reload", &["ironmesh envoy reload"]),
    ("provider list", &["ironmesh provider list"]),
    ("provider azure test", &["ironmesh provider azure test --policy policy"]),
    ("service list", &["ironmesh service list"]),
    ("service show", &["ironmesh service show shop/store"]),
    ("endpoints", &["ironmesh endpoints", "ironmesh endpoints shop/store --watch"]),
    ("endpoints accept", &["ironmesh endpoints accept shop/store"]),
    ("finding list", &["ironmesh finding list"]),
    (
        "finding silence",
        &["ironmesh finding silence IM0726 --object proxy:store-1 --for 2h --reason maintenance"],
    ),
    ("finding unsilence", &["ironmesh finding unsilence 0a1b2c3d"]),
    ("events", &["ironmesh events", "ironmesh events --no-follow --output json"]),
    ("journal", &["ironmesh journal", "ironmesh journal --kind policy --follow"]),
    (
        "log level",
        &["ironmesh log level", "ironmesh log level info,ironmesh_xds_server=debug --for 10m"],
    ),
    ("operator request", &["ironmesh operator request ann"]),
    ("operator issue", &["ironmesh operator issue ann --role operator --csr ann.csr"]),
    ("operator token", &["ironmesh operator token ci --role viewer --expires 7d"]),
    ("operator list", &["ironmesh operator list"]),
    ("operator revoke", &["ironmesh operator revoke ann --reason 'left the team'"]),
    ("ui", &["ironmesh ui", "ironmesh ui --role viewer"]),
    ("session list", &["ironmesh session list"]),
    ("session revoke", &["ironmesh session revoke 5f0c9a1be2d34e67"]),
    ("context add", &["ironmesh context add prod --credential ann.json --key ann.key"]),
    ("context list", &["ironmesh context list"]),
    ("context use", &["ironmesh context use prod"]),
    ("context remove", &["ironmesh context remove prod"]),
    ("explain", &["ironmesh explain IM0101", "ironmesh explain 101"]),
    ("settings", &["ironmesh settings"]),
    ("completions", &["ironmesh completions bash > /etc/bash_completion.d/ironmesh"]),
    ("man", &["ironmesh man --out /usr/local/share/man/man1"]),
];

/// The same command line with examples in the help texts.
pub(crate) fn with_examples(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (path, examples)| {
        let text = format!("Examples:\n  {}", examples.join("\n  "));
        at(command, path, &text)
    })
}

/// Adds a text at the end of the help of the command at `path`.
fn at(command: Command, path: &str, text: &str) -> Command {
    let (name, rest) = path.split_once(' ').unwrap_or((path, ""));
    command.mut_subcommand(name, |inner| match rest {
        "" => inner.after_help(text.to_owned()),
        rest => at(inner, rest, text),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;

    /// The words of an example: a shell would remove the quotes and the redirection.
    fn words(example: &str) -> Vec<String> {
        let example = example.split(" > ").next().unwrap();
        let parts = example.split('\'').enumerate();
        parts
            .flat_map(|(n, part)| match n % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            })
            .collect()
    }

    /// The shown commands that run something, by their names.
    fn commands(command: &Command, path: &str, found: &mut BTreeSet<String>) {
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            let path = format!("{path} {}", inner.get_name()).trim().to_owned();
            if !inner.is_subcommand_required_set() {
                found.insert(path.clone());
            }
            commands(inner, &path, found);
        }
    }

    #[test]
    fn each_command_has_examples() {
        let mut expected = BTreeSet::new();
        commands(&Cli::command(), "", &mut expected);
        let found: BTreeSet<_> = EXAMPLES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(found, expected);
        assert_eq!(found.len(), EXAMPLES.len(), "each command once");
    }

    #[test]
    fn each_example_is_valid_and_of_its_command() {
        let problem = |path: &str, example: &str| {
            let matches = match Cli::command().try_get_matches_from(words(example)) {
                Ok(matches) => matches,
                Err(error) => return Some(format!("{example}: {error}")),
            };
            let mut names = Vec::new();
            let mut inner = &matches;
            while let Some((name, next)) = inner.subcommand() {
                names.push(name);
                inner = next;
            }
            (names.join(" ") != path).then(|| format!("{example}: not of `{path}`"))
        };
        let all =
            EXAMPLES.iter().flat_map(|(path, examples)| examples.iter().map(move |e| (path, e)));
        let problems: Vec<_> = all.filter_map(|(path, example)| problem(path, example)).collect();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}
