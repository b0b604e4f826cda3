//! `ironmesh policy …`

mod explain;
pub(crate) mod forecast;
mod offline;
mod plan;

use std::io::IsTerminal;
use std::path::Path;

use ironmesh_admin::FindingView;
use ironmesh_config::{Loaded, load_folder, render};
use serde_json::json;

pub(crate) use self::explain::{advice, explain};
pub(crate) use self::plan::plan;
use crate::cli::{CheckArguments, Output};
use crate::exit::Found;

/// Tells all that is wrong with a policy.
#[expect(clippy::print_stdout, reason = "findings are this command's result")]
pub(crate) fn check(arguments: &CheckArguments, output: Output) -> anyhow::Result<()> {
    let loaded = load_folder(&arguments.path)?;
    tell_findings(&loaded, output)?;
    let Some(specification) = &loaded.specification else {
        return Err(refused(&arguments.path, &loaded).into());
    };
    if output == Output::Text {
        println!(
            "revision {}: {}, {}, {}, {}, {}; {}",
            loaded.revision,
            counted(specification.services.len(), "service"),
            counted(specification.traffic_targets.len(), "traffic target"),
            counted(specification.http_route_groups.len(), "route group"),
            counted(specification.tcp_routes.len(), "TCP route"),
            counted(specification.traffic_splits.len(), "traffic split"),
            counted(loaded.findings.len(), "warning"),
        );
    }
    Ok(())
}

/// Prints what is wrong with a policy.
#[expect(clippy::print_stdout, reason = "findings are a result")]
fn tell_findings(loaded: &Loaded, output: Output) -> anyhow::Result<()> {
    match output {
        Output::Json => {
            let findings: Vec<_> = loaded.findings.iter().map(FindingView::from).collect();
            let revision = loaded.revision.to_string();
            let accepted = loaded.specification.is_some();
            let told = json!({ "revision": revision, "accepted": accepted, "findings": findings });
            println!("{}", serde_json::to_string_pretty(&told)?);
        }
        Output::Text if loaded.findings.is_empty() => {}
        Output::Text => {
            let color = std::io::stdout().is_terminal();
            println!("{}\n", render(&loaded.findings, &loaded.documents, color).trim_end());
        }
    }
    Ok(())
}

/// Says that a policy is refused, behind its findings.
fn refused(path: &Path, loaded: &Loaded) -> Found {
    let errors = loaded.findings.iter().filter(|finding| finding.is_error()).count();
    let warnings = loaded.findings.len() - errors;
    let (errors, warnings) = (counted(errors, "error"), counted(warnings, "warning"));
    Found(format!("`{}` is refused: {errors}, {warnings}", path.display()))
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
