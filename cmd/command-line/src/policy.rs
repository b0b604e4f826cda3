//! The arguments of `ironmesh policy …`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use ironmesh_api::MAX_REASON;
use ironmesh_catalog::{OutsideAuthority, ServiceAccount, ServiceName};

use crate::duration::time_limit;
use crate::{AccessArguments, ConfigArgument, ConnectionArguments, PolicyShowArguments};

/// A command of `ironmesh policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
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
    /// Show which accounts may call which service ports: all traffic or some, and by which policy object
    Access(AccessArguments),
    /// Print the documents of the active policy, or of a stored revision
    Show(PolicyShowArguments),
    /// Convert SMI and Open Service Mesh resources from YAML to policy in TOML
    ///
    /// A resource that cannot be converted becomes a comment with the reason, and is reported on stderr.
    /// Exits with 0 if the policy is accepted, or lacks only objects that the input does not have.
    /// Exits with 1 if nothing was converted (the FILE of `--out` is then not written), with 2 if the input is
    /// ambiguous and `--from` is missing, and with 3 if the YAML is invalid or the policy is rejected.
    Import(ImportArguments),
    /// Make a policy folder the active policy, if policy comes from releases
    ///
    /// The control plane keeps the documents as a release, and has them on disk before the command ends.
    /// Exits with 3 if the policy is rejected; the active policy then stays.
    Apply(ApplyArguments),
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
    /// With releases, that release becomes the current one.
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
pub struct ImportArguments {
    /// Read these YAML files; `-` reads stdin
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Interpret ambiguous resources as this mesh enforced them; required only if the input has such resources
    #[arg(long, value_enum, value_name = "MESH")]
    pub from: Option<SourceMesh>,
    /// Write this file, which must not exist yet [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// The mesh whose rules applied to imported resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SourceMesh {
    /// The SMI specification: `pathRegex` is anchored at the beginning; a rule without `matches` allows its whole
    /// group
    Smi,
    /// Open Service Mesh: `pathRegex` matches the whole path; a rule without `matches` allows nothing
    Osm,
}

/// The arguments of `ironmesh policy check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// The settings file.
    #[command(flatten)]
    pub config: ConfigArgument,
    /// Check this policy folder or file
    pub path: PathBuf,
    /// Also validate the compiled resources with this Envoy binary, in `--mode validate`
    #[arg(long, value_name = "BIN")]
    pub envoy: Option<PathBuf>,
}

/// The arguments of `ironmesh policy plan`.
#[derive(Debug, Args)]
pub struct PlanArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Predict the effect of this policy folder or file
    pub path: PathBuf,
    /// First validate the compiled resources with this Envoy binary, in `--mode validate`
    #[arg(long, value_name = "BIN")]
    pub envoy: Option<PathBuf>,
    /// Compare with this policy folder or file instead of the active policy of a control plane
    #[arg(long, value_name = "PATH")]
    pub offline: Option<PathBuf>,
    /// Also print the changed fields of each resource, without private keys
    #[arg(long)]
    pub resources: bool,
    /// Exit with 5 if the policy would change anything
    #[arg(long)]
    pub detailed_exitcode: bool,
}

/// The arguments of `ironmesh policy explain`.
#[derive(Debug, Args)]
pub struct PolicyExplainArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Call as this service account
    #[arg(long, value_name = "NS/ACCOUNT", required_unless_present = "from_outside")]
    pub from: Option<ServiceAccount>,
    /// Call from outside the mesh, with this address or this certificate name; repeat to give both
    #[arg(long, value_name = "ADDRESS|NAME", conflicts_with_all = ["from", "to_host"])]
    pub from_outside: Vec<String>,
    /// Call this service
    #[arg(long, value_name = "NS/SERVICE", required_unless_present = "to_host")]
    pub to: Option<ServiceName>,
    /// Call this host or address outside the mesh
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["to", "port"])]
    pub to_host: Option<OutsideAuthority>,
    /// Call this port of the service [default: its only port, or 80]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Send this method [default: GET, if a path or a header is given]
    #[arg(long)]
    pub method: Option<String>,
    /// Request this path, with or without a query [default: /, if a method or a header is given]
    #[arg(long)]
    pub path: Option<String>,
    /// Send this header; may be repeated [default for host: the service's own name]
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// Evaluate this policy folder or file instead of a control plane; endpoints are then unknown
    #[arg(long, value_name = "PATH")]
    pub offline: Option<PathBuf>,
}

