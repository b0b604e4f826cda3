//! `ironmesh policy …`

use std::io::IsTerminal;

use ironmesh_admin::FindingView;
use ironmesh_catalog::Finding;
use ironmesh_config::{load_folder, render};
use serde_json::json;

use crate::cli::{CheckArguments, Output};
use crate::exit::Found;

/// Tells all that is wrong with a policy.
#[expect(clippy::print_stdout, reason = "findings are this command's result")]
pub(crate) fn check(arguments: &CheckArguments, output: Output) -> anyhow::Result<()> {
    let loaded = load_folder(&arguments.path)?;
    let errors = loaded.findings.iter().filter(|finding| finding.is_error()).count();
    let warnings = loaded.findings.len() - errors;
    match output {
        Output::Json => {
            let findings: Vec<_> = loaded.findings.iter().map(FindingView::from).collect();
            let revision = loaded.revision.to_string();
            println!(
                "{:#}",
                json!({ "revision": revision, "accepted": errors == 0, "findings": findings })
            );
        }
        Output::Text => {
            let color = std::io::stdout().is_terminal();
            if !loaded.findings.is_empty() {
                println!("{}\n", render(&loaded.findings, &loaded.documents, color).trim_end());
            }
            if let Some(specification) = &loaded.specification {
                println!(
                    "revision {}: {} services, {} traffic targets, {} route groups, {} splits; {warnings} warnings",
                    loaded.revision,
                    specification.services.len(),
                    specification.traffic_targets.len(),
                    specification.http_route_groups.len(),
                    specification.traffic_splits.len(),
                );
            }
        }
    }
    if loaded.findings.iter().any(Finding::is_error) {
        let path = arguments.path.display();
        anyhow::bail!(Found(format!("`{path}` is refused: {errors} errors, {warnings} warnings")));
    }
    Ok(())
}
