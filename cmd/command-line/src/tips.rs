//! Tips for unknown commands: what people who know other tools type, and words in a different order.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use clap::{Command as Declaration, CommandFactory as _};

use crate::Cli;

/// What people who know other tools type, and the names that these commands have here.
const SYNONYMS: [(&str, &[&str]); 22] = [
    ("ls", &["list", "revisions"]),
    ("get", &["list", "show"]),
    ("describe", &["show"]),
    ("info", &["show"]),
    ("inspect", &["show"]),
    ("cat", &["show"]),
    ("delete", &["revoke", "remove"]),
    ("rm", &["revoke", "remove"]),
    ("del", &["revoke", "remove"]),
    ("remove", &["revoke", "unsilence"]),
    ("create", &["issue", "bootstrap", "add", "init", "silence"]),
    ("new", &["issue", "bootstrap", "add", "init", "silence"]),
    ("add", &["bootstrap", "issue", "silence"]),
    ("evict", &["drain"]),
    ("mute", &["silence"]),
    ("validate", &["check"]),
    ("diff", &["plan"]),
    ("undo", &["rollback"]),
    ("start", &["serve", "run"]),
    ("login", &["ui"]),
    ("logs", &["log", "events", "journal"]),
    ("health", &["status"]),
];

/// What people call the objects of a group of commands, besides its name.
const OBJECTS: [(&str, &str); 14] = [
    ("proxies", "proxy"),
    ("services", "service"),
    ("policies", "policy"),
    ("findings", "finding"),
    ("alerts", "finding"),
    ("certs", "cert"),
    ("certificates", "cert"),
    ("providers", "provider"),
    ("operators", "operator"),
    ("users", "operator"),
    ("sessions", "session"),
    ("logins", "session"),
    ("contexts", "context"),
    ("tokens", "proxy token"),
];

/// The most commands that one tip names.
const MOST: usize = 3;

/// Suggests the command that an unknown one means, before names that are only spelled alike.
pub(crate) fn with_tips(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    // The command whose subcommand is unknown.
    let root = Cli::command();
    let words = || arguments.iter().skip(1).filter_map(|argument| argument.to_str());
    let known = words().take_while(|word| word != unknown);
    let parent =
        known.fold(&root, |command, word| command.find_subcommand(word).unwrap_or(command));
    if parent.get_name() == root.get_name() {
        let next = words().skip_while(|word| word != unknown).nth(1);
        let meant = commands(&root, unknown, next);
        if !meant.is_empty() {
            let tips = meant.iter().map(|words| StyledStr::from(format!("try `ironmesh {words}`")));
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips.collect()));
            error.remove(ContextKind::SuggestedSubcommand);
            return error;
        }
    }
    let meant: Vec<_> = synonyms(unknown)
        .into_iter()
        .filter(|name| parent.find_subcommand(name).is_some())
        .map(str::to_owned)
        .collect();
    if !meant.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(meant));
    }
    error
}

/// The names that commands have here for a word of other tools.
fn synonyms(word: &str) -> Vec<&'static str> {
    let known = SYNONYMS.iter().filter(|(name, _)| *name == word);
    known.flat_map(|(_, names)| names.iter().copied()).collect()
}

/// The commands that the first word means, when it is none itself, with the word after it: `services`, `get proxies`,
/// `silence`.
fn commands(root: &Declaration, word: &str, next: Option<&str>) -> Vec<String> {
    if word == "version" {
        return vec!["--version".to_owned()];
    }
    let verb = |group: &str, verbs: &[&str]| {
        let declaration =
            group.split(' ').try_fold(root, |command, name| command.find_subcommand(name))?;
        let verb = verbs.iter().find(|verb| declaration.find_subcommand(verb).is_some());
        let is_command = !declaration.is_subcommand_required_set();
        verb.map(|verb| format!("{group} {verb}")).or_else(|| is_command.then(|| group.to_owned()))
    };
    let lists: Vec<_> = ["list"].into_iter().chain(synonyms("ls")).collect();
    if let Some(group) = object(word) {
        return verb(group, &lists).into_iter().collect();
    }
    // `get proxies`, `describe proxy`
    let verbs: Vec<_> = [word].into_iter().chain(synonyms(word)).collect();
    if let Some(next) = next.filter(|_| verbs.iter().any(|verb| ["list", "show"].contains(verb))) {
        let group = object(next).unwrap_or(next);
        let verbs: Vec<_> = verbs.iter().chain(&lists).copied().collect();
        return verb(group, &verbs).into_iter().collect();
    }
    // `silence`, which is `finding silence`
    let groups = root.get_subcommands().filter(|group| !group.is_hide_set());
    let of_groups = groups.filter(|group| group.find_subcommand(word).is_some());
    let found: Vec<_> = of_groups.map(|group| format!("{} {word}", group.get_name())).collect();
    if found.len() <= MOST { found } else { Vec::new() }
}

/// The group of commands about the objects with this name.
fn object(name: &str) -> Option<&'static str> {
    OBJECTS.iter().find(|(plural, _)| *plural == name).map(|(_, group)| *group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> clap::Error {
        let arguments: Vec<_> = line.split_whitespace().map(OsString::from).collect();
        Cli::from_arguments(&arguments).unwrap_err()
    }

    fn suggested(line: &str) -> Option<Vec<String>> {
        match error(line).get(ContextKind::SuggestedSubcommand) {
            Some(ContextValue::Strings(names)) => Some(names.clone()),
            Some(ContextValue::String(name)) => Some(vec![name.clone()]),
            _ => None,
        }
    }

    #[test]
    fn words_of_other_tools_are_understood() {
        for (line, names) in [
            ("ironmesh proxy ls", &["list"][..]),
            ("ironmesh proxy --output json get store-1", &["list", "show"]),
            ("ironmesh proxy describe store-1", &["show"]),
            ("ironmesh operator delete ann", &["revoke"]),
            ("ironmesh context rm prod", &["remove"]),
            ("ironmesh policy validate policy", &["check"]),
            ("ironmesh polcy", &["proxy", "policy"]),
        ] {
            let expected = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(suggested(line), Some(expected), "{line}");
        }
        assert_eq!(suggested("ironmesh agent describe"), None);
    }

    #[test]
    fn object_or_verb_in_place_of_a_command_is_understood() {
        for (line, tips) in [
            ("ironmesh services", &["service list"][..]),
            ("ironmesh policies", &["policy revisions"]),
            ("ironmesh tokens", &["proxy token list"]),
            ("ironmesh get proxies", &["proxy list"]),
            ("ironmesh get endpoints", &["endpoints"]),
            ("ironmesh --output json list certs", &["cert list"]),
            ("ironmesh describe service shop/web", &["service show"]),
            ("ironmesh show policy", &["policy show"]),
            ("ironmesh version", &["--version"]),
            ("ironmesh silence IM0734", &["finding silence"]),
            ("ironmesh apply policy", &["policy apply"]),
            ("ironmesh cordon web-1", &["proxy cordon"]),
        ] {
            let text = error(line).to_string();
            for words in tips {
                assert!(text.contains(&format!("tip: try `ironmesh {words}`")), "{line}: {text}");
            }
            assert_eq!(text.matches("tip:").count(), tips.len(), "{line}: {text}");
        }
        // Many groups have it.
        assert!(!error("ironmesh list").to_string().contains("try `"));
    }

    /// Each tip is a command.
    #[test]
    fn objects_are_those_of_commands_with_a_list() {
        let root = Cli::command();
        for (name, _) in OBJECTS {
            assert_eq!(commands(&root, name, None).len(), 1, "{name}");
        }
    }
}