/// The arguments of `ironmesh policy apply`.
#[derive(Debug, Args)]
pub struct ApplyArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Apply this policy folder or file
    #[arg(value_name = "DIR")]
    pub path: PathBuf,
    /// Store this reason with the release
    #[arg(long, value_name = "TEXT", value_parser = message)]
    pub message: Option<String>,
    /// Whether to wait for the proxies.
    #[command(flatten)]
    pub wait: WaitOption,
}

/// The arguments of `ironmesh policy push`.
#[derive(Debug, Args)]
pub struct PushArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Push this policy folder or file
    pub path: PathBuf,
    /// Store this reason with the revision
    #[arg(long, value_name = "TEXT", value_parser = message)]
    pub message: Option<String>,
    /// Push only if this is the current revision in etcd
    #[arg(long, value_name = "REV", value_parser = NonEmptyStringValueParser::new())]
    pub expect: Option<String>,
    /// Whether to wait for the proxies.
    #[command(flatten)]
    pub wait: WaitOption,
}

/// The arguments of `ironmesh policy pull`.
#[derive(Debug, Args)]
pub struct PullArguments {
    /// The settings file.
    #[command(flatten)]
    pub config: ConfigArgument,
    /// Write this folder, which must not exist yet or be empty
    pub path: PathBuf,
    /// Pull this kept revision [default: the current one]
    #[arg(long, value_name = "REV")]
    pub revision: Option<String>,
}

/// The arguments of `ironmesh policy revisions`.
#[derive(Debug, Args)]
pub struct RevisionsArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
}

/// The arguments of `ironmesh policy accept`.
#[derive(Debug, Args)]
pub struct AcceptRemovalArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Activate only this revision, given in full or by its first characters [default: the held-back revision]
    #[arg(value_name = "REV")]
    pub revision: Option<String>,
}

/// The arguments of `ironmesh policy rollback`.
#[derive(Debug, Args)]
pub struct RollbackArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Roll back to this revision, given in full or by unique first characters
    #[arg(value_name = "REV")]
    pub revision: String,
    /// Roll back only if this revision is active (in etcd: current), given in full or by its first characters
    #[arg(long, value_name = "REV", value_parser = NonEmptyStringValueParser::new())]
    pub expect: Option<String>,
    /// Store this reason with the rollback
    #[arg(long, value_name = "TEXT", value_parser = message)]
    pub message: Option<String>,
    /// Whether to wait for the proxies.
    #[command(flatten)]
    pub wait: WaitOption,
}

/// The arguments of `ironmesh policy wait`.
#[derive(Debug, Args)]
pub struct WaitArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Wait for this revision, given in full or by first characters [default: the active one]
    #[arg(long, value_name = "REV")]
    pub revision: Option<String>,
    /// How long to wait.
    #[command(flatten)]
    pub limits: WaitLimits,
}

/// How long to wait, and for which proxies.
#[derive(Debug, Clone, Copy, Args)]
pub struct WaitLimits {
    /// Wait this long at most
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time_limit)]
    pub timeout: Duration,
    /// Wait for disconnected proxies, too
    #[arg(long)]
    pub include_disconnected: bool,
}

/// Whether a command that changes policy waits until the change is synced.
#[derive(Debug, Clone, Copy, Args)]
pub struct WaitOption {
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
    pub fn limits(self) -> Option<WaitLimits> {
        let Self { wait, timeout, include_disconnected } = self;
        wait.then_some(WaitLimits { timeout, include_disconnected })
    }
}

/// Parses the value of `--message`.
fn message(text: &str) -> Result<String, String> {
    if text.len() > MAX_REASON || text.contains(char::is_control) {
        return Err(format!("expected one line of at most {MAX_REASON} bytes"));
    }
    Ok(text.to_owned())
}

/// Parses `NAME=VALUE` of a header. The value may be empty.
fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected a name and a value, as in `NAME=VALUE`".to_owned()),
    }
}
