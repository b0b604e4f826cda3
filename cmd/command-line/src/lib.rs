//! The command line of `ironmesh`: its commands, their flags, and the help texts.
//!
//! It owns this declaration, which the program, its completions and its man pages share. It parses, and runs nothing: it
//! opens no file and no connection.

mod agent;
mod cert;
mod context;
mod duration;
mod envoy;
mod events;
mod examples;
mod finding;
mod journal;
mod listeners;
mod log;
mod operator;
mod policy;
mod proxy;
mod reading;
mod service;
mod session;
mod store;
mod tips;
mod token;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use ironmesh_catalog::{Provider, ServiceName};
use ironmesh_terminal::color::ColorChoice;
use ironmesh_terminal::explained::{self, Explained};

pub use agent::{AgentCommand, AgentConfigArgument, JoinArguments};
pub use cert::{CertCommand, CertListArguments, CertStatusArguments};
pub use context::{ContextName, ServerAddress};
pub use envoy::EnvoyCommand;
pub use events::EventsArguments;
pub use finding::{FindingCommand, FindingListArguments, SilenceArguments, UnsilenceArguments};
pub use journal::{JournalArguments, JournalStart};
pub use listeners::ListenerArguments;
pub use log::{LogCommand, LogLevelArguments};
pub use operator::{
    ContextAddArguments, ContextCommand, ContextNameArgument, NewCredentialArguments,
    OperatorCommand, OperatorIssueArguments, OperatorListArguments, OperatorRequestArguments,
    OperatorRevokeArguments, OperatorTokenArguments,
};
pub use policy::{
    AcceptRemovalArguments, ApplyArguments, CheckArguments, ImportArguments, PlanArguments,
    PolicyCommand, PolicyExplainArguments, PullArguments, PushArguments, RevisionsArguments,
    RollbackArguments, SourceMesh, WaitArguments, WaitLimits, WaitOption,
};
pub use proxy::{
    BootstrapArguments, CordonArguments, ListArguments, ProxyCommand, RevokeArguments,
    SetServicesArguments, ShowArguments, VersionsArguments,
};
pub use service::{
    AccessArguments, PolicyShowArguments, ServiceCommand, ServiceListArguments,
    ServiceShowArguments,
};
pub use session::{SessionCommand, SessionListArguments, SessionRevokeArguments, UiArguments};
pub use store::{StoreCommand, StoreExportArguments, StoreImportArguments, StoreInitArguments};
pub use token::{TokenArguments, TokenCommand, TokenListArguments, TokenRevokeArguments};

/// Run and operate a service mesh of Envoy sidecars on virtual machines and bare metal
#[derive(Debug, Parser)]
#[command(name = "ironmesh", version, arg_required_else_help = true)]
pub struct Cli {
    /// Print results as text or JSON; `proxy list`, `proxy token list` and `cert list` also as a wide table
    #[arg(short, long, global = true, value_enum, default_value_t = OutputFormat::Text)]
    #[arg(help_heading = GLOBAL_OPTIONS, hide_possible_values = true)]
    pub output: OutputFormat,
    /// Use colors: `auto` on a terminal, unless NO_COLOR is set; `always`; or `never`
    #[arg(long, global = true, value_name = "WHEN", default_value_t)]
    #[arg(help_heading = GLOBAL_OPTIONS)]
    pub color: ColorChoice,
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The format of results, as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Tables and lines for people
    Text,
    /// Tables with all columns, wider than 80 characters
    Wide,
    /// JSON for scripts
    Json,
}

/// The format of results, for commands without wide tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Tables and lines for people.
    Text,
    /// JSON for scripts.
    Json,
}

impl From<OutputFormat> for Output {
    fn from(format: OutputFormat) -> Self {
        match format {
            OutputFormat::Text | OutputFormat::Wide => Self::Text,
            OutputFormat::Json => Self::Json,
        }
    }
}

