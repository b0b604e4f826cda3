//! Faults that are injected on purpose.

use std::time::Duration;

use ironmesh_catalog::{Abort, AbortWith, Delay, Fault, Percent};

use super::in_milliseconds;
use crate::codes;
use crate::duration;
use crate::table::{FindingReported, Value};

/// The range of delays of a call.
const TIMES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(60 * 60);

/// Reads the faults of calls.
pub(super) fn read_fault(value: Value<'_>) -> Result<Fault, FindingReported> {
    let mut table = value.table("a fault")?;
    let delay = table.optional("delay", read_delay);
    let abort = table.optional("abort", read_abort);
    let one = match (table.get("delay"), table.get("abort")) {
        (None, None) => Err(table.missing("delay` or `abort")),
        _ => Ok(()),
    };
    table.finish();
    one?;
    Ok(Fault { delay: delay?, abort: abort? })
}

fn read_delay(value: Value<'_>) -> Result<Delay, FindingReported> {
    let mut table = value.table("a delay")?;
    let duration = table.required("duration", |value| {
        let time = duration::read(value, &TIMES)?;
        in_milliseconds(value, time)
    });
    let percent = table.required("percent", read_percent);
    table.finish();
    Ok(Delay { duration: duration?, percent: percent? })
}

fn read_abort(value: Value<'_>) -> Result<Abort, FindingReported> {
    let mut table = value.table("an abort")?;
    let status = table.optional("status", |value| small(value, 200..=599));
    let grpc_status = table.optional("grpc_status", |value| small(value, 1..=16));
    let percent = table.required("percent", read_percent);
    let both = match (table.get("status"), table.get("grpc_status")) {
        (Some(status), Some(grpc)) => {
            let message = "an abort has `status` or `grpc_status`, not both";
            let finding = grpc.error(codes::INVALID_VALUE, message).label("one too many");
            Err(value
                .report(finding.related(status.spot(), "the status of HTTP").help("remove one")))
        }
        (None, None) => Err(table.missing("status` or `grpc_status")),
        _ => Ok(()),
    };
    table.finish();
    both?;
    let with = match (status?, grpc_status?) {
        (Some(status), _) => AbortWith::Status(status),
        (None, Some(status)) => AbortWith::GrpcStatus(status),
        (None, None) => return Err(FindingReported),
    };
    Ok(Abort { with, percent: percent? })
}

fn read_percent(value: Value<'_>) -> Result<Percent, FindingReported> {
    value.percent().map(Percent)
}

fn small(value: Value<'_>, range: std::ops::RangeInclusive<u32>) -> Result<u16, FindingReported> {
    let number = value.integer(codes::INVALID_VALUE, range)?;
    u16::try_from(number).map_err(|_| FindingReported)
}
