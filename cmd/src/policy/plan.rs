//! `ironmesh policy plan`: the predicted effect of a policy folder.

mod text;

use std::sync::Arc;

use ironmesh_admin::PlanRequest;
use ironmesh_analysis::verdict::VerdictBasis;
use ironmesh_config_language::Loaded;
use ironmesh_control_plane::forecast::offline::{example_proxies, records, snapshot};
use ironmesh_control_plane::forecast::{add_findings, forecast};

use super::{check, offline};
use crate::cli::{Output, PlanArguments};
use crate::color;
use crate::exit::CHANGES;
use crate::resolved_settings::ResolvedSettings;
use crate::stdout::{outln, write_styled};

/// Prints what the policy folder would change. Changes nothing.
pub(crate) async fn plan(arguments: &PlanArguments, output: Output) -> anyhow::Result<()> {
    let resolved = ResolvedSettings::load(&arguments.config)?;
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
        let proxies = example_proxies(&before, &specification);
        let records = records(&proxies);
        let before = Arc::new(snapshot(&resolved.settings, &before, records));
        let basis = VerdictBasis::PolicyOnly;
        let with_fields = arguments.resources;
        let mut plan = forecast(&before, &specification, &proxies, basis, with_fields, &|| true)?;
        let views =
            |loaded: &Loaded| -> Vec<_> { loaded.findings.iter().map(Into::into).collect() };
        add_findings(&mut plan, &views(&old), &views(&loaded));
        plan
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
            write_styled(&text::plan(&plan, assumptions.as_deref(), color))?;
        }
    }
    if arguments.detailed_exitcode && !plan.is_empty() {
        return Err(CHANGES.into());
    }
    Ok(())
}
