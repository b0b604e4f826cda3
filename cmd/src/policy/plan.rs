//! `ironmesh policy plan`: the predicted effect of a policy folder.

use ironmesh_api::PlanRequest;
use ironmesh_command_line::{Output, PlanArguments};
use ironmesh_control_plane::forecast::offline::plan as offline_plan;
use ironmesh_views::plan::plan_text;

use super::{check, offline};
use crate::exit::CHANGES;
use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::color;
use ironmesh_terminal::stdout::{outln, write_styled};

/// Prints what the policy folder would change. Changes nothing.
pub(crate) async fn plan(arguments: &PlanArguments, output: Output) -> anyhow::Result<()> {
    let resolved = ResolvedSettings::connect(&arguments.config)?;
    // Checked here, so that findings are rendered as by `policy check`.
    let (mut loaded, specification) = offline::load(&arguments.path, output)?;
    if let Some(program) = &arguments.envoy {
        check::validate_with_envoy(program, &resolved.settings, &mut loaded).await?;
        if loaded.specification.is_none() {
            return Err(offline::print_rejected(&loaded, &arguments.path, output)?.into());
        }
    }
    let plan = if let Some(folder) = &arguments.offline {
        let (old, before) = offline::load(folder, output)?;
        let before = (&before, &*check::views(&old));
        let after = (&specification, &*check::views(&loaded));
        offline_plan(&resolved.settings, before, after, arguments.resources)?
    } else {
        let documents = loaded.documents.iter();
        let documents = documents.map(|one| (one.path.to_string(), one.text.to_string()));
        let request =
            PlanRequest { documents: documents.collect(), resources: arguments.resources };
        resolved.client().plan(&request).await?
    };
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&plan)?)?,
        Output::Text => {
            let color = color::is_enabled(&std::io::stdout());
            let assumptions = arguments.offline.as_ref().map(|_| offline::assumptions(&resolved));
            write_styled(&plan_text(&plan, assumptions.as_deref(), color))?;
        }
    }
    if arguments.detailed_exitcode && !plan.is_empty() {
        return Err(CHANGES.into());
    }
    Ok(())
}
