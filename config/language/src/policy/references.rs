//! References across documents: an object that another names must exist. The backend of a split may be
//! missing (SMI), which is a warning.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::{Finding, Name, ServiceAccount, ServiceName, Severity};

use super::draft::Draft;
use super::part::{ObjectKey, ReferenceTarget};
use crate::codes;
use crate::limits::FINDINGS;
use crate::suggest::{closest, did_you_mean};

/// Reports every reference of `draft` to an object that does not exist.
pub(super) fn check(draft: &mut Draft<'_>) {
    let mut matches = Matches::new();
    let mut findings = Vec::new();
    for reference in &draft.references {
        // (The number of findings is bounded, since a suggestion compares all existing names.)
        if findings.len() > FINDINGS {
            break;
        }
        let missing = match &reference.referenced {
            ReferenceTarget::Service(name) => service(draft, name),
            ReferenceTarget::Backend(name, besides) => backend(draft, name, besides),
            ReferenceTarget::Account(account) => self::account(draft, account),
            ReferenceTarget::Group(key) => group(draft, key),
            ReferenceTarget::Match(key, name) => match_of(draft, key, name, &mut matches),
            ReferenceTarget::TcpRoute(key) => tcp_route(draft, key),
            ReferenceTarget::Binding(key) => binding(draft, key),
        };
        findings.extend(
            missing.map(|finding| Finding { spot: Some(reference.spot.clone()), ..finding }),
        );
    }
    draft.findings.extend(findings);
}

fn service(draft: &Draft<'_>, referenced: &ServiceName) -> Option<Finding> {
    let key = (referenced.namespace.clone(), referenced.name.clone());
    if draft.services.spot(&key).is_some() || may_be_defined(draft, &referenced.name) {
        return None;
    }
    Some(with_advice(no_service(&key), &key, draft.services.keys()))
}

fn no_service(key: &ObjectKey) -> Finding {
    not_found(&format!("there is no service {}", place(key)))
}

/// The finding for a missing backend, which is no error: a rollout begins with the split. The suggestion
/// skips the services in `besides`, since versions of a service have similar names.
fn backend(draft: &Draft<'_>, referenced: &ServiceName, besides: &[Name]) -> Option<Finding> {
    service(draft, referenced)?;
    let key = (referenced.namespace.clone(), referenced.name.clone());
    let others = draft.services.keys().filter(|(_, name)| !besides.contains(name));
    let Finding { help, .. } = with_advice(no_service(&key), &key, others.collect::<Vec<_>>());
    let to_come = "it gets its share of the calls as soon as policy defines it";
    let help = help.map_or_else(|| to_come.to_owned(), |near| format!("{near} If not, {to_come}"));
    let finding = Finding { severity: Severity::Warning, ..no_service(&key) };
    Some(finding.label("gets no calls").help(help))
}

fn account(draft: &Draft<'_>, referenced: &ServiceAccount) -> Option<Finding> {
    if draft.accounts.contains(referenced) || may_be_defined(draft, &referenced.name) {
        return None;
    }
    let key = (referenced.namespace.clone(), referenced.name.clone());
    let finding = not_found(&format!("no service runs as {}", place(&key)));
    if let Some(service) = draft.services.get(&key) {
        let account = &service.account.name;
        return Some(finding.help(format!(
            "service `{}` runs as `{account}`: policy is about accounts, not services",
            referenced.name
        )));
    }
    let accounts = draft.accounts.iter().take(MOST_CANDIDATES);
    let keys: Vec<ObjectKey> = accounts.map(|a| (a.namespace.clone(), a.name.clone())).collect();
    Some(with_advice(finding, &key, &keys))
}

fn group(draft: &Draft<'_>, referenced: &ObjectKey) -> Option<Finding> {
    if draft.http_route_groups.spot(referenced).is_some() || may_be_defined(draft, &referenced.1) {
        return None;
    }
    let finding = not_found(&format!("there is no HTTP route group {}", place(referenced)));
    Some(with_advice(finding, referenced, draft.http_route_groups.keys()))
}

fn tcp_route(draft: &Draft<'_>, referenced: &ObjectKey) -> Option<Finding> {
    if draft.tcp_routes.spot(referenced).is_some() || may_be_defined(draft, &referenced.1) {
        return None;
    }
    let finding = not_found(&format!("there is no TCP route {}", place(referenced)));
    Some(with_advice(finding, referenced, draft.tcp_routes.keys()))
}

fn binding(draft: &Draft<'_>, referenced: &ObjectKey) -> Option<Finding> {
    if draft.identity_bindings.spot(referenced).is_some() || may_be_defined(draft, &referenced.1) {
        return None;
    }
    let finding = not_found(&format!("there is no identity binding {}", place(referenced)));
    Some(with_advice(finding, referenced, draft.identity_bindings.keys()))
}

/// The names of the matches of the groups that references have named so far.
type Matches<'a> = BTreeMap<&'a ObjectKey, BTreeSet<&'a str>>;

/// A match of a group. Matches of an unreadable group are not reported.
fn match_of<'a>(
    draft: &Draft<'a>,
    group: &'a ObjectKey,
    referenced: &Name,
    matches: &mut Matches<'a>,
) -> Option<Finding> {
    let found = draft.http_route_groups.get(group)?;
    let names = || found.matches.iter().map(|one| one.name.as_str());
    if matches.entry(group).or_insert_with(|| names().collect()).contains(referenced.as_str()) {
        return None;
    }
    let message = format!("HTTP route group `{}` has no match `{referenced}`", group.1);
    let finding = not_found(&message).related(found.spot.clone(), "the group is defined here");
    Some(match closest(referenced.as_str(), names().take(MOST_CANDIDATES)) {
        Some(near) => finding.help(did_you_mean(near)),
        None => finding,
    })
}

fn may_be_defined(draft: &Draft<'_>, name: &Name) -> bool {
    draft.anything_may_be_defined || draft.may_be_defined.contains(name.as_str())
}

fn not_found(message: &str) -> Finding {
    Finding::error(codes::NOT_FOUND, None, message).label("not found")
}

fn place((namespace, name): &ObjectKey) -> String {
    format!("`{name}` in namespace `{namespace}`")
}

/// The most names that are compared for a suggestion.
const MOST_CANDIDATES: usize = 10_000;

/// Adds advice: another namespace that has the name, or else the most similar name.
fn with_advice<'a>(
    finding: Finding,
    (namespace, name): &ObjectKey,
    keys: impl IntoIterator<Item = &'a ObjectKey, IntoIter: Clone>,
) -> Finding {
    let keys = keys.into_iter().take(MOST_CANDIDATES);
    let elsewhere = keys.clone().find(|(_, other)| other == name);
    if let Some((other, _)) = elsewhere {
        return finding.help(format!("there is one in namespace `{other}`"));
    }
    let here = keys.filter(|(other, _)| other == namespace);
    match closest(name.as_str(), here.map(|(_, name)| name.as_str())) {
        Some(near) => finding.help(did_you_mean(near)),
        None => finding,
    }
}
