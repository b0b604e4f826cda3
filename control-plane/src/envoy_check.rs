//! Validation of compiled resources with a real Envoy, before any proxy receives them.
//!
//! The policy is compiled for a mesh with one proxy per service, and rendered as one bootstrap. `envoy --mode
//! validate` reads that bootstrap and runs nothing. If Envoy rejects it, a bisection finds the rejected resources,
//! and their origins name the policy objects.

mod mesh;
#[cfg(test)]
mod tests;
mod validate;

use std::path::Path;
use std::sync::Arc;

use ironmesh_catalog::{Finding, MeshSpecification, Proxy, Snapshot};
use ironmesh_config_language::codes;
use ironmesh_config_settings::Settings;
use ironmesh_xds_compile::Compiler;
use ironmesh_xds_compile::origin::{Origin, origins};
use ironmesh_xds_compile::rendering::{Part, Rendering};
use ironmesh_xds_wire::ResourceType;

use validate::{Envoy, Verdict};

/// The most rejections that one check reports.
pub const MAX_REPORTED: usize = 5;

/// The result of a validation with Envoy.
#[derive(Debug)]
pub struct EnvoyCheck {
    /// One finding for each rejection.
    pub findings: Vec<Finding>,
    /// The number of rejections; with [`MAX_REPORTED`] there may be more.
    pub rejected: usize,
    /// The number of validated listeners and clusters.
    pub resources: usize,
    /// The number of proxies that the policy was compiled for.
    pub proxies: usize,
}

/// Validates what `specification` compiles to, in a mesh with these settings, with the Envoy at `program`. Fails if
/// Envoy cannot be run.
pub async fn check(
    program: &Path,
    settings: &Settings,
    specification: &Arc<MeshSpecification>,
) -> anyhow::Result<EnvoyCheck> {
    let (snapshot, proxies, certificate) = mesh::of(settings, specification)?;
    let snapshot = Arc::new(snapshot);
    let mut compiler = Compiler::new(Arc::clone(&snapshot));
    let mut rendering = Rendering::new(certificate);
    for proxy in &proxies {
        rendering.add(&compiler.compile(proxy).resources);
    }
    let parts = rendering.parts();
    let rejected = rejected_parts(&Envoy::new(program)?, &rendering, &parts).await?;
    let findings = rejected.iter().map(|rejected| finding(&snapshot, &proxies, rejected)).collect();
    Ok(EnvoyCheck {
        findings,
        rejected: rejected.len(),
        resources: parts.len(),
        proxies: proxies.len(),
    })
}

/// A smallest set of resources that Envoy rejects, with its error.
struct RejectedParts<'a> {
    parts: Vec<&'a Part>,
    error: String,
}

/// Finds by bisection the `parts` that Envoy rejects: single resources if possible, otherwise the smallest set.
async fn rejected_parts<'a>(
    envoy: &Envoy,
    rendering: &Rendering,
    parts: &[&'a Part],
) -> anyhow::Result<Vec<RejectedParts<'a>>> {
    let validate =
        async |parts: &[&'a Part]| match envoy.validate(&rendering.bootstrap(parts)).await? {
            Verdict::Accepted => Ok::<_, anyhow::Error>(None),
            Verdict::Rejected(error) => Ok(Some(RejectedParts { parts: parts.to_vec(), error })),
        };
    let mut found = Vec::new();
    // Rejected sets that are not bisected yet.
    let mut open: Vec<_> = validate(parts).await?.into_iter().collect();
    while let Some(rejected) = open.pop().filter(|_| found.len() < MAX_REPORTED) {
        let (first, second) = rejected.parts.split_at(rejected.parts.len() / 2);
        let before = open.len();
        if !first.is_empty() {
            open.extend(validate(second).await?);
            open.extend(validate(first).await?);
        }
        // A single resource, or halves that Envoy rejects only together.
        if open.len() == before {
            found.push(rejected);
        }
    }
    Ok(found)
}

/// The finding for a rejection, at the most likely policy object.
fn finding(snapshot: &Snapshot, proxies: &[Proxy], rejected: &RejectedParts<'_>) -> Finding {
    let RejectedParts { parts, error } = rejected;
    let (what, origins) = match parts.as_slice() {
        [part] => {
            let origins =
                proxies.get(part.proxy).map(|proxy| part_origins(snapshot, proxy, part, error));
            (format!("{} `{}`", part.resource_type, part.name), origins.unwrap_or_default())
        }
        several => (format!("{} listeners and clusters together", several.len()), Vec::new()),
    };
    let mut origins = origins.into_iter();
    let first = origins.next();
    let message = format!("Envoy rejects what this compiles to, {what}: {error}");
    let spot = first.as_ref().map(|origin| origin.spot.clone());
    let label = first.map_or(String::new(), |origin| origin.object);
    let finding = Finding::error(codes::REJECTED_BY_ENVOY, spot, message).label(label).help(
        "change this object, and report the problem with this policy: Envoy should accept each policy that passes \
         the check",
    );
    origins.fold(finding, |finding, origin| finding.related(origin.spot, origin.object))
}

/// The policy objects that a part was compiled from, the most likely first.
fn part_origins(snapshot: &Snapshot, proxy: &Proxy, part: &Part, error: &str) -> Vec<Origin> {
    let routes = part.routes.iter().map(|name| (ResourceType::Route, &**name));
    let names: Vec<_> = routes.chain([(part.resource_type, &*part.name)]).collect();
    let of = |error: &str| -> Vec<Vec<Origin>> {
        let origins = names.iter().map(|(kind, name)| origins(snapshot, proxy, *kind, name, error));
        origins.collect()
    };
    // Origins that differ from those of an empty error show that Envoy's error quotes something.
    let (quoting, empty) = (of(error), of(""));
    let quoted = quoting.iter().zip(&empty).find(|(quoting, empty)| quoting != empty);
    let likeliest = quoted.map(|(quoting, _)| quoting.clone());
    likeliest.or_else(|| quoting.into_iter().find(|some| !some.is_empty())).unwrap_or_default()
}
