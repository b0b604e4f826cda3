//! The command line: commands, flags and their help texts. It parses, and runs nothing.

mod proxy;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use ironmesh_admin::MAX_REASON;
use ironmesh_catalog::{OutsideAuthority, Provider, ServiceAccount, ServiceName};
use jiff::SignedDuration;

use crate::explain::{self, Explained};
pub(crate) use proxy::{
    BootstrapArguments, ListArguments, ProxyCommand, RevokeArguments, ShowArguments,
    UpstreamArgument,
};

/// Run and operate a service mesh of Envoy sidecars on virtual machines and bare metal
#[derive(Debug, Parser)]
#[command(name = "ironmesh", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Print results as text or JSON; `proxy list` also as a wide table
    #[arg(short, long, global = true, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses the command line. Ends the process if it requests help or is invalid.
    pub(crate) fn read() -> Self {
        let cli = Self::try_parse().unwrap_or_else(|error| without_hidden(error).exit());
        let is_list = matches!(cli.command, Command::Proxy(ProxyCommand::List(_)));
        if cli.output == OutputFormat::Wide && !is_list {
            let problem = "only `ironmesh proxy list` has `--output wide`";
            Self::command().error(ErrorKind::InvalidValue, problem).exit();
        }
        cli
    }
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
        |name: &String| command.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
    let shown: Vec<_> = suggested.into_iter().filter(|name| !is_hidden(name)).collect();
    if !shown.is_empty() {
        error.insert(kind, ContextValue::Strings(shown));
    }
    error
}

/// The format of results, as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Tables and lines for people
    Text,
    /// Tables with all columns, wider than 80 characters
    Wide,
    /// JSON for scripts
    Json,
}

/// The format of results, for commands without wide tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
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
pub(crate) enum Command {
    /// Run the control plane
    Serve(ServeArguments),
    /// Show the health of the mesh, problems first
    ///
    /// Lists problems of the control plane, the policy and the proxies, and calls that strict mode would deny.
    /// Exits with 0 if there are no problems, otherwise with 1.
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
    /// Check, plan, explain, import, push and roll back policy
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Enroll, list, show and revoke proxies
    #[command(subcommand)]
    Proxy(ProxyCommand),
    /// Test endpoints providers
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// List the endpoints of services, and why any of them get no traffic
    Endpoints(EndpointsArguments),
    /// Explain a finding code, such as IM0101, and how to fix the problem
    Explain(ExplainArguments),
}

/// The environment variable that names the settings file.
const SETTINGS_VARIABLE: &str = "IRONMESH_CONFIG";

/// The flag that names the settings file.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgument {
    /// Read settings from this file [default: /etc/ironmesh/ironmesh.toml, if it exists]
    #[arg(long, value_name = "FILE", env = SETTINGS_VARIABLE)]
    pub(crate) config: Option<PathBuf>,
}

/// The arguments of `ironmesh serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Read policy from this folder instead of the source in the settings [default: /etc/ironmesh/policy]
    #[arg(long, value_name = "DIR")]
    pub(crate) policy: Option<PathBuf>,
    /// Start before this provider answers; services without a second provider have no endpoints until it does
    #[arg(long, value_name = "SOURCE", value_parser = external_provider())]
    pub(crate) without: Vec<Provider>,
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
pub(crate) enum ProviderCommand {
    /// Test the Azure provider
    #[command(subcommand)]
    Azure(AzureCommand),
}

/// A command of `ironmesh provider azure`.
#[derive(Debug, Subcommand)]
pub(crate) enum AzureCommand {
    /// Query Azure once, as policy requires; print each call, its answer and the endpoints found
    ///
    /// The command changes nothing and needs no control plane.
    /// Exits with 0 if Azure answered every query, with 1 if it did not, and with 3 if the settings or the
    /// policy are rejected.
    Test(AzureTestArguments),
}

/// The arguments of `ironmesh provider azure test`.
#[derive(Debug, Args)]
pub(crate) struct AzureTestArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Read policy from this folder or file instead of the source in the settings
    #[arg(long, value_name = "PATH")]
    pub(crate) policy: Option<PathBuf>,
    /// Query only for this service; may be repeated [default: all services that use Azure]
    #[arg(long = "service", value_name = "NS/NAME")]
    pub(crate) services: Vec<ServiceName>,
}

/// The arguments of `ironmesh status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
}

/// The arguments of `ironmesh demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Run all steps once without interaction; fail unless real responses confirm each step
    #[arg(long)]
    pub(crate) check: bool,
}

