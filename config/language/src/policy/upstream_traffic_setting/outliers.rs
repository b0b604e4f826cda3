//! `outlier_detection`: when callers eject an endpoint.

use std::ops::RangeInclusive;
use std::time::Duration;

use ironmesh_catalog::OutlierDetection;

use super::connections::percent;
use super::missing_alternative;
use crate::codes;
use crate::duration;
use crate::table::{FindingReported, Value};

/// The range of intervals: at least so long that the check itself costs little.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

/// The range of ejection times.
const EJECTION_TIME: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(24 * 3600);

pub(super) fn read(value: Value<'_>) -> Result<OutlierDetection, FindingReported> {
    let mut table = value.table("`outlier_detection`")?;
    let count = |value: Value<'_>| value.integer(codes::INVALID_VALUE, 1..=u32::MAX);
    let consecutive_5xx = table.optional("consecutive_5xx", count);
    let consecutive_gateway_errors = table.optional("consecutive_gateway_errors", count);
    let interval = table.optional("interval", |value| duration::read(value, &INTERVAL));
    let time = table.optional("base_ejection_time", |value| duration::read(value, &EJECTION_TIME));
    let max_ejection_percent = table.optional("max_ejection_percent", percent);
    table.finish();
    let detection = OutlierDetection {
        consecutive_5xx: consecutive_5xx?,
        consecutive_gateway_errors: consecutive_gateway_errors?,
        interval: interval?.unwrap_or(OutlierDetection::INTERVAL),
        base_ejection_time: time?.unwrap_or(OutlierDetection::BASE_EJECTION_TIME),
        max_ejection_percent: max_ejection_percent?
            .unwrap_or(OutlierDetection::MAX_EJECTION_PERCENT),
    };
    if detection.consecutive_5xx.or(detection.consecutive_gateway_errors).is_none() {
        return Err(missing_alternative(value, &["consecutive_5xx", "consecutive_gateway_errors"]));
    }
    Ok(detection)
}
