//! `rate_limit` and `http_routes`: the request rates that each sidecar of a service allows.

mod global;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ironmesh_catalog::{
    GlobalHttpLimit, GlobalTcpLimit, LimitedRoute, LocalHttpLimit, Rate, RateUnit,
};

use super::missing_alternative;
use crate::codes;
use crate::policy::http_route_group::is_token;
use crate::policy::regex;
use crate::table::{FindingReported, Table, Value};

/// The most routes of a setting: Envoy compares them one after the other.
const MOST_ROUTES: usize = 100;

/// The most headers that are added to an answer.
const MOST_HEADERS: usize = 16;

/// The statuses of errors that Envoy has names for. With any other status, Envoy would reject all routes of
/// the port.
const STATUSES: [RangeInclusive<u32>; 7] =
    [400..=417, 421..=424, 426..=426, 428..=429, 431..=431, 500..=508, 510..=511];

/// The limits of HTTP and of TCP.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub(super) local_http: Option<LocalHttpLimit>,
    pub(super) local_tcp: Option<Rate>,
    pub(super) global_http: Option<GlobalHttpLimit>,
    pub(super) global_tcp: Option<GlobalTcpLimit>,
}

pub(super) fn read(value: Value<'_>) -> Result<Limits, FindingReported> {
    let mut table = value.table("`rate_limit`")?;
    let local = table.optional("local", |value| {
        let mut table = value.table("`rate_limit.local`")?;
        let http = table.optional("http", read_http);
        let tcp = table.optional("tcp", |value| {
            let mut table = value.table("`rate_limit.local.tcp`")?;
            let rate = read_rate(&mut table, "connections", value);
            table.finish();
            rate
        });
        table.finish();
        match (http?, tcp?) {
            (None, None) => Err(missing_alternative(value, &["http", "tcp"])),
            some => Ok(some),
        }
    });
    let global = table.optional("global", global::read);
    table.finish();
    match (local?, global?) {
        (None, None) => Err(missing_alternative(value, &["local", "global"])),
        (local, global) => {
            let (local_http, local_tcp) = local.unwrap_or_default();
            let (global_http, global_tcp) = global.unwrap_or_default();
            Ok(Limits { local_http, local_tcp, global_http, global_tcp })
        }
    }
}

fn read_http(value: Value<'_>) -> Result<LocalHttpLimit, FindingReported> {
    let mut table = value.table("`rate_limit.local.http`")?;
    let rate = read_rate(&mut table, "requests", value);
    let status = table.optional("response_status_code", read_status);
    let headers = table.optional("response_headers_to_add", read_headers);
    table.finish();
    Ok(LocalHttpLimit {
        rate: rate?,
        status: status?.unwrap_or(LocalHttpLimit::STATUS),
        headers: headers?.unwrap_or_default(),
    })
}

fn read_status(value: Value<'_>) -> Result<u16, FindingReported> {
    let status = value.integer(codes::INVALID_VALUE, 400..=599)?;
    if !STATUSES.iter().any(|some| some.contains(&status)) {
        let message = format!("Envoy limits no rate with a status of {status}");
        let finding = value.error(codes::INVALID_VALUE, message).label("unknown to it");
        return Err(value.report(finding.help(
            "it knows 400 to 417, 421 to 424, 426, 428, 429, 431, 500 to 508, 510 and 511",
        )));
    }
    u16::try_from(status).map_err(|_| FindingReported)
}

fn read_rate(
    table: &mut Table<'_>,
    what: &'static str,
    whole: Value<'_>,
) -> Result<Rate, FindingReported> {
    let number = table.required(what, |value| value.integer(codes::INVALID_VALUE, 1..=u32::MAX));
    let unit = table.required("unit", |value| value.word("unit", &RateUnit::ALL));
    let burst = table.optional("burst", |value| value.integer(codes::INVALID_VALUE, 0..=u32::MAX));
    let rate = Rate { number: number?, unit: unit?, burst: burst?.unwrap_or_default() };
    if rate.number.checked_add(rate.burst).is_none() {
        let message = format!("`{what}` and `burst` are more than {} together", u32::MAX);
        let finding = whole.error(codes::INVALID_VALUE, message).label("too many");
        return Err(
            whole.report(finding.help("set smaller limits; without the key there is no limit"))
        );
    }
    Ok(rate)
}

/// Name and value.
type Header = (Arc<str>, Arc<str>);

fn read_headers(value: Value<'_>) -> Result<Vec<Header>, FindingReported> {
    if value.items()?.len() > MOST_HEADERS {
        let message = format!("a response gets at most {MOST_HEADERS} headers");
        return Err(value.report(value.error(codes::TOO_LARGE, message).label("too many")));
    }
    let mut seen = BTreeSet::new();
    let meaning = "leave it out for no headers";
    value.at_least_one(meaning, |item| {
        let mut table = item.table("a header of an answer")?;
        let name = table.required("name", |value| {
            let name: Arc<str> = value.string()?.to_lowercase().into();
            // Envoy sets these by itself.
            let is_rejected = ["host", "content-length", "transfer-encoding"].contains(&&*name);
            if is_rejected || !is_token(&name) {
                let message = format!("`{name}` cannot be set on a response");
                let finding = value.error(codes::INVALID_VALUE, message).label("not a header");
                return Err(value.report(finding.help("write a header as in `x-limited`")));
            }
            if !seen.insert(Arc::clone(&name)) {
                let message = format!("header `{name}` is given twice");
                let finding = value.error(codes::DUPLICATE_NAME, message).label("given again");
                return Err(value.report(finding.help("give it once")));
            }
            Ok(name)
        });
        let value = table.required("value", |value| value.text(1024));
        table.finish();
        Ok((name?, value?.into()))
    })
}

pub(super) fn read_routes(value: Value<'_>) -> Result<Vec<LimitedRoute>, FindingReported> {
    if value.items()?.len() > MOST_ROUTES {
        let message = format!("a setting has at most {MOST_ROUTES} `http_routes`");
        let finding = value.error(codes::TOO_LARGE, message).label("too many");
        return Err(value.report(finding.help("put several paths into one expression")));
    }
    let mut seen = BTreeSet::new();
    value.at_least_one("leave it out for no routes", |item| {
        let mut table = item.table("an HTTP route of a setting")?;
        let path = table.required("path_regex", |value| {
            let path = regex::read_path(value)?;
            if !seen.insert(Arc::clone(&path.text)) {
                let message = format!("the route `{}` is given twice", path.text);
                let finding = value.error(codes::DUPLICATE_NAME, message).label("given again");
                return Err(
                    value.report(finding.help("remove one of them: only the first would be used"))
                );
            }
            Ok(path)
        });
        let limits = table.required("rate_limit", |value| {
            let mut table = value.table("`rate_limit` of a route")?;
            let local = table.optional("local", |value| {
                let mut table = value.table("`rate_limit.local` of a route")?;
                let http = table.required("http", read_http);
                table.finish();
                http
            });
            let global = table.optional("global", |value| {
                let mut table = value.table("`rate_limit.global` of a route")?;
                let descriptors = table.required("descriptors", global::read_descriptors);
                table.finish();
                descriptors
            });
            table.finish();
            match (local?, global?) {
                (None, None) => Err(missing_alternative(value, &["local", "global"])),
                some => Ok(some),
            }
        });
        table.finish();
        let (path, (local_http, descriptors)) = (path?, limits?);
        Ok(LimitedRoute { path, local_http, descriptors })
    })
}
