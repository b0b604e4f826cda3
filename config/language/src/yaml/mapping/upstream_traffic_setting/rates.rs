//! Rate limits of an UpstreamTrafficSetting.

mod global;

use super::super::made::Made;
use super::super::routes::path_regex;
use super::super::{Context, FindingReported};
use super::renamed;
use crate::table::Value;

/// Limits of all requests and connections.
pub(super) fn all(value: Value<'_>) -> Result<Made<'_>, FindingReported> {
    let mut made = Made::default();
    let mut table = value.table("`rateLimit`")?;
    let global = table.optional("global", |value| made.put_table("global", value, global::all));
    let local = table.optional("local", |value| {
        made.put_table("local", value, |value| {
            let mut made = Made::default();
            let mut table = value.table("`local`")?;
            let tcp = table.optional("tcp", |value| made.put_table("tcp", value, local_tcp));
            let http = table.optional("http", |value| made.put_table("http", value, local_http));
            table.finish();
            tcp.and(http).map(|_| made)
        })
    });
    table.finish();
    global.and(local).map(|_| made)
}

/// A route with a limit of its own.
pub(super) fn route<'a>(
    value: Value<'a>,
    context: &Context<'_, 'a>,
) -> Result<Made<'a>, FindingReported> {
    let mut made = Made::default();
    let mut table = value.table("a route")?;
    let path = table.required("path", |path| {
        let regex = path.string()?;
        path_regex(&mut made, path, regex, context);
        Ok(())
    });
    let limit = table.required("rateLimit", |value| {
        made.put_table("rate_limit", value, |value| {
            let mut made = Made::default();
            let mut table = value.table("`rateLimit` of a route")?;
            let global = table.optional("global", |value| {
                made.put_table("global", value, global::route_descriptors)
            });
            // The limit of a route here is always one of HTTP.
            let local = table.optional("local", |value| {
                made.put_table("local", value, |value| {
                    let mut made = Made::default();
                    made.put_table("http", value, local_http).map(|()| made)
                })
            });
            table.finish();
            global.and(local).map(|_| made)
        })
    });
    table.finish();
    path.and(limit).map(|()| made)
}

fn local_tcp(value: Value<'_>) -> Result<Made<'_>, FindingReported> {
    let keys = ["connections", "unit", "burst"].map(|key| (key, key));
    Ok(renamed(value.table("`tcp`")?, &keys))
}

fn local_http(value: Value<'_>) -> Result<Made<'_>, FindingReported> {
    let keys = [
        ("requests", "requests"),
        ("unit", "unit"),
        ("burst", "burst"),
        ("responseStatusCode", "response_status_code"),
        ("responseHeadersToAdd", "response_headers_to_add"),
    ];
    Ok(renamed(value.table("`http`")?, &keys))
}
