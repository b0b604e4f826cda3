//! Egress, of Open Service Mesh.

use toml::de::DeValue;

use super::made::Made;
use super::{Context, FindingReported, Resource, SPECS};
use crate::codes;
use crate::table::Value;

pub(super) fn read<'a>(
    made: &mut Made<'a>,
    resource: &Resource<'a>,
    has_spec: bool,
    context: &Context<'_, 'a>,
) -> Result<(), FindingReported> {
    let mut spec = resource.spec("an Egress", has_spec)?;
    let sources = spec.optional("sources", |value| {
        made.put_list("sources", value, |item| source(item).map(Some))
    });
    made.copy(&mut spec, "hosts", "hosts");
    made.copy(&mut spec, "ipAddresses", "ip_addresses");
    let mut is_tcp = false;
    let ports = spec.optional("ports", |value| {
        made.put_list("ports", value, |item| port(item, &mut is_tcp).map(Some))
    });
    let matches = spec.optional("matches", |value| {
        made.put_list("matches", value, |item| condition(item).map(Some))
    });
    spec.finish();
    // An empty key means nothing there.
    for key in ["hosts", "ip_addresses", "matches"] {
        if made.is_empty_list(key) {
            made.take(key);
        }
    }
    if is_tcp && made.has("hosts") {
        context.change(
            "For ports of TCP, Open Service Mesh looked at `ipAddresses` alone; here these are called by \
             the hosts, too.",
        );
    }
    sources.and(ports).and(matches).map(|_| ())
}

fn source(value: Value<'_>) -> Result<Made<'_>, FindingReported> {
    let mut made = Made::default();
    let mut table = value.table("a source of an egress")?;
    if table.get("kind").and_then(Value::string_if_any) != Some("ServiceAccount") {
        made.copy(&mut table, "kind", "kind");
    }
    made.copy(&mut table, "name", "name");
    made.copy(&mut table, "namespace", "namespace");
    table.finish();
    Ok(made)
}

/// Which side speaks first has no effect here.
fn port<'a>(value: Value<'a>, is_tcp: &mut bool) -> Result<Made<'a>, FindingReported> {
    let mut made = Made::default();
    let mut table = value.table("a port of an egress")?;
    made.copy(&mut table, "number", "number");
    made.copy(&mut table, "protocol", "protocol");
    if let Some(protocol) = table.get("protocol") {
        let word = protocol.string_if_any().unwrap_or("").to_lowercase();
        *is_tcp |= word.starts_with("tcp");
        let ours = match &*word {
            "http" => Some("http"),
            "https" => Some("https"),
            "tcp" | "tcp-server-first" => Some("tcp"),
            _ => None,
        };
        if let Some(ours) = ours {
            let at = protocol.written().span();
            made.put("protocol", at, DeValue::String(ours.into()));
        }
    }
    table.finish();
    Ok(made)
}

fn condition(value: Value<'_>) -> Result<Made<'_>, FindingReported> {
    let mut made = Made::default();
    let mut table = value.table("a match of an egress")?;
    let group = table.optional("apiGroup", |value| {
        let text = value.string()?;
        if text.split('/').next() == Some(SPECS) {
            return Ok(());
        }
        let message = format!("matches of `{text}` are not served in an Egress");
        let finding = value.error(codes::NOT_SERVED, message).label("not served");
        Err(value.report(finding.help("name an HTTPRouteGroup of `specs.smi-spec.io/v1alpha4`")))
    });
    made.copy(&mut table, "kind", "kind");
    made.copy(&mut table, "name", "name");
    table.finish();
    group.map(|_| made)
}
