//! `ironmesh policy …`

use std::io::IsTerminal;

use ironmesh_admin::FindingView;
use ironmesh_catalog::Finding;
use ironmesh_config::schema::json_schema;
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
                    "revision {}: {}, {}, {}, {}, {}; {}",
                    loaded.revision,
                    counted(specification.services.len(), "service"),
                    counted(specification.traffic_targets.len(), "traffic target"),
                    counted(specification.http_route_groups.len(), "route group"),
                    counted(specification.tcp_routes.len(), "TCP route"),
                    counted(specification.traffic_splits.len(), "traffic split"),
                    counted(warnings, "warning"),
                );
            }
        }
    }
    if loaded.findings.iter().any(Finding::is_error) {
        let path = arguments.path.display();
        let (errors, warnings) = (counted(errors, "error"), counted(warnings, "warning"));
        anyhow::bail!(Found(format!("`{path}` is refused: {errors}, {warnings}")));
    }
    Ok(())
}

/// Prints the JSON schema of policy files.
#[expect(clippy::print_stdout, reason = "the schema is this command's result")]
pub(crate) fn schema() {
    println!("{:#}", json_schema());
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