/// A top-level command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the control plane
    Serve(ServeArguments),
    /// Show the health of the mesh, problems first
    ///
    /// Lists problems of the control plane, the policy and the proxies, and calls that strict mode would deny.
    /// Exits with 0 if there are no problems, otherwise with 1; with --watch, it runs until Ctrl-C.
    Status(StatusArguments),
    /// Run the bookstore example on this machine, with real Envoys, until Ctrl-C
    ///
    /// The demo runs the Envoy that ENVOY_BIN names, otherwise `envoy` on the PATH.
    Demo(DemoArguments),
    /// Start a program of the demo that dies with the demo
    #[command(hide = true)]
    DemoChild(DemoChildArguments),
    /// Create the demo's folder, and remove it when the demo ends
    #[command(hide = true)]
    DemoCaretaker(DemoCaretakerArguments),
    /// Check, plan, explain, import, apply, push and roll back policy
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Enroll, list, show and revoke proxies
    #[command(subcommand)]
    Proxy(ProxyCommand),
    /// List certificates, and show which need attention
    #[command(subcommand)]
    Cert(CertCommand),
    /// Enroll this machine, renew its certificate, and show its status
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Create the key-encryption key and the store of a mesh; move a mesh to another store
    #[command(subcommand)]
    Store(StoreCommand),
    /// Run and reload the Envoy of this machine
    #[command(subcommand)]
    Envoy(EnvoyCommand),
    /// List and test endpoints providers
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// List the services of policy, and show one with its callers
    #[command(subcommand)]
    Service(ServiceCommand),
    /// List the endpoints of services, and why any of them get no traffic
    Endpoints(EndpointsArguments),
    /// List active findings, and silence them for a while
    #[command(subcommand)]
    Finding(FindingCommand),
    /// Show or change the level of the control plane's log
    #[command(subcommand)]
    Log(LogCommand),
    /// List who changed what: enrollments, revocations, policy, rollbacks, certificates
    Journal(JournalArguments),
    /// Print what happens in the mesh: journal entries, findings, proxies, policy, providers
    Events(EventsArguments),
    /// Give operators access on the network, and revoke it
    #[command(subcommand)]
    Operator(OperatorCommand),
    /// Print a link that logs a browser in, once
    ///
    /// The link is valid for 5 minutes, and the session for 12 hours. Open it in a browser that reaches `listen.api`.
    Ui(UiArguments),
    /// List and revoke the sessions of browsers
    #[command(subcommand)]
    Session(SessionCommand),
    /// Choose the mesh that commands use, by a credential of an operator
    #[command(subcommand)]
    Context(ContextCommand),
    /// Explain a finding code, such as IM0101, and how to fix the problem
    Explain(ExplainArguments),
    /// Show the effective settings of the control plane, without any secret
    Settings(SettingsArguments),
    /// Print completions for a shell
    Completions(CompletionsArguments),
    /// Print the man page, or write a man page for each command
    Man(ManArguments),
}

/// The heading of the flags that choose a control plane.
const CONNECTION_OPTIONS: &str = "Connection options";

/// The heading of the flags that all commands have.
const GLOBAL_OPTIONS: &str = "Global options";

/// The environment variable that names the settings file.
const SETTINGS_VARIABLE: &str = "IRONMESH_CONFIG";

/// The flag that names the settings file.
#[derive(Debug, Args)]
pub struct ConfigArgument {
    /// Read settings from this file [default: /etc/ironmesh/ironmesh.toml, if it exists]
    #[arg(long, value_name = "FILE", env = SETTINGS_VARIABLE, help_heading = CONNECTION_OPTIONS)]
    pub config: Option<PathBuf>,
}

/// The flags that choose a control plane.
#[derive(Debug, Args)]
pub struct ConnectionArguments {
    /// The settings file.
    #[command(flatten)]
    pub settings: ConfigArgument,
    // (The variables are read in `context.rs`: a flag beats each of them, also the variable of another flag.)
    /// Use the control plane of this context; `local` is this machine's [env: IRONMESH_CONTEXT] [default: the one of
    /// `context use`]
    #[arg(long, value_name = "NAME", help_heading = CONNECTION_OPTIONS)]
    pub context: Option<ContextName>,
    /// Connect to this control plane instead of those of the context [env: IRONMESH_SERVER]
    #[arg(long, value_name = "HOST:PORT", help_heading = CONNECTION_OPTIONS)]
    pub server: Option<ServerAddress>,
}

/// The flag that watches a result.
#[derive(Debug, Args)]
pub struct WatchArgument {
    /// Read the result each second: redraw it on a terminal, otherwise print it again after each change
    #[arg(long)]
    pub watch: bool,
}

/// The arguments of `ironmesh serve`.
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// The settings file.
    #[command(flatten)]
    pub config: ConfigArgument,
    /// Read policy from this folder instead of the source in the settings [default: /etc/ironmesh/policy]
    #[arg(long, value_name = "DIR")]
    pub policy: Option<PathBuf>,
    /// Start before this provider answers; services without a second provider have no endpoints until it does
    #[arg(long, value_name = "SOURCE", value_parser = external_provider())]
    pub without: Vec<Provider>,
    /// Accept a store in etcd that is older than what this control plane had: later revocations and enrollments are lost
    #[arg(long)]
    pub accept_older_store: bool,
}

/// Parses the name of an external provider, which may be unreachable when the control plane starts.
fn external_provider() -> impl TypedValueParser<Value = Provider> {
    let names = Provider::external()
        .map(|provider| PossibleValue::new(provider.name()).help(provider.title()));
    PossibleValuesParser::new(names).try_map(|name| {
        Provider::external().find(|provider| provider.name() == name).ok_or("unknown provider")
    })
}

/// A command of `ironmesh provider`.
#[derive(Debug, Subcommand)]
pub enum ProviderCommand {
    /// List the endpoints providers of the mesh: their state, the age of their answers, and counts
    List(ProviderListArguments),
    /// Test the Azure provider
    #[command(subcommand)]
    Azure(AzureCommand),
}

