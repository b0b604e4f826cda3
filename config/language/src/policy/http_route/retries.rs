//! Retries: the settings of an HTTP route, and of the kind Retry of Open Service Mesh.

use std::time::Duration;

use ironmesh_catalog::Retries;

use super::in_milliseconds;
use crate::codes;
use crate::duration;
use crate::suggest::{closest, did_you_mean};
use crate::table::{FindingReported, Table, Value, list};

/// The most retries of a request.
const MOST_RETRIES: u32 = 100;

/// The range of the timeout of a try, and of the backoff before the next.
const TIMES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(60 * 60);

/// The spelling of the keys of retries.
pub(in crate::policy) struct Keys {
    /// Whether conditions are one text with commas and required, as in Open Service Mesh.
    is_of_osm: bool,
    base_interval: &'static str,
    max_interval: &'static str,
}

impl Keys {
    pub(in crate::policy) const POLICY: Self = Self {
        is_of_osm: false,
        base_interval: "backoff_base_interval",
        max_interval: "backoff_max_interval",
    };
    pub(in crate::policy) const OSM: Self = Self {
        is_of_osm: true,
        base_interval: "retry_backoff_base_interval",
        max_interval: "retry_backoff_max_interval",
    };
}

/// Reads the settings of retries.
pub(in crate::policy) fn read_retries(
    table: &mut Table<'_>,
    keys: &Keys,
) -> Result<Retries, FindingReported> {
    let on = if keys.is_of_osm {
        table.required("retry_on", read_text).map(Some)
    } else {
        table.optional("retry_on", read_list)
    };
    let count = table
        .optional("num_retries", |value| value.integer(codes::INVALID_VALUE, 0..=MOST_RETRIES));
    let per_try_timeout = table.optional("per_try_timeout", read_time);
    let base_interval = table.optional(keys.base_interval, read_time);
    let max_interval = table.optional(keys.max_interval, read_time);
    let usual = Retries::default();
    let on = on?.unwrap_or(RetryConditions { conditions: usual.conditions, statuses: Vec::new() });
    let retries = Retries {
        conditions: on.conditions,
        statuses: on.statuses,
        count: count?.unwrap_or(usual.count),
        per_try_timeout: per_try_timeout?,
        base_interval: base_interval?,
        max_interval: max_interval?,
    };
    let base = retries.base_interval.unwrap_or(Retries::BASE_INTERVAL);
    match (retries.max_interval.filter(|max| *max < base), table.get(keys.max_interval)) {
        (Some(max), Some(value)) => {
            let message = format!(
                "the first retry comes after {base:?}, and none waits for longer than {max:?}"
            );
            let finding = value.error(codes::INVALID_VALUE, message).label("too short");
            let help = format!("make it as long as `{}` at least", keys.base_interval);
            Err(value.report(finding.help(help)))
        }
        _ => Ok(retries),
    }
}

fn read_time(value: Value<'_>) -> Result<Duration, FindingReported> {
    let time = duration::read(value, &TIMES)?;
    in_milliseconds(value, time)
}

/// The conditions of a retry.
#[derive(Default)]
struct RetryConditions {
    conditions: Vec<&'static str>,
    statuses: Vec<u16>,
}

impl RetryConditions {
    fn add(&mut self, word: &str, value: Value<'_>) -> Result<(), FindingReported> {
        if let Some(known) = Retries::CONDITIONS.iter().find(|known| **known == word) {
            if !self.conditions.contains(known) {
                self.conditions.push(known);
            }
            return Ok(());
        }
        let status = word.parse::<u16>().ok().filter(|_| word.len() == 3);
        if let Some(status) = status.filter(|status| (100..600).contains(status)) {
            if !self.statuses.contains(&status) {
                self.statuses.push(status);
            }
            return Ok(());
        }
        let message = format!("there is no condition `{word}` for a retry");
        let finding = value.error(codes::INVALID_VALUE, message).label("unknown condition");
        let near = closest(&word.to_lowercase(), Retries::CONDITIONS);
        let all = || format!("it is a status, as `503`, or one of {}", list(&Retries::CONDITIONS));
        Err(value.report(finding.help(near.map_or_else(all, did_you_mean))))
    }

    /// The condition about statuses follows from the list of statuses, if there is one.
    fn finish(mut self, value: Value<'_>) -> Result<Self, FindingReported> {
        let before = self.conditions.len();
        self.conditions.retain(|condition| *condition != Retries::STATUSES);
        if self.conditions.len() == before || !self.statuses.is_empty() {
            return Ok(self);
        }
        let message = format!("`{}` needs a status", Retries::STATUSES);
        let finding = value.error(codes::INVALID_VALUE, message).label("no status in this list");
        Err(value.report(finding.help("add the statuses to retry, as in `\"503\"`")))
    }
}

fn read_list(value: Value<'_>) -> Result<RetryConditions, FindingReported> {
    let mut on = RetryConditions::default();
    let meaning = "leave `retry_on` out for what cannot have reached an application, or set `num_retries = 0`";
    value.at_least_one(meaning, |item| on.add(item.string()?, item))?;
    on.finish(value)
}

fn read_text(value: Value<'_>) -> Result<RetryConditions, FindingReported> {
    let mut on = RetryConditions::default();
    let words = value.string()?.split(',').map(str::trim);
    let added: Vec<_> = words.map(|word| on.add(word, value)).collect();
    added.into_iter().collect::<Result<(), FindingReported>>()?;
    on.finish(value)
}
