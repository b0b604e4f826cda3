//! Throttling by Azure, and what is left of its quotas.

use std::time::Duration;

use tokio::time::Instant;

use super::super::error::RequestError;
use super::super::error_body::ErrorBody;
use super::super::http::HttpResponse;
use super::{Arm, ArmQuery};

/// If fewer reads are left in the subscription, polling slows down: other clients need them too. Of
/// 250 at once, 25 come back each second.
const FEW_READS: u64 = 25;
/// If less than this part of the largest known rest of a resource provider's quota is left, polling
/// slows down. Azure does not report the size of that quota.
const FEW_CALLS: u64 = 10;
/// The largest number of kinds of calls whose quota is known.
const MAX_KINDS: usize = 1000;
/// The time for which polling stays slow.
const SLOW: Duration = Duration::from_secs(300);

impl Arm {
    /// Whether little of Azure's quota is left.
    pub(in crate::azure) fn is_slow(&self) -> bool {
        self.slow_until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Returns an error if Azure throttles this query now.
    pub(super) fn is_open(&self, query: &ArmQuery) -> Result<(), RequestError> {
        let now = Instant::now();
        let mut gates = self.gates.lock();
        gates.retain(|_, until| now < *until);
        let [subscription, provider] = query.gates();
        let until = [subscription, provider].into_iter().filter_map(|gate| gates.get(&gate)).max();
        until.map_or(Ok(()), |until| Err(RequestError::Throttled(*until - now)))
    }

    pub(super) fn close(&self, query: &ArmQuery, error_body: &ErrorBody, wait: Duration) {
        let [subscription, provider] = query.gates();
        // Either the Resource Manager itself throttles, or the resource provider behind it.
        let gate =
            if error_body.code.starts_with("Subscription") { subscription } else { provider };
        tracing::warn!(
            ?wait,
            code = error_body.code,
            reason = error_body.text,
            "azure throttles requests"
        );
        self.gates.lock().insert(gate, Instant::now() + wait);
    }

    /// Reads from the headers how many calls are left.
    pub(super) fn record_quota(&self, query: &ArmQuery, answer: &HttpResponse) {
        let reads = [
            "x-ms-ratelimit-remaining-subscription-reads",
            "x-ms-ratelimit-remaining-subscription-global-reads",
        ];
        let reads = reads.map(|name| answer.header(name));
        let numbers = reads.into_iter().flatten().filter_map(|text| text.trim().parse().ok());
        let few_reads = numbers.min().is_some_and(|left: u64| left < FEW_READS);
        // `Microsoft.Compute/HighCostGet3Min;46,Microsoft.Compute/HighCostGet30Min;339`
        let calls = answer.header("x-ms-ratelimit-remaining-resource").unwrap_or_default();
        let left = calls.split(',').filter_map(|one| {
            let (kind, left) = one.rsplit_once(';')?;
            Some((kind.trim(), left.trim().parse::<u64>().ok()?))
        });
        let [subscription, _] = query.gates();
        let mut few_calls = false;
        for (kind, left) in left {
            few_calls |= self.is_few(format!("{subscription} {kind}"), left);
        }
        if few_reads || few_calls {
            let now = Instant::now();
            let mut slow_until = self.slow_until.lock();
            if slow_until.is_none_or(|until| until < now) {
                tracing::warn!(
                    ?reads,
                    calls,
                    action = "polls less often",
                    "azure request quota is low"
                );
            }
            *slow_until = Some(now + SLOW);
        }
    }

    /// Whether `left` calls are few, compared with the largest known rest.
    fn is_few(&self, kind: String, left: u64) -> bool {
        let mut most = self.most.lock();
        if most.len() >= MAX_KINDS && !most.contains_key(&kind) {
            return false;
        }
        let most = most.entry(kind).or_default();
        *most = left.max(*most);
        left < *most / FEW_CALLS
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use reqwest::StatusCode;
    use reqwest::header::HeaderMap;

    use super::*;
    use crate::azure::options::AzureOptions;

    fn query(parameters: Vec<(&'static str, String)>) -> ArmQuery {
        let path = ["subscriptions", "s", "providers", "Microsoft.Compute", "virtualMachines"];
        let path = path.map(str::to_owned).to_vec();
        ArmQuery { path, parameters, body: None, action: "x/read" }
    }

    fn answer(reads: [&str; 2], calls: &str) -> HttpResponse {
        let mut headers = HeaderMap::new();
        let [own, all] = reads;
        headers.insert("x-ms-ratelimit-remaining-subscription-reads", own.parse().unwrap());
        headers.insert("x-ms-ratelimit-remaining-subscription-global-reads", all.parse().unwrap());
        headers.insert("x-ms-ratelimit-remaining-resource", calls.parse().unwrap());
        HttpResponse { status: StatusCode::OK, headers, body: Vec::new() }
    }

    #[test]
    fn low_share_of_remaining_quota_slows_polling() {
        const MUCH: &str = "Microsoft.Compute/GetA3Min;29,Microsoft.Compute/GetB30Min;339";
        let is_slow = |answers: &[HttpResponse]| {
            let arm = Arm::new(&AzureOptions::default(), Timestamp::now, false).unwrap();
            for answer in answers {
                arm.record_quota(&query(Vec::new()), answer);
            }
            arm.is_slow()
        };
        let much = || answer(["249", "3749"], MUCH);
        assert!(!is_slow(&[much(), much()]));
        assert!(is_slow(&[much(), answer(["24", "3749"], MUCH)]));
        assert!(is_slow(&[much(), answer(["249", "24"], MUCH)]));
        let little = MUCH.replace("339", "32");
        assert!(is_slow(&[much(), answer(["249", "3749"], &little)]));
        let enough = MUCH.replace("339", "40");
        assert!(!is_slow(&[much(), answer(["249", "3749"], &enough)]));
    }

    #[test]
    fn throttled_resource_graph_does_not_block_provider_calls() {
        let arm = Arm::new(&AzureOptions::default(), Timestamp::now, false).unwrap();
        let of_graph = query(vec![("useResourceGraph", "true".to_owned())]);
        let wait = Duration::from_secs(60);
        arm.close(&of_graph, &ErrorBody::default(), wait);
        arm.is_open(&of_graph).unwrap_err();
        arm.is_open(&query(Vec::new())).unwrap();
        arm.close(&query(Vec::new()), &ErrorBody::default(), wait);
        arm.is_open(&query(Vec::new())).unwrap_err();
    }
}
