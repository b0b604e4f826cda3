//! `[[traffic_target]]`: the sources that may call a destination, and the rules that limit the calls.

use ironmesh_catalog::{Name, RouteRule, ServiceAccount, Spot, Subject, TrafficTarget};

use super::part::{Id, Part, Reference, ReferenceTarget};
use super::repeats::without_repeats;
use super::udp::NO_UDP;
use crate::codes;
use crate::table::{FindingReported, Table, Value};

/// Reads one traffic target into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let home = id.as_ref().ok().map(|id| &id.namespace);
    let mut references = Vec::new();
    let destination = table.required("destination", |value| {
        let subject = read_subject(value, home, &mut references)?;
        same_namespace(value, subject, home)
    });
    let sources = table.required("sources", |value| {
        let meaning = "an empty list never means anyone: name who may call";
        value.at_least_one(meaning, |item| read_subject(item, home, &mut references))
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
    destination: Result<Subject, FindingReported>,
    sources: Result<Vec<Subject>, FindingReported>,
    rules: Result<Vec<RouteRule>, FindingReported>,
) -> Result<TrafficTarget, FindingReported> {
    Ok(TrafficTarget {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        destination: destination?,
        sources: without_repeats(sources?),
        rules: rules?,
        spot: id.spot.clone(),
    })
}

/// Reads an account or an identity binding. Its default namespace is `home`, which is `None` if it could not
/// be read.
fn read_subject(
    value: Value<'_>,
    home: Option<&Name>,
    references: &mut Vec<Reference>,
) -> Result<Subject, FindingReported> {
    let mut table = value.table("an account")?;
    let kind = table.optional("kind", |value| value.word("kind of subject", &SUBJECTS));
    let name = table.required("name", |value| Ok((value.name()?, value.spot())));
    let namespace = table.optional("namespace", Value::name);
    table.finish();
    let (name, spot) = name?;
    let namespace = namespace?.or_else(|| home.cloned()).ok_or(FindingReported)?;
    Ok(match kind?.unwrap_or(SubjectKind::Account) {
        SubjectKind::Account => {
            let account = ServiceAccount::new(namespace, name);
            references
                .push(Reference { referenced: ReferenceTarget::Account(account.clone()), spot });
            Subject::Account(account)
        }
        SubjectKind::Binding => {
            let referenced = ReferenceTarget::Binding((namespace.clone(), name.clone()));
            references.push(Reference { referenced, spot });
            Subject::Binding(namespace, name)
        }
    })
}

/// The account or binding that a subject names.
#[derive(Debug, Clone, Copy)]
enum SubjectKind {
    Account,
    Binding,
}

const SUBJECTS: [(&str, SubjectKind); 2] =
    [("ServiceAccount", SubjectKind::Account), ("IdentityBinding", SubjectKind::Binding)];

/// The finding for another namespace. In SMI, a target is in the namespace of its destination, so that only
/// its owner decides who may call into it.
fn same_namespace(
    value: Value<'_>,
    subject: Subject,
    home: Option<&Name>,
) -> Result<Subject, FindingReported> {
    let (Subject::Account(ServiceAccount { namespace, .. }) | Subject::Binding(namespace, _)) =
        &subject;
    match home {
        Some(home) if namespace != home => {
            let message = format!(
                "a traffic target in namespace `{home}` cannot allow calls into namespace `{namespace}`"
            );
            let finding = value.error(codes::INVALID_VALUE, message).label("another namespace");
            let help = format!("give the target itself `namespace = \"{namespace}\"`");
            Err(value.report(finding.help(help)))
        }
        _ => Ok(subject),
    }
}

fn read_rule(
    value: Value<'_>,
    home: Option<&Name>,
    references: &mut Vec<Reference>,
) -> Result<RouteRule, FindingReported> {
    let mut table = value.table("a rule")?;
    let kind = table.required("kind", read_rule_kind);
    let name = table.required("name", |value| Ok((value.name()?, value.spot())));
    let matches = table.optional("matches", |value| match kind {
        Ok(Kind::TcpRoute) => Err(no_matches(value)),
        // Either the kind is unknown, or the rules belong to that group.
        Ok(Kind::HttpRouteGroup) | Err(FindingReported) => {
            let meaning = "leave `matches` out to allow all matches of the group";
            value.at_least_one(meaning, |item| Ok((item.name()?, item.spot())))
        }
    });
    table.finish();
    let (name, spot) = name?;
    let key = home.map(|home| (home.clone(), name.clone()));
    let mut refer =
        |referenced, spot: &Spot| references.push(Reference { referenced, spot: spot.clone() });
    match kind? {
        Kind::TcpRoute => {
            if let Some(key) = key {
                refer(ReferenceTarget::TcpRoute(key), &spot);
            }
            matches.map(|_| RouteRule::Tcp { route: name, spot })
        }
        Kind::HttpRouteGroup => {
            if let Some(key) = key {
                refer(ReferenceTarget::Group(key.clone()), &spot);
                for (one, spot) in matches.iter().flatten().flatten() {
                    refer(ReferenceTarget::Match(key.clone(), one.clone()), spot);
                }
            }
            let names = |matches: Vec<(Name, Spot)>| {
                without_repeats(matches.into_iter().map(|(name, _)| name).collect())
            };
            Ok(RouteRule::Http { group: name, matches: matches?.map(names), spot })
        }
    }
}

/// The route or group that a rule names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    HttpRouteGroup,
    TcpRoute,
}

fn read_rule_kind(value: Value<'_>) -> Result<Kind, FindingReported> {
    if value.string()? == "UDPRoute" {
        let finding = value.error(codes::NOT_SERVED, "rules of kind `UDPRoute` are not served");
        return Err(value.report(finding.label("not served").help(NO_UDP)));
    }
    let kinds = [("HTTPRouteGroup", Kind::HttpRouteGroup), ("TCPRoute", Kind::TcpRoute)];
    value.word("kind of rule", &kinds)
}

/// In SMI, a rule for TCP has no `matches`. Ignoring them here would grant more than intended, so they are
/// rejected.
fn no_matches(value: Value<'_>) -> FindingReported {
    let finding = value.error(codes::INVALID_VALUE, "a rule of kind `TCPRoute` has no `matches`");
    let help = "the ports are named in the TCP route itself: `matches = { ports = […] }`";
    value.report(finding.label("of an HTTP route group").help(help))
}
