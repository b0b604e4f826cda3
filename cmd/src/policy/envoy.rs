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
use ironmesh_config::codes;
use ironmesh_xds_compile::Compiler;
use ironmesh_xds_compile::origin::{Origin, origins};
use ironmesh_xds_compile::rendering::{Part, Rendering};
use ironmesh_xds_wire::ResourceType;

use validate::{Envoy, Verdict};

/// How much of what is refused is told.
const MOST_TOLD: usize = 5;

/// What came of a check.
#[derive(Debug)]
pub(crate) struct Checked {
    /// What Envoy refuses.
    pub(crate) findings: Vec<Finding>,
    /// How many listeners and clusters it was asked about.
    pub(crate) asked: usize,
    /// For how many proxies.
    pub(crate) proxies: usize,
}

/// Lets the Envoy at `program` read what `specification` compiles to. It fails where Envoy cannot be asked.
pub(crate) async fn check(
    program: &Path,
    specification: &Arc<MeshSpecification>,
) -> anyhow::Result<Checked> {
    let (snapshot, proxies, stand_in) = mesh::of(specification)?;
    let snapshot = Arc::new(snapshot);
    let mut compiler = Compiler::new(Arc::clone(&snapshot));
    let mut rendering = Rendering::new(stand_in);
    for proxy in &proxies {
        rendering.add(&compiler.compile(proxy).resources);
    }
    let parts = rendering.parts();
    let refused = refused(&Envoy::new(program)?, &rendering, &parts).await?;
    let findings = refused.iter().map(|refused| finding(&snapshot, &proxies, refused)).collect();
    Ok(Checked { findings, asked: parts.len(), proxies: proxies.len() })
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
    let mut found = Vec::new();
    // What has not been tried yet.
    let mut open = vec![parts.to_vec()];
    while let Some(parts) = open.pop() {
        if found.len() == MOST_TOLD {
            continue;
        }
        let Verdict::Refused(words) = envoy.validate(&rendering.bootstrap(&parts)).await? else {
            continue;
        };
        let (first, second) = parts.split_at(parts.len() / 2);
        let before = (open.len(), found.len());
        for half in [second, first] {
            if parts.len() > 1 && envoy.refuses(&rendering.bootstrap(half)).await? {
                open.push(half.to_vec());
            }
        }
        // One alone, or only both halves together.
        if open.len() == before.0 {
            found.push(Refused { parts, words });
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
