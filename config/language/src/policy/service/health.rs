//! `[service.health]`: how the application of a service is probed on its machine.

use std::ops::RangeInclusive;
use std::time::Duration;

use ironmesh_catalog::{HealthCheck, Port, Probe, StatusRange};

use super::upstreams::read_port_reference;
use crate::codes;
use crate::duration;
use crate::table::{FindingReported, Table, Value};

/// With a shorter interval, probes would be a load of their own.
const INTERVAL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3600);
const THRESHOLD: RangeInclusive<u32> = 1..=100;

/// The longest path, host and name of a gRPC service.
const LONGEST: usize = 1024;

/// The keys that select a probe.
const PROBES: [&str; 4] = ["http", "tcp", "grpc", "command"];

/// An external service has no machine of the mesh.
pub(super) fn reject_health(value: Value<'_>) -> FindingReported {
    let finding = value.error(codes::INVALID_VALUE, "an external service has no health check");
    let help = "remove `health`: only agents beside an application probe it";
    value.report(finding.label("outside of the mesh").help(help))
}

/// Reads the health check of a service with these ports, which are `None` if they could not be read.
pub(super) fn read(
    value: Value<'_>,
    ports: Option<&[Port]>,
) -> Result<HealthCheck, FindingReported> {
    let mut table = value.table("a health check")?;
    let port = read_port(&mut table, value, ports);
    let is_http2 = |port: &Port| port.protocol.is_http2();
    let http2 = port.as_ref().ok().and_then(Option::as_ref).is_some_and(is_http2);
    let http = table.optional("http", |value| read_http(value, http2));
    let tcp = table.optional("tcp", |value| {
        value.table("a TCP probe")?.finish();
        Ok(Probe::Tcp)
    });
    let grpc = table.optional("grpc", read_grpc);
    let command = table.optional("command", |value| Ok(Probe::Command { name: value.name()? }));
    let interval = table.optional("interval", |value| duration::read(value, &INTERVAL));
    let timeout = table.optional("timeout", |value| Ok((duration::read(value, &TIMEOUT)?, value)));
    let threshold = |value: Value<'_>| value.integer(codes::INVALID_VALUE, THRESHOLD);
    let unhealthy = table.optional("unhealthy_threshold", threshold);
    let healthy = table.optional("healthy_threshold", threshold);
    table.finish();
    let given: Vec<_> =
        [http, tcp, grpc, command].into_iter().filter_map(Result::transpose).collect();
    let probe = match given.len() {
        1 => given.into_iter().next().unwrap_or(Err(FindingReported)),
        0 => Err(no_probe(value)),
        _ => Err(several_probes(value)),
    };
    let (interval, timeout) = (interval?.unwrap_or(HealthCheck::INTERVAL), timeout?);
    let timeout = match timeout {
        None => HealthCheck::TIMEOUT.min(interval),
        Some((timeout, _)) if timeout <= interval => timeout,
        Some((_, value)) => return Err(too_long(value)),
    };
    Ok(HealthCheck {
        port: port?.ok_or(FindingReported)?.number,
        probe: probe?,
        interval,
        timeout,
        unhealthy_threshold: unhealthy?.unwrap_or(HealthCheck::UNHEALTHY_THRESHOLD),
        healthy_threshold: healthy?.unwrap_or(HealthCheck::HEALTHY_THRESHOLD),
    })
}

