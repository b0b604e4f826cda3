//! Retry, of Open Service Mesh.

use super::made::Made;
use super::{Context, FindingReported, Resource};
use crate::table::Value;

pub(super) fn read<'a>(
    made: &mut Made<'a>,
    resource: &Resource<'a>,
    has_spec: bool,
    _: &Context<'_, 'a>,
) -> Result<(), FindingReported> {
    let mut spec = resource.spec("a Retry", has_spec)?;
    let source = spec.optional("source", |value| {
        made.put_table("source", value, |value| named(value, "a source"))
    });
    let destinations = spec.optional("destinations", |value| {
        made.put_list("destinations", value, |item| named(item, "a destination").map(Some))
    });
    let policy = spec.optional("retryPolicy", |value| {
        made.put_table("retry_policy", value, |value| {
            let (mut made, mut table) = (Made::default(), value.table("a retry policy")?);
            for (theirs, ours) in KEYS {
                made.copy(&mut table, theirs, ours);
            }
            table.finish();
            Ok(made)
        })
    });
    spec.finish();
    source.and(destinations).and(policy).map(|_| ())
}

/// The keys of a retry policy, in the spelling of Open Service Mesh and of Ironmesh. Defaults are equal in
/// both.
const KEYS: [(&str, &str); 4] = [
    ("retryOn", "retry_on"),
    ("numRetries", "num_retries"),
    ("perTryTimeout", "per_try_timeout"),
    ("retryBackoffBaseInterval", "retry_backoff_base_interval"),
];

fn named<'a>(value: Value<'a>, what: &'static str) -> Result<Made<'a>, FindingReported> {
    let (mut made, mut table) = (Made::default(), value.table(what)?);
    for key in ["kind", "name", "namespace"] {
        made.copy(&mut table, key, key);
    }
    table.finish();
    Ok(made)
}
