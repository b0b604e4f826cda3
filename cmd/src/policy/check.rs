//! `ironmesh policy check`: all findings of a policy. Other commands print findings with the functions here.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::bail;
use ironmesh_api::FindingView;
use ironmesh_catalog::{Finding, MeshSpecification};
use ironmesh_command_line::{CheckArguments, Output};
use ironmesh_config_language::{Loaded, render};
use ironmesh_config_settings::Settings;
use ironmesh_config_sources::load_folder;
use ironmesh_control_plane::envoy_check::{self, EnvoyCheck, MAX_REPORTED};
use serde_json::json;

use crate::exit::InvalidInput;
use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::color;
use ironmesh_terminal::stdout::{StdoutError, outln, write_styled};

/// Checks a policy folder, and prints its findings.
pub(super) async fn check(arguments: &CheckArguments, output: Output) -> anyhow::Result<()> {
    let mut loaded = load_folder(&arguments.path)?;
    let checked = match &arguments.envoy {
        Some(program) => {
            let settings = ResolvedSettings::load(&arguments.config)?.settings;
            validate_with_envoy(program, &settings, &mut loaded).await?
        }
        None => None,
    };
    print_loaded(&loaded, output)?;
    if output == Output::Text {
        if let Some(specification) = &loaded.specification {
            outln!("revision {}: {}", loaded.revision, contents(specification).join(", "))?;
        }
        if let Some(checked) = &checked {
            print_envoy_check(checked)?;
        }
        outln!("{}", summary(&loaded))?;
    }
    fail_if_rejected(&loaded, &format!("`{}`", arguments.path.display()))
}

/// The number of objects of each kind. Rare kinds are listed only if there are any.
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

/// Prints the findings of a policy.
pub(crate) fn print_loaded(loaded: &Loaded, output: Output) -> Result<(), StdoutError> {
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

/// Validates the compiled resources with an Envoy, and adds its findings. Does nothing if the policy is rejected
/// already.
pub(super) async fn validate_with_envoy(
    program: &Path,
    settings: &Settings,
    loaded: &mut Loaded,
) -> anyhow::Result<Option<EnvoyCheck>> {
    let Some(specification) = &loaded.specification else { return Ok(None) };
    let mut checked = envoy_check::check(program, settings, specification).await?;
    loaded.findings.append(&mut checked.findings);
    loaded.findings.sort_by(Finding::order);
    if loaded.findings.iter().any(Finding::is_error) {
        loaded.specification = None;
    }
    Ok(Some(checked))
}

/// Prints the result of the validation with Envoy, for people.
fn print_envoy_check(checked: &EnvoyCheck) -> Result<(), StdoutError> {
    let resources = format!(
        "{} listeners and clusters of {}",
        checked.resources,
        counted(checked.proxies, "sidecar")
    );
    match checked.rejected {
        0 => outln!("Envoy accepts the compiled resources: {resources}"),
        MAX_REPORTED => outln!("Envoy may reject more than these {MAX_REPORTED}: {resources}"),
        _ => outln!("Envoy accepts all other compiled resources: {resources}"),
    }
}

/// The findings of a policy as JSON views.
pub(super) fn views(loaded: &Loaded) -> Vec<FindingView> {
    loaded.findings.iter().map(FindingView::from).collect()
}

/// Prints the findings of a policy for people, and the commands that explain them.
pub(super) fn print_findings(loaded: &Loaded) -> Result<(), StdoutError> {
    let color = color::is_enabled(&std::io::stdout());
    if loaded.findings.is_empty() {
        return Ok(());
    }
    // `render` escapes the text that it quotes.
    write_styled(&format!(
        "{}\n\n",
        render(&loaded.findings, &loaded.documents, color).trim_end()
    ))?;
    let codes: BTreeSet<_> = loaded.findings.iter().map(|finding| finding.code).collect();
    let commands: Vec<_> = codes.iter().map(|code| format!("`ironmesh explain {code}`")).collect();
    outln!("more about these: {}", commands.join(", "))
}

/// The number of findings, and of files with findings.
fn summary(loaded: &Loaded) -> String {
    let files = counted(loaded.documents.len(), "file");
    if loaded.findings.is_empty() {
        return format!("no findings in {files}");
    }
    let named = loaded.findings.iter().filter_map(|finding| finding.spot.as_ref());
    let named: BTreeSet<_> = named.map(|spot| &spot.file).collect();
    format!("{} in {} of {files}", severity_counts(&loaded.findings), named.len())
}

/// Fails if a finding is an error. `what` names the policy in the error.
pub(super) fn fail_if_rejected(loaded: &Loaded, what: &str) -> anyhow::Result<()> {
    if loaded.findings.iter().any(Finding::is_error) {
        bail!(rejection(loaded, what));
    }
    Ok(())
}

/// The error that `what` is rejected. Its findings are printed before.
pub(crate) fn rejection(loaded: &Loaded, what: &str) -> InvalidInput {
    InvalidInput(format!("{what} is rejected: {}", severity_counts(&loaded.findings)))
}

/// The number of errors and of warnings, in words.
fn severity_counts(findings: &[Finding]) -> String {
    let errors = findings.iter().filter(|finding| finding.is_error()).count();
    format!("{}, {}", counted(errors, "error"), counted(findings.len() - errors, "warning"))
}

/// A count with its noun, in the plural unless it is 1.
pub(super) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