/// The arguments of `ironmesh provider list`.
#[derive(Debug, Args)]
pub struct ProviderListArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
}

/// The arguments of `ironmesh settings`.
#[derive(Debug, Args)]
pub struct SettingsArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
}

/// A command of `ironmesh provider azure`.
#[derive(Debug, Subcommand)]
pub enum AzureCommand {
    /// Query Azure once, as policy requires; print each call, its answer and the endpoints found
    ///
    /// The command changes nothing and needs no control plane.
    /// Exits with 0 if Azure answered every query, with 1 if it did not, and with 3 if the settings or the
    /// policy are rejected.
    Test(AzureTestArguments),
}

/// The arguments of `ironmesh provider azure test`.
#[derive(Debug, Args)]
pub struct AzureTestArguments {
    /// The settings file.
    #[command(flatten)]
    pub config: ConfigArgument,
    /// Read policy from this folder or file instead of the source in the settings
    #[arg(long, value_name = "PATH")]
    pub policy: Option<PathBuf>,
    /// Query only for this service; may be repeated [default: all services that use Azure]
    #[arg(long = "service", value_name = "NS/NAME")]
    pub services: Vec<ServiceName>,
}

/// The arguments of `ironmesh status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Whether to watch.
    #[command(flatten)]
    pub watch: WatchArgument,
}

/// The arguments of `ironmesh demo`.
#[derive(Debug, Args)]
pub struct DemoArguments {
    /// Run all steps once without interaction; fail unless real responses confirm each step
    #[arg(long)]
    pub check: bool,
}

/// The arguments of the hidden command `demo-child`.
#[derive(Debug, Args)]
pub struct DemoChildArguments {
    /// Die with this process
    #[arg(long, value_name = "PID")]
    pub parent: i32,
    /// Become this program, with these arguments
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// The arguments of the hidden command `demo-caretaker`.
#[derive(Debug, Args)]
pub struct DemoCaretakerArguments {
    /// Create the demo's folder in this folder
    pub parent: PathBuf,
}

/// The arguments of `ironmesh completions`.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// Print completions for this shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// The arguments of `ironmesh man`.
#[derive(Debug, Args)]
pub struct ManArguments {
    /// Write a page for each command into this folder, instead of printing the first page
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// The arguments of `ironmesh explain`.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// Explain this code; the letters `IM` and leading zeros are optional
    #[arg(value_name = "CODE", value_parser = explained::code)]
    pub code: Explained,
}

/// The arguments of `ironmesh endpoints`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct EndpointsArguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Option<EndpointsCommand>,
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// List the endpoints of this service only [default: all services]
    #[arg(value_name = "NS/SERVICE")]
    pub service: Option<ServiceName>,
    /// Read the endpoints each second: redraw the table on a terminal, otherwise print a line for each change
    #[arg(long)]
    pub watch: bool,
}

/// A command of `ironmesh endpoints`.
#[derive(Debug, Subcommand)]
pub enum EndpointsCommand {
    /// Accept a held-back endpoint removal
    ///
    /// The control plane holds a removal back if a provider loses many endpoints of a service at once.
    Accept(AcceptArguments),
}

/// The arguments of `ironmesh endpoints accept`.
#[derive(Debug, Args)]
pub struct AcceptArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Accept the endpoints that providers report for this service now
    #[arg(value_name = "NS/SERVICE")]
    pub service: ServiceName,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_of_bootstrap_has_both_of_its_forms() {
        let mut cli = Cli::command();
        let proxy = cli.find_subcommand_mut("proxy").unwrap();
        let bootstrap = proxy.find_subcommand_mut("bootstrap").unwrap();
        let usage = bootstrap.render_usage().to_string();
        let lines: Vec<_> = usage.lines().collect();
        let [enroll, renew] = lines[..] else { panic!("{usage}") };
        assert!(enroll.ends_with("--service <NS/NAME> --address <IP> --out <DIR>"), "{usage}");
        assert!(renew.ends_with("--renew <DIR> [--force]"), "{usage}");
    }

    #[test]
    fn agent_join_needs_a_token_file_or_azure() {
        let hash = format!("sha256:{}", "ab".repeat(32));
        let join = |proof: &[&str]| {
            let common = ["ironmesh", "agent", "join", "https://cp", "--ca-hash", &hash];
            let arguments = common.iter().chain(&["--out", "proxy"]).chain(proof).copied();
            Cli::try_parse_from(arguments).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(join(&["--azure"]), Ok(()));
        assert_eq!(join(&["--token-file", "token"]), Ok(()));
        let error = join(&[]).unwrap_err();
        assert!(error.contains("<--token-file <FILE>|--azure>"), "{error}");
        let error = join(&["--azure", "--token-file", "token"]).unwrap_err();
        assert!(error.contains("cannot be used with"), "{error}");
    }
}
