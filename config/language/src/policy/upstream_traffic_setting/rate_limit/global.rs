//! `rate_limit.global`: limits that a rate limit service decides.

mod descriptors;

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use ironmesh_catalog::{
    GlobalHttpLimit, GlobalTcpLimit, Hostname, LocalHttpLimit, RateLimitService,
};

use super::missing_alternative;
use super::read_status;
use crate::codes;
use crate::duration;
use crate::table::{FindingReported, Value};

pub(super) use descriptors::read as read_descriptors;

/// The range of the timeout of an answer.
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);

/// The most characters of a domain.
const DOMAIN: usize = 256;

/// The limits of requests, and of connections.
type Both = (Option<GlobalHttpLimit>, Option<GlobalTcpLimit>);

pub(super) fn read(value: Value<'_>) -> Result<Both, FindingReported> {
    let mut table = value.table("`rate_limit.global`")?;
    let http = table.optional("http", read_http);
    let tcp = table.optional("tcp", read_tcp);
    table.finish();
    match (http?, tcp?) {
        (None, None) => Err(missing_alternative(value, &["http", "tcp"])),
        both => Ok(both),
    }
}

fn read_tcp(value: Value<'_>) -> Result<GlobalTcpLimit, FindingReported> {
    let mut table = value.table("`rate_limit.global.tcp`")?;
    let service = table.required("rate_limit_service", read_service);
    let domain = table.required("domain", |value| value.text(DOMAIN));
    let timeout = table.optional("timeout", |value| duration::read(value, &TIMEOUT));
    let fail_open = table.optional("fail_open", Value::boolean);
    let descriptors = table.required("descriptors", descriptors::read_of_connections);
    table.finish();
    Ok(GlobalTcpLimit {
        service: service?,
        domain: domain?.into(),
        descriptors: descriptors?,
        timeout: timeout?.unwrap_or(RateLimitService::TIMEOUT),
        fail_open: fail_open?.unwrap_or(true),
    })
}

fn read_service(value: Value<'_>) -> Result<RateLimitService, FindingReported> {
    let mut table = value.table("a rate limit service")?;
    let host = table.required("host", |value| {
        let text = value.string()?;
        let is_name = || Hostname::new(text).is_ok_and(|name| !name.is_wildcard());
        if text.parse::<IpAddr>().is_err() && !is_name() {
            let message = format!("`host` must be an address or a hostname: `{text}`");
            let finding = value.error(codes::INVALID_VALUE, message).label("not a host");
            return Err(
                value.report(finding.help("write it as in `10.0.0.5` or `limits.example.com`"))
            );
        }
        Ok(text.into())
    });
    let port = table.required("port", Value::port);
    table.finish();
    Ok(RateLimitService { host: host?, port: port? })
}

fn read_http(value: Value<'_>) -> Result<GlobalHttpLimit, FindingReported> {
    let mut table = value.table("`rate_limit.global.http`")?;
    let service = table.required("rate_limit_service", read_service);
    let domain = table.required("domain", |value| value.text(DOMAIN));
    let timeout = table.optional("timeout", |value| duration::read(value, &TIMEOUT));
    let fail_open = table.optional("fail_open", Value::boolean);
    let descriptors = table.required("descriptors", read_descriptors);
    let headers = table.optional("enable_x_rate_limit_headers", Value::boolean);
    let status = table.optional("response_status_code", read_status);
    table.finish();
    Ok(GlobalHttpLimit {
        service: service?,
        domain: domain?.into(),
        descriptors: descriptors?,
        timeout: timeout?.unwrap_or(RateLimitService::TIMEOUT),
        fail_open: fail_open?.unwrap_or(true),
        enable_x_rate_limit_headers: headers?.unwrap_or(false),
        status: status?.unwrap_or(LocalHttpLimit::STATUS),
    })
}
