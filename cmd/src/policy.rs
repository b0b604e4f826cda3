//! `ironmesh policy …`

mod accept;
mod check;
mod envoy;
mod explain;
mod import;
mod offline;
mod plan;
mod pull;
mod push;
mod revisions;
mod rollback;
mod schema;

use anyhow::bail;
use ironmesh_config_settings::PolicyPlace;
use ironmesh_config_sources::EtcdPolicy;

pub(crate) use self::check::{refusal, tell};
use crate::cli::{ConfigArgument, Output, PolicyCommand};
use crate::places::Places;

pub(crate) async fn run(command: PolicyCommand, output: Output) -> anyhow::Result<()> {
    match command {
        PolicyCommand::Check(arguments) => check::check(&arguments, output).await,
        PolicyCommand::Plan(arguments) => plan::plan(&arguments, output).await,
        PolicyCommand::Explain(arguments) => explain::explain(arguments, output).await,
        PolicyCommand::Import(arguments) => import::import(&arguments, output),
        PolicyCommand::Push(arguments) => push::push(arguments, output).await,
        PolicyCommand::Pull(arguments) => pull::pull(arguments, output).await,
        PolicyCommand::Revisions(arguments) => revisions::revisions(&arguments, output).await,
        PolicyCommand::Accept(arguments) => accept::accept(arguments, output).await,
        PolicyCommand::Schema => Ok(schema::print()?),
        PolicyCommand::Rollback(arguments) => Box::pin(rollback::rollback(arguments, output)).await,
    }
}

/// The policy in etcd that the settings name.
fn in_etcd(config: &ConfigArgument) -> anyhow::Result<EtcdPolicy> {
    match Places::find(config)?.policy {
        PolicyPlace::Etcd(etcd) => Ok(EtcdPolicy::open(etcd)?),
        PolicyPlace::Folder(folder) => bail!(
            "policy comes from the folder `{}`: to keep it in etcd, set `[policy.etcd] endpoints` in the \
             settings in place of it, and name these with --config",
            folder.display()
        ),
    }
}

/// Who runs this command, as far as the machine says: `name@host`.
fn who() -> String {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    // Of those who became root, who they were.
    let name = set("SUDO_USER").or_else(|| set("USER")).or_else(|| set("LOGNAME"));
    let name = name.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    let who = format!("{name}@{}", rustix::system::uname().nodename().to_string_lossy());
    // It is shown to others, in a line.
    who.chars().filter(|c| !c.is_control()).take(100).collect()
}
