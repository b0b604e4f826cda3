//! `[[ingress_backend]]`: the callers outside of the mesh that may call service ports, and how.

mod backend;
mod source;

use std::collections::BTreeMap;

use ironmesh_catalog::{IngressBackend, IngressPort, IngressSource, SplitMatch};

use self::backend::Meaning;
use super::group_match::read_match;
use super::part::{Id, Part, Reference, ReferenceTarget};
use super::repeats::without_repeats;
use crate::codes;
use crate::table::{FindingReported, Table, Value};

/// The most backends of an object, and the most sources: each source becomes a part of every backend's
/// authorization.
const MOST: usize = 1000;

/// Reads one ingress backend into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let home = id.as_ref().ok().map(|id| &id.namespace);
    let mut references = Vec::new();
    let backends = table.required("backends", |value| {
        check_length(value)?;
        let mut seen = BTreeMap::new();
        let meaning = "name at least one service port that may be called";
        value.at_least_one(meaning, |item| backend::read(item, home, &mut seen, &mut references))
    });
    let sources = table.required("sources", |value| {
        check_length(value)?;
        let meaning = "an empty list never means anyone: name who may call";
        let sources =
            value.at_least_one(meaning, |item| source::read(item, home, &mut references))?;
        Ok((sources, value))
    });
    let matches = table.optional("matches", |value| {
        let meaning = "leave `matches` out to allow all requests";
        let what = "a match of an ingress backend";
        value.at_least_one(meaning, |item| read_match(item, what, home, &mut references))
    });
    if let Ok(id) = id {
        part.references.extend(references);
        part.ingress_backends.push(&id, object(&id, backends, sources, matches));
    }
    table.finish();
}

fn object(
    id: &Id,
    backends: Result<Vec<(IngressPort, Meaning<'_>)>, FindingReported>,
    sources: Result<(Vec<IngressSource>, Value<'_>), FindingReported>,
    matches: Result<Option<Vec<SplitMatch>>, FindingReported>,
) -> Result<IngressBackend, FindingReported> {
    let (backends, (sources, list)) = (backends?, sources?);
    let fit = backends.iter().map(|(port, meaning)| source::fit(&sources, list, port, meaning));
    // All problems are reported, not only the first.
    fit.collect::<Vec<_>>().into_iter().collect::<Result<(), FindingReported>>()?;
    Ok(IngressBackend {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        backends: backends.into_iter().map(|(port, _)| port).collect(),
        sources: without_repeats(sources),
        matches: matches?.unwrap_or_default(),
        spot: id.spot.clone(),
    })
}

fn check_length(list: Value<'_>) -> Result<(), FindingReported> {
    if list.items()?.len() <= MOST {
        return Ok(());
    }
    let message = format!("`{}` has more than {MOST} items", list.key());
    let finding = list.error(codes::TOO_LARGE, message).label("too many");
    Err(list.report(finding.help("divide them among several ingress backends")))
}

/// A reference to the object that is named at `value`.
fn refer(referenced: ReferenceTarget, value: Value<'_>) -> Reference {
    Reference { referenced, spot: value.spot() }
}
