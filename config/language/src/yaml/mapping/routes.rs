//! HTTPRouteGroup and TCPRoute, and UDPRoute, which is rejected.

use ironmesh_catalog::Finding;
use toml::de::{DeTable, DeValue};

use super::made::Made;
use super::{Context, FindingReported, Resource, paths};
use crate::codes;
use crate::table::Value;

pub(super) fn read_http<'a>(
    made: &mut Made<'a>,
    resource: &Resource<'a>,
    has_spec: bool,
    context: &Context<'_, 'a>,
) -> Result<(), FindingReported> {
    let mut spec = resource.spec("an HTTPRouteGroup", has_spec)?;
    let matches = spec.optional("matches", |value| {
        made.put_list("matches", value, |item| http_match(item, context).map(Some))
    });
    spec.finish();
    matches.map(|_| ())
}

fn http_match<'a>(item: Value<'a>, context: &Context<'_, 'a>) -> Result<Made<'a>, FindingReported> {
    let mut table = item.table("a match")?;
    let mut made = Made::default();
    made.copy(&mut table, "name", "name");
    if let Some(path) = table.get("pathRegex") {
        match path.string_if_any() {
            Some(regex) => path_regex(&mut made, path, regex, context),
            None => made.copy(&mut table, "pathRegex", "path_regex"),
        }
    }
    made.copy(&mut table, "methods", "methods");
    // The library of SMI has the first spelling in Go, and the specification the second in YAML.
    let (first, second) = (table.get("httpHeaders"), table.get("headers"));
    if let (Some(_), Some(value)) = (first, second) {
        // Without one of them, a condition would be missing.
        let message = "a match has `httpHeaders` or `headers`, not both";
        let finding = value.error(codes::INVALID_VALUE, message).label("given twice");
        return Err(value.report(finding.help("put all headers into one of them")));
    }
    if let Some(value) = first.or(second) {
        made.put("headers", value.written().span(), headers(value));
    }
    table.finish();
    Ok(made)
}

pub(super) fn path_regex<'a>(
    made: &mut Made<'a>,
    path: Value<'a>,
    regex: &'a str,
    context: &Context<'_, 'a>,
) {
    let at = path.written().span();
    let whole = paths::whole(regex);
    if let Some(whole) = &whole {
        context.difference(path.spot(), format!("`pathRegex` `{regex}`"));
        if context.is_of_osm() {
            if whole.is_empty() {
                // Open Service Mesh ignored an empty value.
                return;
            }
            context
                .change("Open Service Mesh compared whole paths, so `path_regex` ends with `$`.");
            made.put("path_regex", at, DeValue::String(whole.clone().into()));
            return;
        }
    }
    made.put("path_regex", at, DeValue::String(regex.into()));
}

/// Headers as one table: they may also be a list of tables with one header each. Any other value, and a list
/// that repeats a header, stays unchanged, so that the reader reports it.
fn headers(value: Value<'_>) -> DeValue<'_> {
    let written = value.written().get_ref();
    let DeValue::Array(items) = written else { return written.clone() };
    let mut merged = DeTable::new();
    for item in items {
        let Some(table) = item.get_ref().as_table() else { return written.clone() };
        for (name, expression) in table {
            if merged.insert(name.clone(), expression.clone()).is_some() {
                return written.clone();
            }
        }
    }
    if merged.is_empty() { written.clone() } else { DeValue::Table(merged) }
}

pub(super) fn read_tcp<'a>(
    made: &mut Made<'a>,
    resource: &Resource<'a>,
    has_spec: bool,
    context: &Context<'_, 'a>,
) -> Result<(), FindingReported> {
    let mut spec = resource.spec("a TCPRoute", has_spec)?;
    let mut is_of_some_ports = false;
    let matches = spec.optional("matches", |value| {
        made.put_table("matches", value, |value| {
            let mut table = value.table("`matches` of a TCPRoute")?;
            let mut matches = Made::default();
            let listed = table.optional("ports", |ports| {
                // The library of SMI omits an empty list, but an author who writes one here may mean "none":
                // so an empty list never means "all".
                ports.at_least_one("leave `ports` out to mean all ports", Ok)
            });
            matches.copy(&mut table, "ports", "ports");
            table.finish();
            is_of_some_ports = listed?.is_some();
            Ok(matches)
        })
    });
    // SMI, traffic specs v1alpha4: a route without ports allows all ports.
    if !is_of_some_ports && made.is_table("matches") {
        made.take("matches");
    }
    if is_of_some_ports && context.is_of_osm() {
        context.change(
            "Open Service Mesh compared `ports` with those on which the application listens; here \
             they are those of the service, which callers say.",
        );
    }
    spec.finish();
    matches.map(|_| ())
}

pub(super) fn reject_udp<'a>(
    _: &mut Made<'a>,
    resource: &Resource<'a>,
    _: bool,
    _: &Context<'_, 'a>,
) -> Result<(), FindingReported> {
    let message = "UDPRoute is not served";
    let finding = Finding::error(codes::NOT_SERVED, Some(resource.spot()), message);
    let help = "the mesh carries HTTP and TCP: UDP has no handshake in which to verify a caller";
    Err(resource.reader.report(finding.label("not served").help(help)))
}
