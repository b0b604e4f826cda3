//! The requests since the start by caller and called service port, for metrics.
//!
//! A labelled pair is one that policy allows, and there are at most [`MAX_LABELLED`]. All other requests are those of other
//! pairs. No request is counted twice, and none is forgotten: a pair that loses its label adds what it has to the others.

use std::collections::BTreeMap;

use ironmesh_catalog::{ServiceName, ServicePort, TrafficCounts};

/// The most pairs with labels of their own.
pub(crate) const MAX_LABELLED: usize = 2000;

/// The classes of the results of requests, as values of a label.
pub(crate) const CLASSES: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "none"];

/// How many requests ended in each of [`CLASSES`]; the last are those without a status of these.
pub(crate) type RequestsByClass = [u64; CLASSES.len()];

/// The caller, which is the first service of a proxy, and the called service port.
pub(crate) type TrafficPair = (ServiceName, ServicePort);

/// The requests since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestTotals {
    pub(crate) labelled: BTreeMap<TrafficPair, RequestsByClass>,
    pub(crate) other: RequestsByClass,
}

impl RequestTotals {
    /// Adds requests of a pair; of none if policy does not allow it.
    pub(super) fn add(&mut self, pair: Option<TrafficPair>, counts: &TrafficCounts) {
        let requests = by_class(counts);
        if requests == RequestsByClass::default() {
            return;
        }
        let has_capacity = self.labelled.len() < MAX_LABELLED;
        let pair = pair.filter(|pair| has_capacity || self.labelled.contains_key(pair));
        let total = match pair {
            Some(pair) => self.labelled.entry(pair).or_default(),
            None => &mut self.other,
        };
        add(total, requests);
    }

    /// Removes the labels of pairs that policy does not allow any more.
    pub(super) fn retain(&mut self, is_allowed: impl Fn(&TrafficPair) -> bool) {
        let other = &mut self.other;
        self.labelled.retain(|pair, requests| {
            let is_allowed = is_allowed(pair);
            if !is_allowed {
                add(other, *requests);
            }
            is_allowed
        });
    }
}

fn by_class(counts: &TrafficCounts) -> RequestsByClass {
    let TrafficCounts {
        requests, responses_2xx, responses_3xx, responses_4xx, responses_5xx, ..
    } = *counts;
    let classes = [responses_2xx, responses_3xx, responses_4xx, responses_5xx];
    let rest = classes.into_iter().fold(requests, u64::saturating_sub);
    [responses_2xx, responses_3xx, responses_4xx, responses_5xx, rest]
}

fn add(total: &mut RequestsByClass, requests: RequestsByClass) {
    for (total, count) in total.iter_mut().zip(requests) {
        *total = total.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(caller: &str, port: u16) -> TrafficPair {
        (caller.parse().unwrap(), ServicePort::new("shop/till".parse().unwrap(), port))
    }

    fn counts(numbers: [u64; 5]) -> TrafficCounts {
        let [requests, responses_2xx, responses_3xx, responses_4xx, responses_5xx] = numbers;
        TrafficCounts {
            requests,
            responses_2xx,
            responses_3xx,
            responses_4xx,
            responses_5xx,
            ..TrafficCounts::default()
        }
    }

    fn sum(totals: &RequestTotals) -> u64 {
        totals.labelled.values().chain([&totals.other]).flatten().sum()
    }

    #[test]
    fn requests_count_by_class_and_pair() {
        let mut totals = RequestTotals::default();
        totals.add(Some(pair("shop/buyer", 80)), &counts([10, 5, 1, 2, 1]));
        totals.add(Some(pair("shop/buyer", 80)), &counts([1, 1, 0, 0, 0]));
        totals.add(Some(pair("shop/buyer", 81)), &counts([3, 0, 0, 0, 3]));
        totals.add(None, &counts([4, 4, 0, 0, 0]));
        // A connection is no request.
        let connection = TrafficCounts { connections: 1, ..TrafficCounts::default() };
        totals.add(Some(pair("shop/buyer", 82)), &connection);
        let labelled =
            [(pair("shop/buyer", 80), [6, 1, 2, 1, 1]), (pair("shop/buyer", 81), [0, 0, 0, 3, 0])];
        assert_eq!(totals.labelled, labelled.into());
        assert_eq!(totals.other, [4, 0, 0, 0, 0]);
    }

    #[test]
    fn ten_thousand_pairs_get_a_bounded_number_of_labels() {
        let mut totals = RequestTotals::default();
        for number in 0..10_000 {
            totals.add(Some(pair("shop/buyer", number)), &counts([2, 2, 0, 0, 0]));
        }
        assert_eq!(totals.labelled.len(), MAX_LABELLED);
        assert_eq!(sum(&totals), 20_000);
        totals.add(Some(pair("shop/buyer", 7)), &counts([1, 1, 0, 0, 0]));
        assert_eq!(totals.labelled[&pair("shop/buyer", 7)], [3, 0, 0, 0, 0]);
        totals.add(Some(pair("shop/buyer", 9999)), &counts([1, 1, 0, 0, 0]));
        assert_eq!(sum(&totals), 20_002);
    }

    #[test]
    fn totals_never_fall_when_policy_drops_pairs() {
        let mut totals = RequestTotals::default();
        for number in 0..100 {
            totals.add(Some(pair("shop/buyer", number)), &counts([3, 1, 0, 0, 1]));
        }
        totals.retain(|(_, port)| port.port >= 60);
        assert_eq!(totals.labelled.len(), 40);
        assert_eq!(totals.other, [60, 0, 0, 60, 60]);
        assert_eq!(sum(&totals), 300);
        // The label is free for a further pair, and a pair that policy allows again counts from zero.
        totals.add(Some(pair("shop/buyer", 0)), &counts([1, 1, 0, 0, 0]));
        assert_eq!(totals.labelled[&pair("shop/buyer", 0)], [1, 0, 0, 0, 0]);
        assert_eq!(sum(&totals), 301);
    }
}