/// The port that is probed. `None` if the ports of the service could not be read, which is reported already.
fn read_port(
    table: &mut Table<'_>,
    whole: Value<'_>,
    ports: Option<&[Port]>,
) -> Result<Option<Port>, FindingReported> {
    let known = |ports: &[Port]| {
        let port = |port: &Port| format!("{} (`{}`)", port.number, port.name);
        let all: Vec<_> = ports.iter().map(port).collect();
        format!("the service has port {}", all.join(", "))
    };
    let given = table.optional("port", |value| {
        let reference = read_port_reference(value)?;
        let Some(ports) = ports else { return Ok(None) };
        let found = ports.iter().find(|port| reference.matches(port)).cloned();
        let unknown = || {
            let message = format!("the service has no port `{reference}`");
            let finding = value.error(codes::NOT_FOUND, message).label("unknown port");
            value.report(finding.help(known(ports)))
        };
        found.map(Some).ok_or_else(unknown)
    })?;
    match (given, ports) {
        (Some(port), _) => Ok(port),
        (None, None) => Ok(None),
        (None, Some([only])) => Ok(Some(only.clone())),
        (None, Some([])) => {
            let message = "a service without ports has no application to probe";
            let finding = whole.error(codes::INVALID_VALUE, message).label("nothing to probe");
            Err(whole.report(finding.help("give the service `ports`, or remove `health`")))
        }
        (None, Some(ports)) => {
            let message = "a health check of a service with several ports needs `port`";
            let finding = whole.error(codes::MISSING_KEY, message).label("`port` is missing");
            Err(whole.report(finding.help(known(ports))))
        }
    }
}

fn read_http(value: Value<'_>, http2: bool) -> Result<Probe, FindingReported> {
    let mut table = value.table("an HTTP probe")?;
    let path = table.required("path", |value| {
        let path = value.text(LONGEST)?;
        let is_valid = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
        if is_valid && !path.contains('#') {
            return Ok(path.to_owned());
        }
        let message = format!("`path` must begin with `/`, and be of visible ASCII: `{path}`");
        Err(value.report(value.error(codes::INVALID_VALUE, message).label("invalid path")))
    });
    let host = table.optional("host", |value| {
        let host = value.text(LONGEST)?;
        if host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/@?#".contains(&byte)) {
            return Ok(host.to_owned());
        }
        let message = format!("`host` must be a hostname, with a port if any: `{host}`");
        Err(value.report(value.error(codes::INVALID_VALUE, message).label("not a host")))
    });
    let statuses = table.optional("statuses", |value| {
        value.at_least_one("leave it out to expect 200 to 299", read_statuses)
    });
    table.finish();
    let statuses = statuses?.unwrap_or_else(|| vec![StatusRange::default()]);
    Ok(Probe::Http { path: path?, host: host?, statuses, http2 })
}

fn read_statuses(value: Value<'_>) -> Result<StatusRange, FindingReported> {
    let text = match value.string_if_any() {
        Some(text) => text.to_owned(),
        None => value.integer(codes::INVALID_VALUE, 200..=599)?.to_string(),
    };
    StatusRange::parse(&text).ok_or_else(|| {
        let message = format!("`{text}` is no status, nor a range of them");
        let finding = value.error(codes::INVALID_VALUE, message).label("not a status");
        value.report(finding.help("write a status as in `204`, or a range as in `\"200-399\"`"))
    })
}

fn read_grpc(value: Value<'_>) -> Result<Probe, FindingReported> {
    let mut table = value.table("a gRPC probe")?;
    let service = table.optional("service", |value| Ok(value.text(LONGEST)?.to_owned()));
    table.finish();
    Ok(Probe::Grpc { service: service? })
}

fn no_probe(value: Value<'_>) -> FindingReported {
    let finding = value.error(codes::MISSING_KEY, "a health check needs a probe");
    let help = "set one of `http = { path = \"/healthz\" }`, `tcp = {}`, `grpc = {}` and \
                `command = \"NAME\"`";
    value.report(finding.label("no probe").help(help))
}

fn several_probes(value: Value<'_>) -> FindingReported {
    let message = "a health check has exactly one probe";
    let finding = value.error(codes::INVALID_VALUE, message).label("several probes");
    let help = format!("keep one of `{}`", PROBES.join("`, `"));
    value.report(finding.help(help))
}

fn too_long(value: Value<'_>) -> FindingReported {
    let message = "`timeout` of a health check must not be longer than its `interval`";
    let finding = value.error(codes::INVALID_VALUE, message).label("longer than `interval`");
    let help = format!("without `interval`, it is {} s", HealthCheck::INTERVAL.as_secs());
    value.report(finding.help(help))
}
