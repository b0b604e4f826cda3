//! `connection_settings`: the limits of concurrent connections and requests of a caller.

use std::ops::RangeInclusive;
use std::time::Duration;

use ironmesh_catalog::{HttpConnections, RetryLimit, TcpConnections};

use super::missing_alternative;
use crate::codes;
use crate::duration;
use crate::table::{FindingReported, Value};

/// The range of connect timeouts.
const CONNECT_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(3600);

/// The settings of TCP and of HTTP.
type Connections = (Option<TcpConnections>, Option<HttpConnections>);

pub(super) fn read(value: Value<'_>) -> Result<Connections, FindingReported> {
    let mut table = value.table("`connection_settings`")?;
    let tcp = table.optional("tcp", read_tcp);
    let http = table.optional("http", read_http);
    table.finish();
    match (tcp?, http?) {
        (None, None) => Err(missing_alternative(value, &["tcp", "http"])),
        some => Ok(some),
    }
}

fn read_tcp(value: Value<'_>) -> Result<TcpConnections, FindingReported> {
    let mut table = value.table("`connection_settings.tcp`")?;
    let max_connections = table.optional("max_connections", at_least_one);
    let connect_timeout =
        table.optional("connect_timeout", |value| duration::read(value, &CONNECT_TIMEOUT));
    table.finish();
    let tcp =
        TcpConnections { max_connections: max_connections?, connect_timeout: connect_timeout? };
    if tcp == TcpConnections::default() {
        return Err(missing_alternative(value, &["max_connections", "connect_timeout"]));
    }
    Ok(tcp)
}

fn read_http(value: Value<'_>) -> Result<HttpConnections, FindingReported> {
    let mut table = value.table("`connection_settings.http`")?;
    let max_requests = table.optional("max_requests", at_least_one);
    let per_connection = table.optional("max_requests_per_connection", at_least_one);
    let max_pending = table.optional("max_pending_requests", at_least_one);
    let max_retries = table.optional("max_retries", |value| {
        Ok((value.integer(codes::INVALID_VALUE, 0..=u32::MAX)?, value.spot()))
    });
    let budget = table.optional("retry_budget", |value| Ok((read_budget(value)?, value)));
    table.finish();
    let retries = match (max_retries?, budget?) {
        (Some((_, first)), Some((_, budget))) => {
            let message = "`retry_budget` and `max_retries` are two limits of the same retries";
            let finding = budget.error(codes::INVALID_VALUE, message).label("a second limit");
            let finding = finding.related(first, "the first");
            return Err(budget.report(finding.help("leave one of the two out")));
        }
        (Some((most, _)), None) => Some(RetryLimit::Most(most)),
        (None, budget) => budget.map(|(budget, _)| budget),
    };
    let http = HttpConnections {
        max_requests: max_requests?,
        max_requests_per_connection: per_connection?,
        max_pending_requests: max_pending?,
        retries,
    };
    if http == HttpConnections::default() {
        let keys = [
            "max_requests",
            "max_requests_per_connection",
            "max_pending_requests",
            "max_retries",
            "retry_budget",
        ];
        return Err(missing_alternative(value, &keys));
    }
    Ok(http)
}

fn read_budget(value: Value<'_>) -> Result<RetryLimit, FindingReported> {
    let mut table = value.table("a retry budget")?;
    let percent = table.required("percent", percent);
    let min_concurrency = table.optional("min_concurrency", at_least_one);
    table.finish();
    Ok(RetryLimit::Budget { percent: percent?, min_concurrency: min_concurrency? })
}

/// Reads a limit of at least 1: a limit of 0 would deny all calls.
fn at_least_one(value: Value<'_>) -> Result<u32, FindingReported> {
    value.integer(codes::INVALID_VALUE, 1..=u32::MAX)
}

pub(super) fn percent(value: Value<'_>) -> Result<u32, FindingReported> {
    value.integer(codes::INVALID_VALUE, 1..=100)
}