/// The arguments of the hidden command `demo-child`.
#[derive(Debug, Args)]
pub(crate) struct DemoChildArguments {
    /// Die with this process
    #[arg(long, value_name = "PID")]
    pub(crate) parent: i32,
    /// Become this program, with these arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// The arguments of the hidden command `demo-caretaker`.
#[derive(Debug, Args)]
pub(crate) struct DemoCaretakerArguments {
    /// Create the demo's folder in this folder
    pub(crate) parent: PathBuf,
}

/// A command of `ironmesh policy`.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check a policy folder and print all findings
    ///
    /// Exits with 0 if the policy is accepted, and with 3 if it is rejected.
    Check(CheckArguments),
    /// Predict the effect of a policy folder on access, splits and proxies
    Plan(PlanArguments),
    /// Explain whether a call is allowed, by which rule, or what is missing
    ///
    /// Without --method, --path and --header, the command lists all requests that the caller may send.
    /// Exits with 0 if the call is allowed, and with 1 if it is denied.
    /// Without an answer it exits with 2 (invalid question, or unreadable policy), 3 (policy with errors) or 4
    /// (no control plane answers).
    Explain(PolicyExplainArguments),
    /// Convert SMI and Open Service Mesh resources from YAML to policy in TOML
    ///
    /// A resource that cannot be converted becomes a comment with the reason, and is reported on stderr.
    /// Exits with 0 if the policy is accepted, or lacks only objects that the input does not have.
    /// Exits with 1 if nothing was converted (the FILE of `--out` is then not written), with 2 if the input is
    /// ambiguous and `--from` is missing, and with 3 if the YAML is invalid or the policy is rejected.
    Import(ImportArguments),
    /// Push a policy folder to etcd
    ///
    /// Exits with 3 if the policy is rejected; etcd then keeps its current policy.
    Push(PushArguments),
    /// Write the policy in etcd to a folder
    Pull(PullArguments),
    /// List the policy revisions that a rollback can activate
    Revisions(RevisionsArguments),
    /// Roll back to an earlier policy revision
    ///
    /// With policy in etcd, the command pushes the documents of that revision again.
    /// With a policy folder, the folder's current content stays inactive until it changes to an accepted policy,
    /// or until you roll back to the folder's own revision.
    Rollback(RollbackArguments),
    /// Wait until every proxy that a revision touches has ACKed it
    ///
    /// Exits with 1 if the time is over or another revision becomes active, and names the proxies that have not
    /// ACKed it.
    Wait(WaitArguments),
    /// Activate a held-back removal from the policy folder
    ///
    /// The control plane holds a removal back for `removal_hold` (30 s) if at least half of the objects vanish
    /// at once.
    Accept(AcceptRemovalArguments),
    /// Print the JSON schema of policy files, for completion and checks in editors
    Schema,
}

/// The arguments of `ironmesh policy import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// Read these YAML files; `-` reads stdin
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Interpret ambiguous resources as this mesh enforced them; required only if the input has such resources
    #[arg(long, value_enum, value_name = "MESH")]
    pub(crate) from: Option<SourceMesh>,
    /// Write this file, which must not exist yet [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// The mesh whose rules applied to imported resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SourceMesh {
    /// The SMI specification: `pathRegex` is anchored at the beginning; a rule without `matches` allows its whole
    /// group
    Smi,
    /// Open Service Mesh: `pathRegex` matches the whole path; a rule without `matches` allows nothing
    Osm,
}

/// The arguments of `ironmesh policy check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Check this policy folder or file
    pub(crate) path: PathBuf,
    /// Also validate the compiled resources with this Envoy binary, in `--mode validate`
    #[arg(long, value_name = "BIN")]
    pub(crate) envoy: Option<PathBuf>,
}

/// The arguments of `ironmesh explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// Explain this code; the letters `IM` and leading zeros are optional
    #[arg(value_name = "CODE", value_parser = explain::code)]
    pub(crate) code: Explained,
}

/// The arguments of `ironmesh policy plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Predict the effect of this policy folder or file
    pub(crate) path: PathBuf,
    /// First validate the compiled resources with this Envoy binary, in `--mode validate`
    #[arg(long, value_name = "BIN")]
    pub(crate) envoy: Option<PathBuf>,
    /// Compare with this policy folder or file instead of the active policy of a control plane
    #[arg(long, value_name = "PATH")]
    pub(crate) offline: Option<PathBuf>,
    /// Also print the changed fields of each resource, without private keys
    #[arg(long)]
    pub(crate) resources: bool,
    /// Exit with 5 if the policy would change anything
    #[arg(long)]
    pub(crate) detailed_exitcode: bool,
}

/// The arguments of `ironmesh policy explain`.
#[derive(Debug, Args)]
pub(crate) struct PolicyExplainArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Call as this service account
    #[arg(long, value_name = "NS/ACCOUNT", required_unless_present = "from_outside")]
    pub(crate) from: Option<ServiceAccount>,
    /// Call from outside the mesh, with this address or this certificate name; repeat to give both
    #[arg(long, value_name = "ADDRESS|NAME", conflicts_with_all = ["from", "to_host"])]
    pub(crate) from_outside: Vec<String>,
    /// Call this service
    #[arg(long, value_name = "NS/SERVICE", required_unless_present = "to_host")]
    pub(crate) to: Option<ServiceName>,
    /// Call this host or address outside the mesh
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["to", "port"])]
    pub(crate) to_host: Option<OutsideAuthority>,
    /// Call this port of the service [default: its only port, or 80]
    #[arg(long, value_name = "N")]
    pub(crate) port: Option<u16>,
    /// Send this method [default: GET, if a path or a header is given]
    #[arg(long)]
    pub(crate) method: Option<String>,
    /// Request this path, with or without a query [default: /, if a method or a header is given]
    #[arg(long)]
    pub(crate) path: Option<String>,
    /// Send this header; may be repeated [default for host: the service's own name]
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// Evaluate this policy folder or file instead of a control plane; endpoints are then unknown
    #[arg(long, value_name = "PATH")]
    pub(crate) offline: Option<PathBuf>,
}

