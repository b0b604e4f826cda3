//! The command line.

mod proxy;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use ironmesh_admin::MAX_REASON;
use ironmesh_catalog::{OutsideAuthority, Provider, ServiceAccount, ServiceName};

use crate::explain::{self, Explained};
pub(crate) use proxy::{
    BootstrapArguments, Declared, ListArguments, ProxyCommand, RevokeArguments, ShowArguments,
};

/// A service mesh for machines: Envoy sidecars on VMs and bare metal, under policy from TOML files.
#[derive(Debug, Parser)]
#[command(name = "ironmesh", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// How results are printed
    #[arg(long, global = true, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads the command line. Ends the process where it asks for help or is not understood.
    pub(crate) fn read() -> Self {
        Self::try_parse().unwrap_or_else(|error| without_hidden(error).exit())
    }
}

/// The error without hidden commands among its suggestions: clap suggests them as it does all others.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    let kind = ContextKind::SuggestedSubcommand;
    let suggested = match error.remove(kind) {
        Some(ContextValue::Strings(names)) => names,
        Some(ContextValue::String(name)) => vec![name],
        _ => return error,
    };
    let command = Cli::command();
    let is_hidden =
        |name: &String| command.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
    let shown: Vec<_> = suggested.into_iter().filter(|name| !is_hidden(name)).collect();
    if !shown.is_empty() {
        error.insert(kind, ContextValue::Strings(shown));
    }
    error
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Text,
    /// For machines
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the control plane
    Serve(ServeArguments),
    /// Tell what is wrong, first: control plane, policy, proxies, and what audit would deny
    ///
    /// Exits with 0 when nothing is wrong, else with 1.
    Status(StatusArguments),
    /// Run the bookstore on this machine: a whole mesh with real Envoys, until Ctrl-C
    ///
    /// Envoy is the one that ENVOY_BIN names, else `envoy` on the PATH.
    Demo(DemoArguments),
    /// What the demo starts its programs through
    #[command(hide = true)]
    DemoChild(DemoChildArguments),
    /// What makes and removes the demo's folder
    #[command(hide = true)]
    DemoCaretaker(DemoCaretakerArguments),
    /// Work on policy
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Work on proxies
    #[command(subcommand)]
    Proxy(ProxyCommand),
    /// Try endpoints providers
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// Tell where the endpoints of services are, and whether they are called; if not, why not
    Endpoints(EndpointsArguments),
    /// Tell what a code of findings means, such as IM0101, and what to do
    Explain(ExplainArguments),
}

/// The variable that names the settings file.
const SETTINGS_VARIABLE: &str = "IRONMESH_CONFIG";

#[derive(Debug, Args)]
pub(crate) struct ConfigArgument {
    /// The settings file [default: /etc/ironmesh/ironmesh.toml, if it is there]
    #[arg(long, value_name = "FILE", env = SETTINGS_VARIABLE)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// The policy folder, in place of the one in the settings [default: /etc/ironmesh/policy]
    #[arg(long, value_name = "DIR")]
    pub(crate) policy: Option<PathBuf>,
    /// Serve before this endpoints provider is reached; services without any other have no endpoints until then
    #[arg(long, value_enum, value_name = "SOURCE")]
    pub(crate) without: Vec<AskedProvider>,
}

/// An endpoints provider that may be out of reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AskedProvider {
    /// Consul
    Consul,
    /// Azure
    Azure,
}

