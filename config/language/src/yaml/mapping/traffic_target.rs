//! TrafficTarget.

use std::collections::BTreeSet;

use ironmesh_catalog::Finding;

use super::made::Made;
use super::{Context, FindingReported, Resource};
use crate::codes;
use crate::table::Value;

pub(super) fn read<'a>(
    made: &mut Made<'a>,
    resource: &Resource<'a>,
    has_spec: bool,
    context: &Context<'_, 'a>,
) -> Result<(), FindingReported> {
    let mut spec = resource.spec("a TrafficTarget", has_spec)?;
    let destination = spec.optional("destination", |value| {
        made.put_table("destination", value, |value| account(value, true))
    });
    let sources = spec.optional("sources", |value| {
        made.put_list("sources", value, |item| account(item, false).map(Some))
    });
    // The first version has another spelling.
    let rules = if has_spec { "rules" } else { "specs" };
    let rules = spec.optional(rules, |value| read_rules(made, value, context));
    let is_for_anyone = !made.has("sources") || made.is_empty_list("sources");
    if context.is_of_osm() && is_for_anyone {
        let message = "a target without `sources`: Open Service Mesh let everyone in the mesh call";
        let finding = Finding::error(codes::EMPTY_LIST, Some(resource.spot()), message);
        let help = "name who may call, each by the account";
        spec.report(finding.label("no sources").help(help));
        return Err(FindingReported);
    }
    spec.finish();
    destination.and(sources).and(rules).map(|_| ())
}

/// A destination or a source.
fn account(value: Value<'_>, is_destination: bool) -> Result<Made<'_>, FindingReported> {
    let mut made = Made::default();
    let mut table = value.table(if is_destination { "a destination" } else { "a source" })?;
    let kind = table.get("kind").and_then(Value::string_if_any);
    if kind != Some("ServiceAccount") {
        made.copy(&mut table, "kind", "kind");
    }
    made.copy(&mut table, "name", "name");
    made.copy(&mut table, "namespace", "namespace");
    // v1alpha4 names the group of the kind, but only one group has the kind.
    if kind == Some("IdentityBinding") {
        table.optional("group", |value| value.equal_to("access.smi-spec.io"))?;
    }
    let port = table.optional("port", |value| {
        let message = "`port` of a destination is not served, and without it more would be allowed";
        let finding = value.error(codes::NOT_SERVED, message).label("not served");
        let help = "where the services of the account have this port alone, leave it out; else name \
                    it in a TCPRoute, as later versions of SMI do";
        Err::<(), FindingReported>(value.report(finding.help(help)))
    });
    table.finish();
    port.map(|_| made)
}

fn read_rules<'a>(
    made: &mut Made<'a>,
    value: Value<'a>,
    context: &Context<'_, 'a>,
) -> Result<(), FindingReported> {
    // The spots of the rules that are kept, and of those that are left out.
    let (mut kinds, mut without) = (BTreeSet::new(), BTreeSet::new());
    made.put_list("rules", value, |item| {
        let made = read_rule(item, context)?;
        let kinds = if made.is_some() { &mut kinds } else { &mut without };
        kinds.insert(item.string_below("kind"));
        Ok(made)
    })?;
    let is_tcp_alone = kinds == [Some("TCPRoute")].into();
    if is_tcp_alone && without.contains(&Some("HTTPRouteGroup")) {
        let message = "a rule without `matches` allowed nothing, and without the rule all requests \
                       would be allowed on the HTTP ports that the TCP routes cover";
        let finding = value.error(codes::EMPTY_LIST, message).label("TCP routes alone");
        return Err(value.report(finding.help("name the matches that are allowed")));
    }
    if context.is_of_osm() && is_tcp_alone {
        context.change(
            "On an HTTP port, Open Service Mesh answered 404 to what is allowed by TCP routes alone; \
             here all requests are allowed on the HTTP ports that the routes cover.",
        );
    }
    if made.is_empty_list("rules") && value.items()?.len() > 0 {
        let message = "no rule is left, so the target allows nothing";
        let finding = value.error(codes::EMPTY_LIST, message).label("nothing allowed");
        return Err(value.report(finding.help("name what may be called")));
    }
    Ok(())
}

/// A rule; none, if it allows nothing here.
fn read_rule<'a>(
    item: Value<'a>,
    context: &Context<'_, 'a>,
) -> Result<Option<Made<'a>>, FindingReported> {
    let mut table = item.table("a rule")?;
    let mut rule = Made::default();
    rule.copy(&mut table, "kind", "kind");
    rule.copy(&mut table, "name", "name");
    rule.copy(&mut table, "matches", "matches");
    table.finish();
    let kind = item.string_below("kind");
    if kind == Some("UDPRoute") {
        let name = item.string_below("name").unwrap_or("");
        let message = format!("rules of kind `UDPRoute` are not served: `{name}`");
        let finding = item.error(codes::NOT_SERVED, message).label("not served");
        item.report(finding.help("remove the rule: the mesh carries HTTP and TCP"));
        return Ok(None);
    }
    let names_none = !rule.has("matches") || rule.is_empty_list("matches");
    if kind == Some("HTTPRouteGroup") && names_none {
        context.difference(item.spot(), "a rule without `matches`");
        if context.is_of_osm() {
            context.change(
                "A rule without `matches` is left out: Open Service Mesh allowed nothing by it, and \
                 here it would allow all matches of the group.",
            );
            return Ok(None);
        }
    }
    Ok(Some(rule))
}
