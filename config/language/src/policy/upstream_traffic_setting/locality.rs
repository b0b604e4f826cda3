//! `locality`: which endpoints callers prefer, by both localities.

use std::sync::Arc;

use ironmesh_catalog::{
    Distribution, Failover, Finding, Locality, LocalitySetting, Nearness, Spot,
};

use super::connections::percent;
use super::missing_alternative;
use crate::codes;
use crate::policy::locality::read as read_place;
use crate::table::{FindingReported, Value};

/// The most rules, and the most localities in each: all are compared for each caller's locality.
const MOST: usize = 64;

pub(super) fn read(value: Value<'_>) -> Result<Arc<LocalitySetting>, FindingReported> {
    let mut table = value.table("`locality`")?;
    let prefer_local =
        table.optional("prefer_local", |value| value.word("nearness", &Nearness::ALL));
    let failover = table.get("failover");
    let rules = failover.map(|value| read_rules(value, read_failover)).transpose();
    let distribute = table.optional("distribute", |value| read_rules(value, read_distribution));
    table.finish();
    let (prefer_local, distribute) = (prefer_local?, distribute?.unwrap_or_default());
    let setting =
        LocalitySetting { prefer_local, failover: rules?.unwrap_or_default(), distribute };
    match failover {
        None if setting == LocalitySetting::default() => {
            Err(missing_alternative(value, &["prefer_local", "distribute"]))
        }
        Some(failover) if setting.prefer_local.is_none() && setting.distribute.is_empty() => {
            let message =
                "`failover` has no start: nothing sets which endpoints callers call first";
            let finding = failover.error(codes::MISSING_KEY, message).label("from where?");
            let help = "set `prefer_local` or `distribute`";
            Err(failover.report(finding.help(help)))
        }
        _ => Ok(Arc::new(setting)),
    }
}

/// The locality of the callers to which a rule applies.
trait Rule {
    fn from(&self) -> &Locality;
}

impl Rule for Failover {
    fn from(&self) -> &Locality {
        &self.from
    }
}

impl Rule for Distribution {
    fn from(&self) -> &Locality {
        &self.from
    }
}

/// Reads rules, no two of which apply to the same callers.
fn read_rules<T: Rule>(
    value: Value<'_>,
    read: fn(Value<'_>) -> Result<T, FindingReported>,
) -> Result<Vec<T>, FindingReported> {
    check_length(value)?;
    let mut seen: Vec<(Locality, Spot)> = Vec::new();
    value.at_least_one("leave it out for no such rule", |item| {
        let rule = read(item)?;
        if let Some((_, first)) = seen.iter().find(|(from, _)| from == rule.from()) {
            let from = match rule.from() {
                from if from.is_empty() => "all others".to_owned(),
                from => format!("`{from}`"),
            };
            let message = format!("`{}` is set twice for {from}", value.key());
            let finding = item.error(codes::DUPLICATE_NAME, message).label("given again");
            return Err(item.report(finding.related(first.clone(), "first given here")));
        }
        seen.push((rule.from().clone(), item.spot()));
        Ok(rule)
    })
}

fn check_length(value: Value<'_>) -> Result<(), FindingReported> {
    if value.items()?.len() <= MOST {
        return Ok(());
    }
    let message = format!("`{}` has at most {MOST} entries", value.key());
    Err(value.report(value.error(codes::TOO_LARGE, message).label("too many")))
}

fn read_failover(value: Value<'_>) -> Result<Failover, FindingReported> {
    let mut table = value.table("a failover")?;
    let from = table.optional("from", read_place);
    let to = table.required("to", |value| {
        check_length(value)?;
        let mut seen: Vec<(Locality, Spot)> = Vec::new();
        let meaning = "leave the failover out: the others come last in any case";
        value.at_least_one(meaning, |item| {
            let place = read_place(item)?;
            // An earlier locality includes all localities in it.
            if let Some((first, spot)) = seen.iter().find(|(first, _)| first.includes(&place)) {
                return Err(item.report(duplicate_place(item, &place, first, spot)));
            }
            seen.push((place.clone(), item.spot()));
            Ok((place, item))
        })
    });
    table.finish();
    let (from, to) = (from?.unwrap_or_default(), to?);
    if let Some((_, item)) = to.iter().find(|(place, _)| *place == from) {
        let message = format!("`{from}` fails over to itself");
        let finding = item.error(codes::INVALID_VALUE, message).label("the same place");
        return Err(item.report(finding.help("name a different locality, or remove it")));
    }
    Ok(Failover { from, to: to.into_iter().map(|(place, _)| place).collect() })
}

fn duplicate_place(item: Value<'_>, place: &Locality, first: &Locality, spot: &Spot) -> Finding {
    let (message, help) = if place == first {
        (format!("`{place}` is named twice"), "name it once")
    } else {
        (format!("`{place}` is in `{first}`, which comes before"), "name it before that")
    };
    let finding = item.error(codes::DUPLICATE_NAME, message).label("duplicate");
    finding.related(spot.clone(), "the earlier one").help(help)
}

fn read_distribution(value: Value<'_>) -> Result<Distribution, FindingReported> {
    let mut table = value.table("a distribution")?;
    let from = table.optional("from", read_place);
    let to = table.required("to", |value| {
        check_length(value)?;
        let mut seen: Vec<(Locality, Spot)> = Vec::new();
        let shares = value.at_least_one("name where calls go", |item| {
            let mut table = item.table("a share")?;
            let place = table.required("locality", |value| {
                let place = read_place(value)?;
                let overlaps = |other: &Locality| other.includes(&place) || place.includes(other);
                if let Some((other, spot)) = seen.iter().find(|(other, _)| overlaps(other)) {
                    let message = if *other == place {
                        format!("`{place}` is named twice")
                    } else {
                        format!("`{place}` and `{other}` have places in common")
                    };
                    let finding = value.error(codes::DUPLICATE_NAME, message).label("again");
                    let help = "give each place one share";
                    return Err(
                        value.report(finding.related(spot.clone(), "the earlier one").help(help))
                    );
                }
                seen.push((place.clone(), value.spot()));
                Ok(place)
            });
            let weight = table.required("weight", percent);
            table.finish();
            Ok((place?, weight?))
        })?;
        let sum: u32 = shares.iter().map(|(_, percent)| percent).sum();
        if sum != 100 {
            let message = format!("the weights of a distribution are {sum} together, and not 100");
            let finding = value.error(codes::WEIGHTS, message).label(format!("sum {sum}"));
            return Err(value.report(finding.help("they are percentages of the calls")));
        }
        Ok(shares)
    });
    table.finish();
    Ok(Distribution { from: from?.unwrap_or_default(), to: to? })
}
