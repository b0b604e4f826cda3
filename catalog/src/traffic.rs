//! Counted traffic: requests, connections and latencies of one caller and one called service port.
//!
//! This module owns the values and how they add up. It never reads a statistic, and knows no window of time.

mod latency;

use serde::{Deserialize, Serialize};

pub use latency::{LatencyHistogram, LatencyQuantiles};

/// Counts of traffic within some time. They add up: over time, and over proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrafficCounts {
    /// The requests that were answered, by the server or by the caller's sidecar in its place. A request that is retried
    /// counts once.
    #[serde(skip_serializing_if = "is_zero")]
    pub requests: u64,
    /// Those with a status from 200 to 299.
    #[serde(skip_serializing_if = "is_zero")]
    pub responses_2xx: u64,
    /// Those with a status from 300 to 399.
    #[serde(skip_serializing_if = "is_zero")]
    pub responses_3xx: u64,
    /// Those with a status from 400 to 499.
    #[serde(skip_serializing_if = "is_zero")]
    pub responses_4xx: u64,
    /// Those with a status from 500 to 599.
    #[serde(skip_serializing_if = "is_zero")]
    pub responses_5xx: u64,
    /// The connections that were opened. Requests share those of HTTP.
    #[serde(skip_serializing_if = "is_zero")]
    pub connections: u64,
    /// The connections that could not be opened. A request that is retried elsewhere does not fail by it.
    #[serde(skip_serializing_if = "is_zero")]
    pub connect_failures: u64,
    /// The bytes that the caller sent.
    #[serde(skip_serializing_if = "is_zero")]
    pub bytes_sent: u64,
    /// The bytes that the caller received.
    #[serde(skip_serializing_if = "is_zero")]
    pub bytes_received: u64,
    /// How long the responses took, as far as a server gave them.
    #[serde(skip_serializing_if = "LatencyHistogram::is_empty")]
    pub latency: LatencyHistogram,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TrafficCounts {
    /// The counts without the latencies, in the order of the fields.
    pub fn numbers(&self) -> [u64; 9] {
        [
            self.requests,
            self.responses_2xx,
            self.responses_3xx,
            self.responses_4xx,
            self.responses_5xx,
            self.connections,
            self.connect_failures,
            self.bytes_sent,
            self.bytes_received,
        ]
    }

    /// Counts of these numbers, in the order of [`Self::numbers`].
    pub fn new(numbers: [u64; 9], latency: LatencyHistogram) -> Self {
        let [
            requests,
            responses_2xx,
            responses_3xx,
            responses_4xx,
            responses_5xx,
            connections,
            connect_failures,
            bytes_sent,
            bytes_received,
        ] = numbers;
        Self {
            requests,
            responses_2xx,
            responses_3xx,
            responses_4xx,
            responses_5xx,
            connections,
            connect_failures,
            bytes_sent,
            bytes_received,
            latency,
        }
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.numbers() == [0; 9] && self.latency.is_empty()
    }

    /// Adds other counts. Sums end at the largest number.
    pub fn add(&mut self, other: &Self) {
        let mut latency = std::mem::take(&mut self.latency);
        latency.add(&other.latency);
        *self = Self::new(sums(self.numbers(), other.numbers(), u64::saturating_add), latency);
    }

    /// What was counted since `earlier`; `None` if a count is less than it was, because the counting began anew.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        let (now, before) = (self.numbers(), earlier.numbers());
        let is_ahead = now.iter().zip(before).all(|(now, before)| *now >= before);
        let latency = self.latency.since(&earlier.latency)?;
        is_ahead.then(|| Self::new(sums(now, before, u64::saturating_sub), latency))
    }

    /// The part of the counts in interval `index` of `intervals` equal ones. All parts together are the whole.
    #[must_use]
    pub fn part(&self, index: u64, intervals: u64) -> Self {
        Self::new(
            self.numbers().map(|count| part(count, index, intervals)),
            self.latency.map(|count| part(count, index, intervals)),
        )
    }
}

fn sums(one: [u64; 9], other: [u64; 9], combine: fn(u64, u64) -> u64) -> [u64; 9] {
    let mut pairs = one.into_iter().zip(other);
    [(); 9].map(|()| pairs.next().map_or(0, |(one, other)| combine(one, other)))
}

fn part(count: u64, index: u64, intervals: u64) -> u64 {
    let intervals = u128::from(intervals.max(1));
    let up_to = |index: u64| u128::from(count) * u128::from(index).min(intervals) / intervals;
    u64::try_from(up_to(index.saturating_add(1)) - up_to(index)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(requests: u64, latency: &[(u64, u64)]) -> TrafficCounts {
        let latency = latency.iter().copied().collect();
        TrafficCounts { requests, responses_2xx: requests, latency, ..TrafficCounts::default() }
    }

    #[test]
    fn sums_and_differences_are_inverse() {
        let (one, other) = (counts(3, &[(5, 2), (7, 1)]), counts(4, &[(5, 4)]));
        let mut sum = one.clone();
        sum.add(&other);
        assert_eq!((sum.requests, sum.latency.count()), (7, 7));
        assert_eq!(sum.since(&one), Some(other));
        assert!(one.since(&one).unwrap().is_empty());
    }

    #[test]
    fn counting_that_began_anew_has_no_difference() {
        let before = counts(10, &[(5, 10)]);
        assert_eq!(counts(9, &[(5, 10)]).since(&before), None);
        assert_eq!(counts(20, &[(5, 9), (7, 20)]).since(&before), None);
    }

    #[test]
    fn parts_are_the_whole() {
        let whole = counts(101, &[(5, 100), (900, 1)]);
        let mut sum = TrafficCounts::default();
        for index in 0..7 {
            let part = whole.part(index, 7);
            assert!((14..=15).contains(&part.requests), "{part:?}");
            sum.add(&part);
        }
        assert_eq!(sum, whole);
    }

    #[test]
    fn sums_end_at_the_largest_number() {
        let mut sum = counts(u64::MAX, &[(5, u64::MAX)]);
        sum.add(&counts(1, &[(5, 1)]));
        assert_eq!((sum.requests, sum.latency.count()), (u64::MAX, u64::MAX));
    }

    #[test]
    fn counts_in_json_omit_what_is_zero() {
        let json = serde_json::to_string(&counts(3, &[(5, 2), (25, 1)])).unwrap();
        assert_eq!(json, r#"{"requests":3,"responses_2xx":3,"latency":[[5,2],[24,1]]}"#);
        let read: TrafficCounts = serde_json::from_str(&json).unwrap();
        assert_eq!(read, counts(3, &[(5, 2), (25, 1)]));
        assert!(serde_json::from_str::<TrafficCounts>(r#"{"requests":-1}"#).is_err());
    }
}
