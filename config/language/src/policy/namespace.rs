//! `[[namespace]]`: the settings of all services of a namespace.

use std::collections::BTreeSet;

use ironmesh_catalog::{EgressMode, Finding, Namespace};

use super::draft::Draft;
use super::part::{Id, Part};
use crate::suggest::{closest, did_you_mean};
use crate::table::Table;
use crate::{codes, mode};

/// Reads one namespace into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let name = table.required("name", |value| Ok((value.name()?, value.spot())));
    let mode = table.optional("mode", mode::read);
    let egress = table.optional("egress", |value| value.word("mode of egress", &EgressMode::ALL));
    if let Ok((name, spot)) = name {
        // A namespace object belongs to its own namespace.
        let id = Id { namespace: name.clone(), name, spot };
        let (name, spot) = (id.name.clone(), id.spot.clone());
        let namespace = mode.and_then(|mode| Ok(Namespace { name, mode, egress: egress?, spot }));
        part.namespaces.push(&id, namespace);
    }
    table.finish();
}

/// Reports the namespaces of `draft` without services: they are legal, and rarely intended.
pub(super) fn check(draft: &mut Draft<'_>) {
    // An unreadable document may define a service in any of them.
    if !draft.may_be_defined.is_empty() || draft.anything_may_be_defined {
        return;
    }
    let inhabited: BTreeSet<&str> =
        draft.services.keys().map(|(namespace, _)| namespace.as_str()).collect();
    let empty = |one: &&Namespace| !inhabited.contains(one.name.as_str());
    let namespaces = draft.namespaces.iter().filter(empty);
    let findings: Vec<_> = namespaces.map(|one| is_empty(one, inhabited.iter().copied())).collect();
    draft.findings.extend(findings);
}

fn is_empty<'a>(namespace: &Namespace, others: impl Iterator<Item = &'a str>) -> Finding {
    let name = &namespace.name;
    let message = format!("there is no service in namespace `{name}`");
    let near = closest(name.as_str(), others).map(did_you_mean);
    let help = "give services `namespace`, or remove it";
    Finding::warning(codes::EMPTY_NAMESPACE, Some(namespace.spot.clone()), message)
        .label("applies to nothing")
        .help(near.unwrap_or_else(|| help.to_owned()))
}
