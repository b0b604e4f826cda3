//! `ironmesh envoy`: runs and reloads the Envoy of this machine.

use std::ffi::OsString;

use anyhow::bail;
use ironmesh_agent::AgentSettings;
use ironmesh_agent_envoy::{
    EnvoyAdminAddress, EnvoyPlan, EnvoyRelease, ReloadProgress, SupervisorClient,
    SupervisorOptions, supervise,
};
use ironmesh_catalog::text::chain;
use ironmesh_control_plane::OLDEST_ENVOY;
use jiff::Timestamp;

use crate::cli::{AgentConfigArgument, Output};
use crate::exit::{self, ExitWith};
use crate::log;
use crate::stdout::outln;

/// Runs Envoy until a signal stops it.
pub(crate) async fn run(arguments: AgentConfigArgument, output: Output) -> anyhow::Result<()> {
    log::init(output);
    let result = Box::pin(run_supervisor(arguments)).await;
    match (output, result) {
        (Output::Json, Err(error)) => {
            log::write_failure("supervisor of Envoy failed", &chain(error.as_ref()));
            Err(ExitWith(exit::number(&error)).into())
        }
        (_, result) => result,
    }
}

async fn run_supervisor(arguments: AgentConfigArgument) -> anyhow::Result<()> {
    let folder = AgentSettings::load(&arguments.config)?.folder;
    let options = SupervisorOptions {
        folder,
        plan: Box::new(move || Ok(plan(&AgentSettings::load(&arguments.config)?))),
        leave: Box::new(|| Box::pin(async { Err("this version has no leave request".into()) })),
        clock: Timestamp::now,
    };
    Ok(supervise(options).await?)
}

/// What to run, by the settings of this machine.
fn plan(settings: &AgentSettings) -> EnvoyPlan {
    let AgentSettings { folder, envoy } = settings;
    let bootstrap = folder.join(ironmesh_sidecar::envoy::CONFIGURATION);
    let mut arguments = vec![OsString::from("-c"), bootstrap.clone().into()];
    let mut set = |flag: &str, value: String| arguments.extend([flag.into(), value.into()]);
    set("--log-level", envoy.log_level.clone());
    set("--drain-time-s", envoy.drain_time.as_secs().to_string());
    set("--parent-shutdown-time-s", envoy.parent_shutdown_time.as_secs().to_string());
    if let Some(concurrency) = envoy.concurrency {
        set("--concurrency", concurrency.to_string());
    }
    EnvoyPlan {
        program: envoy.binary.clone(),
        validation: ["--mode".into(), "validate".into(), "-c".into(), bootstrap.clone().into()]
            .into(),
        bootstrap,
        arguments,
        environment: Vec::new(),
        admin: EnvoyAdminAddress::Socket(folder.join("admin.sock")),
        minimum_version: EnvoyRelease {
            major: OLDEST_ENVOY.major,
            minor: OLDEST_ENVOY.minor,
            patch: OLDEST_ENVOY.patch,
        },
        parent_shutdown_time: envoy.parent_shutdown_time,
        drain_minimum: envoy.drain_minimum,
        drain_maximum: envoy.drain_maximum,
    }
}

/// Replaces the running Envoy by a hot restart, and prints the steps.
pub(crate) async fn reload(arguments: &AgentConfigArgument, output: Output) -> anyhow::Result<()> {
    let folder = AgentSettings::load(&arguments.config)?.folder;
    let mut steps = SupervisorClient::new(&folder).reload().await?;
    while let Some(step) = steps.next().await? {
        match output {
            Output::Json => outln!("{}", serde_json::to_string(&step)?)?,
            Output::Text => outln!("{step}")?,
        }
        match step {
            ReloadProgress::Done { .. } => return Ok(()),
            ReloadProgress::Failed { .. } => return Err(ExitWith(1).into()),
            _ => {}
        }
    }
    bail!("the supervisor of Envoy ended before the reload; see its log")
}
