//! Latencies as counts in buckets, whose widths grow with the latency.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The longest latency with a bucket of its own, in milliseconds: an hour. Longer ones are in its bucket.
const LONGEST: u64 = 3_600_000;

/// Latencies in whole milliseconds, as Envoy counts them, in at most 204 buckets.
///
/// A bucket is at most a tenth as wide as its lower bound, and each is a union of buckets of Envoy's own histograms. So a
/// quantile is within 5 % of the truth, or within half a millisecond (docs/decisions/0083).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct LatencyHistogram {
    /// The counts by the lower bound of the bucket, in milliseconds. None is zero.
    buckets: BTreeMap<u32, u64>,
}

/// The quantiles of latencies, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LatencyQuantiles {
    /// The median.
    pub p50: f64,
    /// Nine of ten requests took at most so long.
    pub p90: f64,
    /// 99 of 100 requests took at most so long.
    pub p99: f64,
}

impl LatencyHistogram {
    /// Counts `count` requests that took `milliseconds`.
    pub fn record(&mut self, milliseconds: u64, count: u64) {
        if count > 0 {
            let known = self.buckets.entry(lower_bound(milliseconds)).or_default();
            *known = known.saturating_add(count);
        }
    }

    /// Whether there are no latencies.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// How many latencies there are.
    pub fn count(&self) -> u64 {
        self.buckets.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// How many buckets have a latency.
    pub fn bucket_count(&self) -> usize {
        self.buckets.len()
    }

    /// The largest count of a bucket.
    pub fn largest_count(&self) -> u64 {
        self.buckets.values().copied().max().unwrap_or_default()
    }

    /// Adds other latencies.
    pub fn add(&mut self, other: &Self) {
        for (milliseconds, count) in &other.buckets {
            self.record(u64::from(*milliseconds), *count);
        }
    }

    /// The latencies since `earlier`; `None` if a bucket has fewer than before.
    pub(super) fn since(&self, earlier: &Self) -> Option<Self> {
        let mut now = self.clone();
        for (bucket, before) in &earlier.buckets {
            let count = now.buckets.get_mut(bucket)?;
            *count = count.checked_sub(*before)?;
        }
        now.buckets.retain(|_, count| *count > 0);
        Some(now)
    }

    /// The same with other counts.
    pub(super) fn map(&self, change: impl Fn(u64) -> u64) -> Self {
        let changed = self.buckets.iter().map(|(bucket, count)| (*bucket, change(*count)));
        Self { buckets: changed.filter(|(_, count)| *count > 0).collect() }
    }

    /// The quantiles that are shown; none without latencies.
    pub fn quantiles(&self) -> Option<LatencyQuantiles> {
        let quantile = |percent| self.quantile(percent);
        Some(LatencyQuantiles { p50: quantile(50)?, p90: quantile(90)?, p99: quantile(99)? })
    }

    /// The middle of the bucket with the latency that `percent` of the requests do not exceed.
    fn quantile(&self, percent: u64) -> Option<f64> {
        let wanted = u128::from(self.count()) * u128::from(percent);
        let mut passed = 0_u128;
        let found = self.buckets.iter().find(|(_, count)| {
            passed += u128::from(**count) * 100;
            passed >= wanted
        });
        let (bucket, _) = found.or_else(|| self.buckets.last_key_value())?;
        Some(f64::midpoint(f64::from(*bucket), f64::from(*bucket + width(*bucket))))
    }
}

impl From<Vec<(u64, u64)>> for LatencyHistogram {
    fn from(counts: Vec<(u64, u64)>) -> Self {
        counts.into_iter().collect()
    }
}

impl From<LatencyHistogram> for Vec<(u64, u64)> {
    fn from(histogram: LatencyHistogram) -> Self {
        let buckets = histogram.buckets.into_iter();
        buckets.map(|(bucket, count)| (u64::from(bucket), count)).collect()
    }
}

impl FromIterator<(u64, u64)> for LatencyHistogram {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(counts: I) -> Self {
        let mut histogram = Self::default();
        for (milliseconds, count) in counts {
            histogram.record(milliseconds, count);
        }
        histogram
    }
}

/// The lower bound of the bucket of a latency.
fn lower_bound(milliseconds: u64) -> u32 {
    let milliseconds = u32::try_from(milliseconds.min(LONGEST)).unwrap_or(u32::MAX);
    milliseconds - milliseconds % width(milliseconds)
}

/// The width of the bucket that contains a latency: of two digits, 1 from 10, 2 from 20, and 5 from 50.
fn width(milliseconds: u32) -> u32 {
    let decade = 10_u32.pow(milliseconds.max(10).ilog10() - 1);
    let step = match milliseconds / decade {
        0..20 => 1,
        20..50 => 2,
        _ => 5,
    };
    step * decade
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_are_few_and_at_most_a_tenth_wide() {
        let bounds: BTreeSet<u32> = (0..=LONGEST).map(lower_bound).collect();
        assert_eq!(bounds.len(), 204);
        for bound in &bounds {
            assert!(*bound < 10 || width(*bound) * 10 <= *bound, "{bound}");
            assert!(
                bounds.contains(&(bound + width(*bound))) || bounds.last() == Some(bound),
                "{bound}"
            );
        }
        assert_eq!(lower_bound(u64::MAX), lower_bound(LONGEST));
    }

    #[test]
    fn quantiles_of_nothing_are_unknown() {
        assert_eq!(LatencyHistogram::default().quantiles(), None);
        let one: LatencyHistogram = [(7, 1), (9, 0)].into_iter().collect();
        assert_eq!(one.quantiles(), Some(LatencyQuantiles { p50: 7.5, p90: 7.5, p99: 7.5 }));
    }

    proptest! {
        /// Wherever the latencies are counted, and however they are merged.
        #[test]
        fn quantiles_are_within_the_stated_error(
            mut latencies in prop::collection::vec(prop_oneof![0..50_u64, 0..5_000_u64, 0..LONGEST], 1..300),
            split in 0..300_usize,
        ) {
            let (one, other) = latencies.split_at(split.min(latencies.len()));
            let histogram = |part: &[u64]| part.iter().map(|one| (*one, 1)).collect::<LatencyHistogram>();
            let mut merged = histogram(one);
            merged.add(&histogram(other));
            prop_assert_eq!(merged.count(), latencies.len() as u64);
            latencies.sort_unstable();
            let quantiles = merged.quantiles().unwrap();
            for (percent, shown) in [(50, quantiles.p50), (90, quantiles.p90), (99, quantiles.p99)] {
                let rank = (latencies.len() * percent).div_ceil(100).max(1);
                // Envoy counts whole milliseconds, and omits the rest.
                let counted = f64::from(u32::try_from(latencies[rank - 1]).unwrap());
                for exact in [counted, counted + 0.999] {
                    let error = (shown - exact).abs();
                    prop_assert!(error <= (0.05 * exact).max(0.5) + 1e-6, "{shown} {exact}");
                }
            }
        }
    }
}
