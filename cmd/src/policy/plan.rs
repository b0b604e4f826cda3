//! `ironmesh policy plan`: what would change if a folder came into force.

mod words;

use std::sync::Arc;

use ironmesh_admin::{Client, PlanRequest};
use ironmesh_analysis::verdict::Sight;
use ironmesh_config_language::Loaded;
use ironmesh_control_plane::forecast::offline::{one_proxy_each, records, snapshot};
use ironmesh_control_plane::forecast::{add_findings, forecast};

use super::{check, offline};
use crate::cli::{Output, PlanArguments};
use crate::color;
use crate::exit::CHANGES;
use crate::places::Places;
use crate::stdout::{outln, write_styled};

/// Tells what would change. Nothing does.
pub(crate) async fn plan(arguments: &PlanArguments, output: Output) -> anyhow::Result<()> {
    let places = Places::find(&arguments.config)?;
    // Checked here, so that what is wrong is drawn as `policy check` draws it.
    let (mut loaded, specification) = offline::load(&arguments.path, output)?;
    if let Some(program) = &arguments.envoy {
        check::ask_envoy(program, &places.settings, &mut loaded).await?;
        if loaded.specification.is_none() {
            return Err(offline::tell_refused(&loaded, &arguments.path, output)?.into());
        }
    }
    let plan = if let Some(folder) = &arguments.offline {
        let (old, before) = offline::load(folder, output)?;
        let proxies = one_proxy_each(&before, &specification);
        let records = records(&proxies);
        let before = Arc::new(snapshot(&places.settings, &before, records));
        let sight = Sight::PolicyAlone;
        let with_fields = arguments.resources;
        let mut plan = forecast(&before, &specification, &proxies, sight, with_fields, &|| true)?;
        let views =
            |loaded: &Loaded| -> Vec<_> { loaded.findings.iter().map(Into::into).collect() };
        add_findings(&mut plan, &views(&old), &views(&loaded));
        plan
    } else {
        let documents = loaded.documents.iter();
        let documents = documents.map(|one| (one.path.to_string(), one.text.to_string()));
        let request =
            PlanRequest { documents: documents.collect(), resources: arguments.resources };
        Client::new(&places.admin_socket()).plan(&request).await?
    };
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&plan)?)?,
        Output::Text => {
            let color = color::is_enabled(&std::io::stdout());
            let assumed = arguments.offline.as_ref().map(|_| offline::assumed(&places));
            write_styled(&words::plan(&plan, assumed.as_deref(), color))?;
        }
    }
    if arguments.detailed_exitcode && !plan.is_empty() {
        return Err(CHANGES.into());
    }
    Ok(())
}
