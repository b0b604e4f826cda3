//! `[[traffic_target]]`: these sources may call this destination in these ways.

use std::collections::BTreeSet;

use ironmesh_catalog::{Finding, Name, RouteRule, ServiceAccount, Spot, TrafficTarget};

use super::part::{Id, Part, Reference, Wanted};
use crate::codes;
use crate::suggest::{closest, did_you_mean};
use crate::table::{Table, Told, Value, list};

/// Reads one traffic target into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let home = id.as_ref().ok().map(|id| &id.namespace);
    let mut references = Vec::new();
    let destination = table.required("destination", |value| {
        let account = read_account(value, home, &mut references)?;
        same_namespace(value, account, home)
    });
    let sources = table.required("sources", |value| {
        let meaning = "an empty list never means anyone: name who may call";
        value.at_least_one(meaning, |item| read_account(item, home, &mut references))
    });
    let rules = table.required("rules", |value| {
        let meaning = "an empty list never means anything: name what may be called";
        value.at_least_one(meaning, |item| read_rule(item, home, &mut references))
    });
    if let Ok(id) = id {
        part.references.extend(references);
        let target = target(&id, destination, sources, rules);
        part.traffic_targets.push(&id, target);
    }
    table.finish();
}

fn target(
    id: &Id,
    destination: Result<ServiceAccount, Told>,
    sources: Result<Vec<ServiceAccount>, Told>,
    rules: Result<Vec<RouteRule>, Told>,
) -> Result<TrafficTarget, Told> {
    Ok(TrafficTarget {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        destination: destination?,
        sources: without_repeats(sources?),
        rules: rules?,
        spot: id.spot.clone(),
    })
}

/// Reads an account. Its namespace is `home` unless it says another; `home` is `None` if it could
/// not be read.
fn read_account(
    value: Value<'_>,
    home: Option<&Name>,
    references: &mut Vec<Reference>,
) -> Result<ServiceAccount, Told> {
    let mut table = value.table("an account")?;
    let kind = table.optional("kind", |value| only_kind(value, "ServiceAccount"));
    let name = table.required("name", |value| Ok((value.name()?, value.spot())));
    let namespace = table.optional("namespace", Value::name);
    table.finish();
    let (name, spot) = name?;
    let namespace = namespace?.or_else(|| home.cloned()).ok_or(Told)?;
    let account = ServiceAccount::new(namespace, name);
    references.push(Reference { wanted: Wanted::Account(account.clone()), spot });
    kind.map(|_| account)
}

/// SMI: a target lives where its destination lives, so that a namespace's owner alone decides who
/// may call into it.
fn same_namespace(
    value: Value<'_>,
    account: ServiceAccount,
    home: Option<&Name>,
) -> Result<ServiceAccount, Told> {
    match home {
        Some(home) if account.namespace != *home => {
            let message = format!(
                "a traffic target in namespace `{home}` cannot allow calls into namespace `{}`",
                account.namespace
            );
            let finding = value.error(codes::INVALID_VALUE, message).label("another namespace");
            let help = format!("give the target itself `namespace = \"{}\"`", account.namespace);
            Err(value.tell(finding.help(help)))
        }
        _ => Ok(account),
    }
}

fn read_rule(
    value: Value<'_>,
    home: Option<&Name>,
    references: &mut Vec<Reference>,
) -> Result<RouteRule, Told> {
    let mut table = value.table("a rule")?;
    let kind = table.required("kind", read_kind);
    let name = table.required("name", |value| Ok((value.name()?, value.spot())));
    let matches = table.optional("matches", |value| match kind {
        Ok(Kind::TcpRoute) => Err(no_matches(value)),
        // Of which kind they are is not known, or they are of that group.
        Ok(Kind::HttpRouteGroup) | Err(Told) => {
            let meaning = "leave `matches` out to allow all matches of the group";
            value.at_least_one(meaning, |item| Ok((item.name()?, item.spot())))
        }
    });
    table.finish();
    let (name, spot) = name?;
    let key = home.map(|home| (home.clone(), name.clone()));
    let mut refer = |wanted, spot: &Spot| references.push(Reference { wanted, spot: spot.clone() });
    match kind? {
        Kind::TcpRoute => {
            if let Some(key) = key {
                refer(Wanted::TcpRoute(key), &spot);
            }
            matches.map(|_| RouteRule::Tcp { route: name, spot })
        }
        Kind::HttpRouteGroup => {
            if let Some(key) = key {
                refer(Wanted::Group(key.clone()), &spot);
                for (one, spot) in matches.iter().flatten().flatten() {
                    refer(Wanted::Match(key.clone(), one.clone()), spot);
                }
            }
            let names = |matches: Vec<(Name, Spot)>| {
                without_repeats(matches.into_iter().map(|(name, _)| name).collect())
            };
            Ok(RouteRule::Http { group: name, matches: matches?.map(names), spot })
        }
    }
}

/// What a rule names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    HttpRouteGroup,
    TcpRoute,
}

fn read_kind(value: Value<'_>) -> Result<Kind, Told> {
    const KINDS: [(&str, Kind); 2] =
        [("HTTPRouteGroup", Kind::HttpRouteGroup), ("TCPRoute", Kind::TcpRoute)];
    let text = value.string()?;
    if let Some((_, kind)) = KINDS.into_iter().find(|(word, _)| *word == text) {
        return Ok(kind);
    }
    let words = KINDS.map(|(word, _)| word);
    if text == "UDPRoute" {
        let finding = value.error(codes::NOT_SERVED, "rules of kind `UDPRoute` are not served");
        let help = "the mesh carries HTTP and TCP: UDP has no handshake in which to judge a caller";
        return Err(value.tell(finding.label("not served").help(help)));
    }
    let finding = value.error(codes::INVALID_VALUE, format!("there are no rules of kind `{text}`"));
    let same = words.into_iter().find(|word| word.eq_ignore_ascii_case(&text.replace('_', "")));
    let near = same.or_else(|| closest(text, words)).map(did_you_mean);
    let help = near.unwrap_or_else(|| format!("the kinds are {}", list(&words)));
    Err(value.tell(finding.label("unknown kind").help(help)))
}

/// In SMI `matches` are those of an HTTP route group: here they would be ignored, which nobody means.
fn no_matches(value: Value<'_>) -> Told {
    let finding = value.error(codes::INVALID_VALUE, "a rule of kind `TCPRoute` has no `matches`");
    let help = "the ports are named in the TCP route itself: `matches = { ports = […] }`";
    value.tell(finding.label("of an HTTP route group").help(help))
}

/// A `kind` that has one legal value.
fn only_kind(value: Value<'_>, kind: &str) -> Result<(), Told> {
    let text = value.string()?;
    if text == kind {
        return Ok(());
    }
    let message = format!("`kind` must be `{kind}` here: `{text}`");
    let finding: Finding = value.error(codes::INVALID_VALUE, message).label("another kind");
    Err(value.tell(finding.help(did_you_mean(kind))))
}

/// The items in their order, each once: what is said twice is no other policy.
fn without_repeats<T: Ord + Clone>(mut items: Vec<T>) -> Vec<T> {
    let mut seen = BTreeSet::new();
    items.retain(|item| seen.insert(item.clone()));
    items
}
