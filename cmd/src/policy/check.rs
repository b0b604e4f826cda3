//! `ironmesh policy check`: all that is wrong with a policy.

use std::io::IsTerminal;

use anyhow::bail;
use ironmesh_admin::FindingView;
use ironmesh_catalog::Finding;
use ironmesh_config::{Loaded, load_folder, render};
use serde_json::json;

use crate::cli::{CheckArguments, Output};
use crate::exit::Found;

/// Tells all that is wrong with a policy folder.
#[expect(clippy::print_stdout, reason = "findings are this command's result")]
pub(crate) fn check(arguments: &CheckArguments, output: Output) -> anyhow::Result<()> {
    let loaded = load_folder(&arguments.path)?;
    tell(&loaded, output);
    if let (Output::Text, Some(specification)) = (output, &loaded.specification) {
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
    refused(&loaded, &format!("`{}`", arguments.path.display()))
}

/// Prints what is wrong with a policy.
#[expect(clippy::print_stdout, reason = "findings are a result")]
pub(super) fn tell(loaded: &Loaded, output: Output) {
    match output {
        Output::Json => {
            let accepted = loaded.specification.is_some();
            let (revision, findings) = (loaded.revision.to_string(), views(loaded));
            println!(
                "{:#}",
                json!({ "revision": revision, "accepted": accepted, "findings": findings })
            );
        }
        Output::Text => print_findings(loaded),
    }
}

/// What is wrong with a policy, for machines.
pub(super) fn views(loaded: &Loaded) -> Vec<FindingView> {
    loaded.findings.iter().map(FindingView::from).collect()
}

/// What is wrong with a policy, for people.
#[expect(clippy::print_stdout, reason = "findings are a result")]
pub(super) fn print_findings(loaded: &Loaded) {
    let color = std::io::stdout().is_terminal();
    if !loaded.findings.is_empty() {
        println!("{}\n", render(&loaded.findings, &loaded.documents, color).trim_end());
    }
}

/// Fails a command that was to work on `what`, where a finding is an error.
pub(super) fn refused(loaded: &Loaded, what: &str) -> anyhow::Result<()> {
    if loaded.findings.iter().any(Finding::is_error) {
        bail!(refusal(loaded, what));
    }
    Ok(())
}

/// Says that `what` is refused, behind its findings.
pub(super) fn refusal(loaded: &Loaded, what: &str) -> Found {
    let errors = loaded.findings.iter().filter(|finding| finding.is_error()).count();
    let warnings = counted(loaded.findings.len() - errors, "warning");
    Found(format!("{what} is refused: {}, {warnings}", counted(errors, "error")))
}

pub(super) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
