//! The limits of an UpstreamTrafficSetting that a rate limit service decides.

use toml::de::DeValue;

use super::super::super::FindingReported;
use super::super::super::made::Made;
use super::super::renamed;
use crate::table::{Table, Value};

pub(super) fn all(value: Value<'_>) -> Result<Made<'_>, FindingReported> {
    let mut made = Made::default();
    let mut table = value.table("`global`")?;
    let tcp = table.optional("tcp", |value| made.put_table("tcp", value, tcp));
    let http = table.optional("http", |value| made.put_table("http", value, http));
    table.finish();
    tcp.and(http).map(|_| made)
}

/// The descriptors of a route, which are always those of HTTP.
pub(super) fn route_descriptors(value: Value<'_>) -> Result<Made<'_>, FindingReported> {
    let mut made = Made::default();
    let mut table = value.table("`global` of a route")?;
    let descriptors = descriptors(&mut made, &mut table);
    table.finish();
    descriptors.map(|()| made)
}

fn tcp(value: Value<'_>) -> Result<Made<'_>, FindingReported> {
    let mut made = Made::default();
    let mut table = value.table("`tcp`")?;
    convert_service(&mut made, &mut table);
    // The keys of their entries are equal.
    made.copy(&mut table, "descriptors", "descriptors");
    table.finish();
    Ok(made)
}

fn http(value: Value<'_>) -> Result<Made<'_>, FindingReported> {
    let mut made = Made::default();
    let mut table = value.table("`http`")?;
    convert_service(&mut made, &mut table);
    made.copy(&mut table, "enableXRateLimitHeaders", "enable_x_rate_limit_headers");
    made.copy(&mut table, "responseStatusCode", "response_status_code");
    let descriptors = descriptors(&mut made, &mut table);
    table.finish();
    descriptors.map(|()| made)
}

fn convert_service<'a>(made: &mut Made<'a>, table: &mut Table<'a>) {
    let keys = [
        ("rateLimitService", "rate_limit_service"),
        ("domain", "domain"),
        ("timeout", "timeout"),
        ("failOpen", "fail_open"),
    ];
    for (theirs, ours) in keys {
        made.copy(table, theirs, ours);
    }
}

fn descriptors<'a>(made: &mut Made<'a>, table: &mut Table<'a>) -> Result<(), FindingReported> {
    let descriptors = table.optional("descriptors", |value| {
        made.put_list("descriptors", value, |item| {
            let mut made = Made::default();
            let mut table = item.table("a descriptor")?;
            let entries = table.optional("entries", |value| {
                made.put_list("entries", value, |item| entry(item).map(Some))
            });
            table.finish();
            entries.map(|_| Some(made))
        })
    });
    descriptors.map(|_| ())
}

fn entry(item: Value<'_>) -> Result<Made<'_>, FindingReported> {
    let mut made = Made::default();
    let mut table = item.table("an entry")?;
    made.copy(&mut table, "genericKey", "generic_key");
    made.copy(&mut table, "requestHeader", "request_header");
    // The table is empty.
    if let Some(value) = table.get("remoteAddress") {
        made.put("remote_address", value.written().span(), DeValue::Boolean(true));
    }
    let matching = table.optional("headerValueMatch", |value| {
        made.put_table("header_value_match", value, |value| {
            let same = ["value", "key", "headers"].map(|key| (key, key));
            let keys = [&same[..], &[("expectMatch", "expect_match")]].concat();
            Ok(renamed(value.table("`headerValueMatch`")?, &keys))
        })
    });
    table.finish();
    matching.map(|_| made)
}
