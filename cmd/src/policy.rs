//! `ironmesh policy`: dispatches to one module per command.

mod accept;
mod access;
mod apply;
mod check;
mod explain;
mod import;
mod offline;
mod plan;
mod pull;
mod push;
mod revisions;
mod rollback;
mod schema;
mod show;
mod wait;

use std::path::Path;

use anyhow::bail;
use ironmesh_command_line::{ConfigArgument, Output, PolicyCommand};
use ironmesh_config_settings::PolicyLocation;
use ironmesh_config_sources::{EtcdPolicy, commit_of};
use ironmesh_control_plane::current_release;
use ironmesh_control_plane::user_name;

pub(crate) use self::check::{print_loaded, rejection};
use crate::resolved_settings::ResolvedSettings;

/// Runs a policy command.
pub(crate) async fn run(command: PolicyCommand, output: Output) -> anyhow::Result<()> {
    match command {
        PolicyCommand::Check(arguments) => check::check(&arguments, output).await,
        PolicyCommand::Plan(arguments) => plan::plan(&arguments, output).await,
        PolicyCommand::Explain(arguments) => explain::explain(arguments, output).await,
        PolicyCommand::Access(arguments) => access::access(&arguments, output).await,
        PolicyCommand::Show(arguments) => show::show(arguments, output).await,
        PolicyCommand::Import(arguments) => import::import(&arguments, output),
        PolicyCommand::Apply(arguments) => Box::pin(apply::apply(arguments, output)).await,
        PolicyCommand::Push(arguments) => Box::pin(push::push(arguments, output)).await,
        PolicyCommand::Pull(arguments) => pull::pull(arguments, output).await,
        PolicyCommand::Revisions(arguments) => {
            Box::pin(revisions::revisions(&arguments, output)).await
        }
        PolicyCommand::Accept(arguments) => accept::accept(arguments, output).await,
        PolicyCommand::Wait(arguments) => wait::wait(arguments, output).await,
        PolicyCommand::Schema => Ok(schema::print()?),
        PolicyCommand::Rollback(arguments) => Box::pin(rollback::rollback(arguments, output)).await,
    }
}

/// Opens the policy in etcd that the settings name.
fn open_etcd(config: &ConfigArgument) -> anyhow::Result<EtcdPolicy> {
    let resolved = ResolvedSettings::load(config)?;
    match resolved.policy {
        PolicyLocation::Etcd(etcd) => Ok(EtcdPolicy::open(etcd)?),
        PolicyLocation::Folder(folder) => bail!(
            "policy comes from the folder `{}`: to keep it in etcd, set `[policy.etcd] endpoints` in the \
             settings instead, and name the settings file with --config",
            folder.display()
        ),
        PolicyLocation::Releases => bail!(
            "policy comes from releases, not from etcd: `ironmesh policy apply DIR` makes one, and `{}` holds the \
             active one",
            current_release(&resolved.state).display()
        ),
    }
}

/// The git commit of a policy folder. `action` names what continues without it, if git fails.
#[expect(clippy::print_stderr, reason = "a notice beside the result")]
async fn commit(path: &Path, action: &str) -> Option<String> {
    let commit = commit_of(path).await;
    commit.unwrap_or_else(|error| {
        eprintln!("ironmesh: {action} the revision without its commit: {error}");
        None
    })
}

/// The user who runs this command, as `name@host`.
fn current_user() -> String {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let uid = rustix::process::getuid().as_raw();
    // Under sudo, the user who called sudo. Jobs and units often lack the other variables.
    let name = set("SUDO_USER").or_else(|| set("USER")).or_else(|| set("LOGNAME"));
    let name = name.or_else(|| user_name(uid)).unwrap_or_else(|| format!("uid {uid}"));
    let user = format!("{name}@{}", rustix::system::uname().nodename().to_string_lossy());
    // Other users see it, in one line.
    user.chars().filter(|c| !c.is_control()).take(100).collect()
}
