//! `matches` of kinds that select requests: each item names an HTTP route group, and matches of it.

use ironmesh_catalog::{Name, SplitMatch, Spot};

use super::part::{Reference, ReferenceTarget};
use super::repeats::without_repeats;
use crate::table::{FindingReported, Value};

/// Reads a table that selects matches of a group; `what` names the table. The default namespace of the group
/// is `home`, which is `None` if it could not be read.
pub(super) fn read_match(
    item: Value<'_>,
    what: &'static str,
    home: Option<&Name>,
    references: &mut Vec<Reference>,
) -> Result<SplitMatch, FindingReported> {
    let mut table = item.table(what)?;
    let kind =
        table.required("kind", |value| value.word("kind of match", &[("HTTPRouteGroup", ())]));
    let group = table.required("name", |value| Ok((value.name()?, value.spot())));
    let matches = table.optional("matches", |value| {
        let meaning = "leave `matches` out for all matches of the group";
        value.at_least_one(meaning, |item| Ok((item.name()?, item.spot())))
    });
    table.finish();
    let (group, spot) = group?;
    if let Some(home) = home {
        let key = (home.clone(), group.clone());
        let names = matches.iter().flatten().flatten();
        references.extend(names.map(|(name, spot)| Reference {
            referenced: ReferenceTarget::Match(key.clone(), name.clone()),
            spot: spot.clone(),
        }));
        references.push(Reference { referenced: ReferenceTarget::Group(key), spot: spot.clone() });
    }
    kind?;
    let names = |all: Vec<(Name, Spot)>| without_repeats(all.into_iter().map(|(n, _)| n).collect());
    Ok(SplitMatch { group, matches: matches?.map(names), spot })
}