/// The arguments of `ironmesh policy push`.
#[derive(Debug, Args)]
pub(crate) struct PushArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Push this policy folder or file
    pub(crate) path: PathBuf,
    /// Store this reason with the revision
    #[arg(long, value_name = "TEXT", value_parser = message)]
    pub(crate) message: Option<String>,
    /// Push only if this is the current revision in etcd
    #[arg(long, value_name = "REV")]
    pub(crate) expect: Option<String>,
    #[command(flatten)]
    pub(crate) wait: WaitOption,
}

/// The arguments of `ironmesh policy pull`.
#[derive(Debug, Args)]
pub(crate) struct PullArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Write this folder, which must not exist yet or be empty
    pub(crate) path: PathBuf,
    /// Pull this kept revision [default: the current one]
    #[arg(long, value_name = "REV")]
    pub(crate) revision: Option<String>,
}

/// The arguments of `ironmesh policy revisions`.
#[derive(Debug, Args)]
pub(crate) struct RevisionsArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
}

/// The arguments of `ironmesh policy accept`.
#[derive(Debug, Args)]
pub(crate) struct AcceptRemovalArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Activate only this revision, given in full or by its first characters [default: the held-back revision]
    #[arg(value_name = "REV")]
    pub(crate) revision: Option<String>,
}

/// The arguments of `ironmesh policy rollback`.
#[derive(Debug, Args)]
pub(crate) struct RollbackArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Roll back to this revision, given in full or by unique first characters
    #[arg(value_name = "REV")]
    pub(crate) revision: String,
    /// Store this reason with the rollback
    #[arg(long, value_name = "TEXT", value_parser = message)]
    pub(crate) message: Option<String>,
    #[command(flatten)]
    pub(crate) wait: WaitOption,
}

/// The arguments of `ironmesh policy wait`.
#[derive(Debug, Args)]
pub(crate) struct WaitArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Wait for this revision, given in full or by first characters [default: the active one]
    #[arg(long, value_name = "REV")]
    pub(crate) revision: Option<String>,
    #[command(flatten)]
    pub(crate) limits: WaitLimits,
}

/// How long to wait, and for which proxies.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct WaitLimits {
    /// Wait this long at most
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time_limit)]
    pub(crate) timeout: Duration,
    /// Wait for disconnected proxies, too
    #[arg(long)]
    pub(crate) include_disconnected: bool,
}

/// Whether a command that changes policy waits until the change is synced.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct WaitOption {
    /// Wait until every proxy that the revision touches has ACKed it
    #[arg(long)]
    wait: bool,
    /// With `--wait`: wait this long at most
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time_limit)]
    timeout: Duration,
    /// With `--wait`: wait for disconnected proxies, too
    #[arg(long, requires = "wait")]
    include_disconnected: bool,
}

impl WaitOption {
    /// The limits of the wait, if there is to be one.
    pub(crate) fn limits(self) -> Option<WaitLimits> {
        let Self { wait, timeout, include_disconnected } = self;
        wait.then_some(WaitLimits { timeout, include_disconnected })
    }
}

/// Parses the value of `--timeout`.
fn time_limit(text: &str) -> Result<Duration, String> {
    let time: SignedDuration = text.parse().map_err(|_| "write a time as `60s` or `5m`")?;
    Duration::try_from(time).map_err(|_| "a time is not negative".to_owned())
}

/// Parses the value of `--message`.
fn message(text: &str) -> Result<String, String> {
    if text.len() > MAX_REASON || text.contains(char::is_control) {
        return Err(format!("expected one line of at most {MAX_REASON} bytes"));
    }
    Ok(text.to_owned())
}

/// The arguments of `ironmesh endpoints`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct EndpointsArguments {
    #[command(subcommand)]
    pub(crate) command: Option<EndpointsCommand>,
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// List the endpoints of this service only [default: all services]
    #[arg(value_name = "NS/SERVICE")]
    pub(crate) service: Option<ServiceName>,
    /// Watch for changes: redraw the table on a terminal, otherwise print a line for each change
    #[arg(long)]
    pub(crate) watch: bool,
}

/// A command of `ironmesh endpoints`.
#[derive(Debug, Subcommand)]
pub(crate) enum EndpointsCommand {
    /// Accept a held-back endpoint removal
    ///
    /// The control plane holds a removal back if a provider loses many endpoints of a service at once.
    Accept(AcceptArguments),
}

/// The arguments of `ironmesh endpoints accept`.
#[derive(Debug, Args)]
pub(crate) struct AcceptArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Accept the endpoints that providers report for this service now
    #[arg(value_name = "NS/SERVICE")]
    pub(crate) service: ServiceName,
}

/// Parses `NAME=VALUE` of a header. The value may be empty.
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
