//! `ironmesh policy check`: all that is wrong with a policy.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::bail;
use ironmesh_admin::FindingView;
use ironmesh_catalog::{Finding, MeshSpecification};
use ironmesh_config_language::{Loaded, render};
use ironmesh_config_settings::Settings;
use ironmesh_config_sources::load_folder;
use serde_json::json;

use crate::cli::{CheckArguments, Output};
use crate::color;
use crate::exit::Found;
use crate::places::Places;
use crate::policy::envoy::{self, Checked, MOST_TOLD};
use crate::stdout::{Unwritten, outln, write_styled};

/// Tells all that is wrong with a policy folder.
pub(super) async fn check(arguments: &CheckArguments, output: Output) -> anyhow::Result<()> {
    let mut loaded = load_folder(&arguments.path)?;
    let checked = match &arguments.envoy {
        Some(program) => {
            let settings = Places::find(&arguments.config)?.settings;
            ask_envoy(program, &settings, &mut loaded).await?
        }
        None => None,
    };
    tell(&loaded, output)?;
    if output == Output::Text {
        if let Some(specification) = &loaded.specification {
            outln!("revision {}: {}", loaded.revision, contents(specification).join(", "))?;
        }
        if let Some(checked) = &checked {
            tell_of_envoy(checked)?;
        }
        outln!("{}", summary(&loaded))?;
    }
    refused(&loaded, &format!("`{}`", arguments.path.display()))
}

/// How many objects there are of each kind: of what every mesh has always, of the rest where there is any.
fn contents(specification: &MeshSpecification) -> Vec<String> {
    let MeshSpecification {
        revision: _,
        namespaces,
        services,
        traffic_targets,
        http_route_groups,
        tcp_routes,
        identity_bindings,
        traffic_splits,
        http_routes,
        retries,
        upstream_traffic_settings,
        ingress_backends,
        telemetries,
        egresses,
    } = specification;
    let always = [
        counted(services.len(), "service"),
        counted(traffic_targets.len(), "traffic target"),
        counted(http_route_groups.len(), "route group"),
        counted(tcp_routes.len(), "TCP route"),
        counted(traffic_splits.len(), "traffic split"),
    ];
    let others = [
        (namespaces.len(), "namespace"),
        (identity_bindings.len(), "identity binding"),
        (http_routes.len(), "HTTP route"),
        (retries.len(), "retry object"),
        (upstream_traffic_settings.len(), "upstream traffic setting"),
        (egresses.len(), "egress object"),
        (ingress_backends.len(), "ingress backend"),
        (telemetries.len(), "telemetry object"),
    ];
    let others = others.into_iter().filter(|(count, _)| *count > 0);
    always.into_iter().chain(others.map(|(count, what)| counted(count, what))).collect()
}

/// Prints what is wrong with a policy.
pub(crate) fn tell(loaded: &Loaded, output: Output) -> Result<(), Unwritten> {
    match output {
        Output::Json => {
            let accepted = loaded.specification.is_some();
            let (revision, findings) = (loaded.revision.to_string(), views(loaded));
            outln!(
                "{:#}",
                json!({ "revision": revision, "accepted": accepted, "findings": findings })
            )
        }
        Output::Text => print_findings(loaded),
    }
}

/// Lets an Envoy read what the policy compiles to, if nothing else is wrong with it.
pub(super) async fn ask_envoy(
    program: &Path,
    settings: &Settings,
    loaded: &mut Loaded,
) -> anyhow::Result<Option<Checked>> {
    let Some(specification) = &loaded.specification else { return Ok(None) };
    let mut checked = envoy::check(program, settings, specification).await?;
    loaded.findings.append(&mut checked.findings);
    loaded.findings.sort_by(Finding::order);
    if loaded.findings.iter().any(Finding::is_error) {
        loaded.specification = None;
    }
    Ok(Some(checked))
}

/// Says for people what an Envoy was asked, and what is left to ask.
fn tell_of_envoy(checked: &Checked) -> Result<(), Unwritten> {
    let asked = format!(
        "{} listeners and clusters of {}",
        checked.asked,
        counted(checked.proxies, "sidecar")
    );
    match checked.refused {
        0 => outln!("Envoy takes what it compiles to: {asked}"),
        MOST_TOLD => outln!("Envoy may refuse more of it than these {MOST_TOLD}: {asked}"),
        _ => outln!("Envoy takes the rest of what it compiles to: {asked}"),
    }
}

/// What is wrong with a policy, for machines.
pub(super) fn views(loaded: &Loaded) -> Vec<FindingView> {
    loaded.findings.iter().map(FindingView::from).collect()
}

/// What is wrong with a policy, for people; and where more is said about it.
pub(super) fn print_findings(loaded: &Loaded) -> Result<(), Unwritten> {
    let color = color::is_enabled(&std::io::stdout());
    if loaded.findings.is_empty() {
        return Ok(());
    }
    // It escapes what it quotes.
    write_styled(&format!(
        "{}\n\n",
        render(&loaded.findings, &loaded.documents, color).trim_end()
    ))?;
    let codes: BTreeSet<_> = loaded.findings.iter().map(|finding| finding.code).collect();
    let commands: Vec<_> = codes.iter().map(|code| format!("`ironmesh explain {code}`")).collect();
    outln!("more about these: {}", commands.join(", "))
}

/// How much was found, and in how many files.
fn summary(loaded: &Loaded) -> String {
    let files = counted(loaded.documents.len(), "file");
    if loaded.findings.is_empty() {
        return format!("no findings in {files}");
    }
    let named = loaded.findings.iter().filter_map(|finding| finding.spot.as_ref());
    let named: BTreeSet<_> = named.map(|spot| &spot.file).collect();
    format!("{} in {} of {files}", how_many(&loaded.findings), named.len())
}

/// Fails a command that was to work on `what`, where a finding is an error.
pub(super) fn refused(loaded: &Loaded, what: &str) -> anyhow::Result<()> {
    if loaded.findings.iter().any(Finding::is_error) {
        bail!(refusal(loaded, what));
    }
    Ok(())
}

/// Says that `what` is refused, behind its findings.
pub(crate) fn refusal(loaded: &Loaded, what: &str) -> Found {
    Found(format!("{what} is rejected: {}", how_many(&loaded.findings)))
}

fn how_many(findings: &[Finding]) -> String {
    let errors = findings.iter().filter(|finding| finding.is_error()).count();
    format!("{}, {}", counted(errors, "error"), counted(findings.len() - errors, "warning"))
}

pub(super) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
