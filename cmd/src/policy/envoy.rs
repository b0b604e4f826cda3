//! What a real Envoy says of what a policy compiles to, before any proxy is told.
//!
//! The policy is compiled for a mesh of one proxy to a service, rendered as one bootstrap, and read by
//! `envoy --mode validate`, which runs nothing. Where Envoy refuses it, halves are tried until what it
//! refuses is found, and traced to the policy behind it.

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

/// How much of what is refused is told.
pub(crate) const MOST_TOLD: usize = 5;

/// What came of a check.
#[derive(Debug)]
pub(crate) struct Checked {
    /// What Envoy refuses.
    pub(crate) findings: Vec<Finding>,
    /// How much of it that is; [`MOST_TOLD`] where there may be more.
    pub(crate) refused: usize,
    /// How many listeners and clusters it was asked about.
    pub(crate) asked: usize,
    /// For how many proxies.
    pub(crate) proxies: usize,
}

/// Lets the Envoy at `program` read what `specification` compiles to in a mesh of these settings. It fails
/// where Envoy cannot be asked.
pub(crate) async fn check(
    program: &Path,
    settings: &Settings,
    specification: &Arc<MeshSpecification>,
) -> anyhow::Result<Checked> {
    let (snapshot, proxies, placeholders) = mesh::of(settings, specification)?;
    let snapshot = Arc::new(snapshot);
    let mut compiler = Compiler::new(Arc::clone(&snapshot));
    let mut rendering = Rendering::new(placeholders);
    for proxy in &proxies {
        rendering.add(&compiler.compile(proxy).resources);
    }
    let parts = rendering.parts();
    let refused = refused(&Envoy::new(program)?, &rendering, &parts).await?;
    let findings = refused.iter().map(|refused| finding(&snapshot, &proxies, refused)).collect();
    Ok(Checked { findings, refused: refused.len(), asked: parts.len(), proxies: proxies.len() })
}

/// The least that Envoy refuses of something, and its words.
struct Refused<'a> {
    parts: Vec<&'a Part>,
    words: String,
}

/// What Envoy refuses of `parts`: each by itself, as far as it is refused by itself.
async fn refused<'a>(
    envoy: &Envoy,
    rendering: &Rendering,
    parts: &[&'a Part],
) -> anyhow::Result<Vec<Refused<'a>>> {
    let ask = async |parts: &[&'a Part]| match envoy.validate(&rendering.bootstrap(parts)).await? {
        Verdict::Accepted => Ok::<_, anyhow::Error>(None),
        Verdict::Refused(words) => Ok(Some(Refused { parts: parts.to_vec(), words })),
    };
    let mut found = Vec::new();
    // What is refused, and has not been looked into yet.
    let mut open: Vec<_> = ask(parts).await?.into_iter().collect();
    while let Some(refused) = open.pop().filter(|_| found.len() < MOST_TOLD) {
        let (first, second) = refused.parts.split_at(refused.parts.len() / 2);
        let before = open.len();
        if !first.is_empty() {
            open.extend(ask(second).await?);
            open.extend(ask(first).await?);
        }
        // One alone, or only both halves together.
        if open.len() == before {
            found.push(refused);
        }
    }
    Ok(found)
}

fn finding(snapshot: &Snapshot, proxies: &[Proxy], refused: &Refused<'_>) -> Finding {
    let Refused { parts, words } = refused;
    let (what, origins) = match parts.as_slice() {
        [part] => {
            let origins = proxies.get(part.proxy).map(|proxy| behind(snapshot, proxy, part, words));
            (format!("{} `{}`", part.resource_type, part.name), origins.unwrap_or_default())
        }
        several => (format!("{} listeners and clusters together", several.len()), Vec::new()),
    };
    let mut origins = origins.into_iter();
    let first = origins.next();
    let message = format!("Envoy refuses what this becomes, {what}: {words}");
    let spot = first.as_ref().map(|origin| origin.spot.clone());
    let label = first.map_or(String::new(), |origin| origin.object);
    let finding = Finding::error(codes::REFUSED_BY_ENVOY, spot, message).label(label).help(
        "write it in another way, and report it with this policy: what is accepted here, Envoy should \
         accept",
    );
    origins.fold(finding, |finding, origin| finding.related(origin.spot, origin.object))
}

/// The policy behind a part, the likeliest first.
fn behind(snapshot: &Snapshot, proxy: &Proxy, part: &Part, words: &str) -> Vec<Origin> {
    let routes = part.routes.iter().map(|name| (ResourceType::Route, &**name));
    let names: Vec<_> = routes.chain([(part.resource_type, &*part.name)]).collect();
    let of = |words: &str| -> Vec<Vec<Origin>> {
        let origins = names.iter().map(|(kind, name)| origins(snapshot, proxy, *kind, name, words));
        origins.collect()
    };
    // What Envoy quotes is told apart by what is likely when it quotes nothing.
    let (quoting, silent) = (of(words), of(""));
    let quoted = quoting.iter().zip(&silent).find(|(quoting, silent)| quoting != silent);
    let likeliest = quoted.map(|(quoting, _)| quoting.clone());
    likeliest.or_else(|| quoting.into_iter().find(|some| !some.is_empty())).unwrap_or_default()
}
