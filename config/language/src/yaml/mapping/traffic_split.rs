//! TrafficSplit.

use toml::de::DeValue;

use super::made::Made;
use super::{Context, FindingReported, Resource};
use crate::table::{Table, Value};

pub(super) fn read<'a>(
    made: &mut Made<'a>,
    resource: &Resource<'a>,
    has_spec: bool,
    context: &Context<'_, 'a>,
) -> Result<(), FindingReported> {
    let mut spec = resource.spec("a TrafficSplit", has_spec)?;
    service(made, &mut spec, resource, context);
    let backends = spec.optional("backends", |value| {
        made.put_list("backends", value, |item| backend(item, resource, context).map(Some))
    });
    let matches = spec.optional("matches", |value| {
        made.put_list("matches", value, |item| condition(item).map(Some))
    });
    spec.finish();
    backends.and(matches).map(|_| ())
}

/// The service that a split or a backend names. Its hostname in Kubernetes contains its name here.
fn service<'a>(
    made: &mut Made<'a>,
    table: &mut Table<'a>,
    resource: &Resource<'a>,
    context: &Context<'_, 'a>,
) {
    made.copy(table, "service", "service");
    let Some(value) = table.get("service") else { return };
    let Some((name, rest)) = value.string_if_any().and_then(|text| text.split_once('.')) else {
        return;
    };
    let mut parts = rest.split('.');
    let is_of_home = parts.next() == Some(resource.namespace());
    if is_of_home && matches!(parts.next(), None | Some("svc")) {
        context.change(format!("`{name}` was written as a hostname: `{name}.{rest}`."));
        made.put("service", value.written().span(), DeValue::String(name.into()));
    }
}

fn backend<'a>(
    item: Value<'a>,
    resource: &Resource<'a>,
    context: &Context<'_, 'a>,
) -> Result<Made<'a>, FindingReported> {
    let mut table = item.table("a backend")?;
    let mut made = Made::default();
    service(&mut made, &mut table, resource, context);
    if let Some(value) = table.get("weight") {
        let at = value.written().span();
        let whole = context.parsed.weights.get(&at.start);
        match whole.and_then(|number| DeValue::parse(number).ok()) {
            Some(number) => {
                context.change(
                    "The weights were quantities of Kubernetes: here they are thousandths.",
                );
                made.put("weight", at, number.into_inner());
            }
            None => made.copy(&mut table, "weight", "weight"),
        }
    }
    table.finish();
    Ok(made)
}

fn condition(item: Value<'_>) -> Result<Made<'_>, FindingReported> {
    let mut table = item.table("a match")?;
    let mut made = Made::default();
    made.copy(&mut table, "kind", "kind");
    made.copy(&mut table, "name", "name");
    let group = table.optional("apiGroup", |value| value.equal_to(super::SPECS));
    table.finish();
    group.map(|_| made)
}
