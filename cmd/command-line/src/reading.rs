//! Reads the command line of the process: colors before everything else, then the commands, with tips for unknown ones.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command as Declaration, CommandFactory as _, FromArgMatches as _};
use ironmesh_terminal::color::{self, ColorChoice};

use crate::examples::with_examples;
use crate::tips::with_tips;
use crate::{CertCommand, Cli, Command, OutputFormat, ProxyCommand, TokenCommand};

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

    pub(crate) fn from_arguments(arguments: &[OsString]) -> Result<Self, clap::Error> {
        let declaration = colored(Self::declaration());
        let matches = declaration.try_get_matches_from(arguments);
        let cli = matches.and_then(|mut matches| Self::from_arg_matches_mut(&mut matches));
        cli.map_err(|error| with_tips(without_hidden(error), arguments))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(Into::into).collect()
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