impl AskedProvider {
    pub(crate) fn provider(self) -> Provider {
        match self {
            Self::Consul => Provider::Consul,
            Self::Azure => Provider::Azure,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProviderCommand {
    /// Try Azure
    #[command(subcommand)]
    Azure(AzureCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum AzureCommand {
    /// Ask Azure once what policy asks it, and tell each call, its answer, and the endpoints that come of it
    ///
    /// Nothing is changed anywhere, and no control plane is needed.
    /// Exits with 0 if all was answered, with 1 if something was not, and with 3 if the settings or the policy
    /// would be refused.
    Test(AzureTestArguments),
}

#[derive(Debug, Args)]
pub(crate) struct AzureTestArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// The policy folder, in place of the one in the settings; one file of it is enough
    #[arg(long, value_name = "PATH")]
    pub(crate) policy: Option<PathBuf>,
    /// Ask what this service asks, and no other; may be given several times
    #[arg(long = "service", value_name = "NS/NAME")]
    pub(crate) services: Vec<ServiceName>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Tell the whole story at once, and fail unless each step of it was seen in real responses
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoChildArguments {
    /// The process with which it is to die
    #[arg(long, value_name = "PID")]
    pub(crate) parent: i32,
    /// The program to become, and its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoCaretakerArguments {
    /// The folder to make another in
    pub(crate) parent: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Tell all that is wrong with a policy folder; exits with 3 if it would be refused
    Check(CheckArguments),
    /// Tell what would change if a policy folder came into force: access, splits, and what proxies are sent
    Plan(PlanArguments),
    /// Tell whether a call would be let through, by which rule; and if not, what is missing
    ///
    /// Without --method, --path and --header: in which ways the caller may call at all.
    /// Exits with 0 if it is allowed, with 1 if it is not, and otherwise if there is no answer: with 2 for a
    /// question or a policy that cannot be read, with 3 for a policy with errors, and with 4 where no control
    /// plane answers.
    Explain(PolicyExplainArguments),
    /// Write SMI and Open Service Mesh resources in YAML as policy in TOML
    ///
    /// What cannot be carried over is a comment there, with the reason, and is told on stderr.
    /// Exits with 0 if the policy is good or lacks but what the input does not have, with 1 if nothing
    /// was carried over (the FILE of `--out` is then not written), with 2 if the input means two things
    /// and `--from` does not say which, and with 3 if it is no YAML, or the policy would be refused.
    Import(ImportArguments),
    /// Make a policy folder the policy in etcd; exits with 3 if it would be refused
    Push(PushArguments),
    /// Write the policy that is in etcd to a folder
    Pull(PullArguments),
    /// List the policies that can be rolled back to
    Revisions(RevisionsArguments),
    /// Roll back to an earlier policy revision
    ///
    /// With policy in etcd, its documents are pushed again. With a policy folder, what the folder holds is
    /// not in force until it is something else that passes; rolling back to that revision ends it, too.
    Rollback(RollbackArguments),
    /// Activate a removal from the policy folder that is held back
    ///
    /// The control plane holds it back for `removal_hold` (30 s) when at least half of the objects vanish at once.
    Accept(AcceptRemovalArguments),
    /// Print the JSON schema of policy files, by which editors complete and check them
    Schema,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// Files of YAML; `-` is stdin
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// By whose rules the resources were enforced so far; asked for only where that matters
    #[arg(long, value_enum, value_name = "MESH")]
    pub(crate) from: Option<Rules>,
    /// The file to write, which must not be there yet [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rules {
    /// The SMI specification: `pathRegex` is anchored at the beginning; a rule without `matches`
    /// allows all of its group
    Smi,
    /// Open Service Mesh: `pathRegex` matches the whole path; a rule without `matches` allows nothing
    Osm,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// The policy folder, or one file
    pub(crate) path: PathBuf,
    /// Let this Envoy read what the policy compiles to, too; it runs nothing
    #[arg(long, value_name = "BIN")]
    pub(crate) envoy: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// The code; the letters and leading zeros may be left out
    #[arg(value_name = "CODE", value_parser = explain::code)]
    pub(crate) code: Explained,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// The policy folder that might come into force, or one file
    pub(crate) path: PathBuf,
    /// Let this Envoy read what the policy compiles to before anything is planned; it runs nothing
    #[arg(long, value_name = "BIN")]
    pub(crate) envoy: Option<PathBuf>,
    /// Compare with this folder, and not with what a control plane has in force
    #[arg(long, value_name = "PATH")]
    pub(crate) offline: Option<PathBuf>,
    /// Print what differs inside of each resource, too; without keys
    #[arg(long)]
    pub(crate) resources: bool,
    /// Exit with 5 if something would change
    #[arg(long)]
    pub(crate) detailed_exitcode: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyExplainArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Who calls: a service account
    #[arg(long, value_name = "NS/ACCOUNT", required_unless_present = "from_outside")]
    pub(crate) from: Option<ServiceAccount>,
    /// Who calls from outside of the mesh: an address, or a name in a certificate; both by giving it twice
    #[arg(long, value_name = "ADDRESS|NAME", conflicts_with_all = ["from", "to_host"])]
    pub(crate) from_outside: Vec<String>,
    /// The service that is called
    #[arg(long, value_name = "NS/SERVICE", required_unless_present = "to_host")]
    pub(crate) to: Option<ServiceName>,
    /// What is called outside of the mesh: a host or an address
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["to", "port"])]
    pub(crate) to_host: Option<OutsideAuthority>,
    /// The port of the service [default: its only one, or 80]
    #[arg(long, value_name = "N")]
    pub(crate) port: Option<u16>,
    /// The method of the request [default: GET, where another part of the request is given]
    #[arg(long)]
    pub(crate) method: Option<String>,
    /// Its path, with a query or without [default: /, where another part of the request is given]
    #[arg(long)]
    pub(crate) path: Option<String>,
    /// A header of it; may be given several times [default for host: the service's own name]
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// Ask a policy folder, and not a control plane: endpoints are not known then
    #[arg(long, value_name = "PATH")]
    pub(crate) offline: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PushArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// The policy folder, or one file
    pub(crate) path: PathBuf,
    /// Why: kept with the revision, and shown with it
    #[arg(long, value_name = "TEXT", value_parser = message)]
    pub(crate) message: Option<String>,
    /// Push only if this is the revision in etcd now
    #[arg(long, value_name = "REV")]
    pub(crate) expect: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PullArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// The folder to write, which must not be there yet, or be empty
    pub(crate) path: PathBuf,
    /// One of those that are kept, in place of the one that is current
    #[arg(long, value_name = "REV")]
    pub(crate) revision: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RevisionsArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
}

#[derive(Debug, Args)]
pub(crate) struct AcceptRemovalArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// The revision, or the beginning of it: no other one is activated [default: the one that is held back]
    #[arg(value_name = "REV")]
    pub(crate) revision: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RollbackArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// The revision, or the beginning of it where no other begins so
    #[arg(value_name = "REV")]
    pub(crate) revision: String,
    /// Why: kept, and shown to whoever looks
    #[arg(long, value_name = "TEXT", value_parser = message)]
    pub(crate) message: Option<String>,
}

/// Reads the words that somebody leaves with a policy.
fn message(text: &str) -> Result<String, String> {
    if text.len() > MAX_REASON || text.contains(char::is_control) {
        return Err(format!("expected one line of at most {MAX_REASON} bytes"));
    }
    Ok(text.to_owned())
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct EndpointsArguments {
    #[command(subcommand)]
    pub(crate) command: Option<EndpointsCommand>,
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// The service [default: all of them]
    #[arg(value_name = "NS/SERVICE")]
    pub(crate) service: Option<ServiceName>,
    /// Go on, and show what changes: on a terminal the whole, else a line for each change
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EndpointsCommand {
    /// Believe what the providers of a service tell, though they have lost many of its endpoints at once
    Accept(AcceptArguments),
}

#[derive(Debug, Args)]
pub(crate) struct AcceptArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// The service
    #[arg(value_name = "NS/SERVICE")]
    pub(crate) service: ServiceName,
}

/// Reads `NAME=VALUE` of a header, where the value may be empty.
fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected a name and a value, as in `NAME=VALUE`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }
}
