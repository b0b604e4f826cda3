//! Reads the command line of the process: colors before everything else, then the commands, with tips for unknown ones.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command as Declaration, CommandFactory as _, FromArgMatches as _};
use ironmesh_terminal::color::{self, ColorChoice};

use crate::examples::with_examples;
use crate::{CertCommand, Cli, Command, OutputFormat, ProxyCommand, TokenCommand};

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

impl Cli {
    /// The declaration of the command line, with examples.
    pub fn declaration() -> Declaration {
        with_examples(Self::command())
    }

    /// Parses the command line. Ends the process if it requests help or is invalid.
    pub fn read() -> Self {
        let arguments: Vec<_> = std::env::args_os().collect();
        // Clap prints help and errors before it returns the value of the flag.
        color::choose(color_of(&arguments));
        let cli = Self::from_arguments(&arguments).unwrap_or_else(|error| error.exit());
        let is_list = match &cli.command {
            Command::Proxy(ProxyCommand::List(_)) | Command::Cert(CertCommand::List(_)) => true,
            Command::Proxy(ProxyCommand::Token(token)) => {
                matches!(token.command, Some(TokenCommand::List(_)))
            }
            _ => false,
        };
        if cli.output == OutputFormat::Wide && !is_list {
            let problem = "only `ironmesh proxy list`, `proxy token list` and `cert list` have `--output wide`";
            colored(Self::command()).error(ErrorKind::InvalidValue, problem).exit();
        }
        cli
    }

    fn from_arguments(arguments: &[OsString]) -> Result<Self, clap::Error> {
        let declaration = colored(Self::declaration());
        let matches = declaration.try_get_matches_from(arguments);
        let cli = matches.and_then(|mut matches| Self::from_arg_matches_mut(&mut matches));
        cli.map_err(|error| with_synonyms(without_hidden(error), arguments))
    }
}

fn colored(declaration: Declaration) -> Declaration {
    declaration.color(match color::choice() {
        ColorChoice::Auto => clap::ColorChoice::Auto,
        ColorChoice::Always => clap::ColorChoice::Always,
        ColorChoice::Never => clap::ColorChoice::Never,
    })
}

/// The value of `--color`, the last if there are several; a bad one is reported by clap.
fn color_of(arguments: &[OsString]) -> ColorChoice {
    let arguments = || arguments.iter().take_while(|argument| *argument != "--");
    let words = arguments().zip(arguments().skip(1).map(Some).chain([None]));
    let values = words.filter_map(|(argument, next)| match argument.to_str()? {
        "--color" => next?.to_str(),
        other => other.strip_prefix("--color="),
    });
    values.last().and_then(|value| value.parse().ok()).unwrap_or_default()
}

/// Removes hidden commands from the suggestions of a clap error. Clap suggests hidden commands as any others.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    let kind = ContextKind::SuggestedSubcommand;
    let suggested = match error.remove(kind) {
        Some(ContextValue::Strings(names)) => names,
        Some(ContextValue::String(name)) => vec![name],
        _ => return error,
    };
    let command = Cli::command();
    let is_hidden =
        |name: &String| command.find_subcommand(name).is_some_and(Declaration::is_hide_set);
    let shown: Vec<_> = suggested.into_iter().filter(|name| !is_hidden(name)).collect();
    if !shown.is_empty() {
        error.insert(kind, ContextValue::Strings(shown));
    }
    error
}

/// Suggests the command that an unknown one means in other tools, before names that are only spelled alike.
fn with_synonyms(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    // The command whose subcommand is unknown.
    let root = Cli::command();
    let words = arguments.iter().skip(1).filter_map(|argument| argument.to_str());
    let known = words.take_while(|word| word != unknown);
    let parent =
        known.fold(&root, |command, word| command.find_subcommand(word).unwrap_or(command));
    let meant = SYNONYMS.iter().filter(|(name, _)| name == unknown).flat_map(|(_, names)| *names);
    let meant: Vec<_> = meant
        .filter(|name| parent.find_subcommand(name).is_some())
        .map(|name| (*name).to_owned())
        .collect();
    if !meant.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(meant));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(Into::into).collect()
    }

    fn suggested(line: &str) -> Option<Vec<String>> {
        let error = Cli::from_arguments(&arguments(line)).unwrap_err();
        match error.get(ContextKind::SuggestedSubcommand) {
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
    fn color_is_known_before_the_command_line_is_parsed() {
        for (line, choice) in [
            ("ironmesh status", ColorChoice::Auto),
            ("ironmesh --color never status", ColorChoice::Never),
            ("ironmesh status --color=always", ColorChoice::Always),
            ("ironmesh --color always status --color never", ColorChoice::Never),
            ("ironmesh --color", ColorChoice::Auto),
            ("ironmesh --color blue", ColorChoice::Auto),
            ("ironmesh demo-child --pid 1 -- --color always", ColorChoice::Auto),
        ] {
            assert_eq!(color_of(&arguments(line)), choice, "{line}");
        }
    }

    #[test]
    fn own_options_come_before_those_of_all_commands() {
        let mut declaration = Cli::declaration();
        declaration.build();
        let list = declaration.find_subcommand_mut("proxy").unwrap();
        let help = list.find_subcommand_mut("list").unwrap().render_long_help().to_string();
        let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("no {text}: {help}"));
        assert!(at("--state") < at("Connection options:"), "{help}");
        assert!(at("Connection options:") < at("--context"), "{help}");
        assert!(at("--context") < at("Global options:"), "{help}");
        assert!(at("Global options:") < at("--color"), "{help}");
        assert!(at("--color") < at("Examples:"), "{help}");
    }
}
