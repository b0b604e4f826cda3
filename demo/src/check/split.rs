//! The steps that measure the split, as shipped and after a change of its weights.
//!
//! Each step first waits until the weights have arrived, and then samples a fixed number of times. Sampling until a
//! result fits would find any weights in the end.

use std::collections::VecDeque;

use serde_json::json;
use tokio::time::Instant;

use super::report::Seen;
use super::sample::{Sample, sample};
use super::thief::{BOOK, expect};
use crate::error::Problem;
use crate::http_client::HttpClient;
use crate::policy::{SPLIT, split};
use crate::sidecars::{BUYER, FIRST, SECOND, STORE_PORT};
use crate::stage::Stage;
use crate::waiting::{ensure, eventually, milliseconds};

/// Measures the shipped weights: one request in ten goes to the second version.
pub(super) async fn shipped_weights(stage: &Stage) -> Result<Seen, Problem> {
    let mut unseen = vec![FIRST.name, SECOND.name];
    let mut buyer = HttpClient::new(BUYER.socket(&stage.network, STORE_PORT));
    eventually(stage, "answers of both versions", async || {
        let answer = buyer.get(BOOK).await?;
        expect(&answer, 200)?;
        unseen.retain(|name| answer.application.as_deref() != Some(*name));
        ensure(unseen.is_empty(), || format!("no answer of {unseen:?} yet"))
    })
    .await?;
    // With 2000 requests, a share of 10 % leaves this range once in a hundred million runs.
    let sample = within(10.0, 4.0, async || sample(stage, SAMPLE).await).await?;
    let line = format!(
        "v2 had {:.1} % of {} requests, by its answers and by the applications",
        sample.percent(),
        sample.requests
    );
    Ok(Seen::new(line, figures(sample)))
}

/// Changes the weights to one half each, and measures them.
pub(super) async fn moved(stage: &Stage) -> Result<Seen, Problem> {
    let begin = Instant::now();
    stage.policy.put(SPLIT, &split(50, 50))?;
    let mut buyer = HttpClient::new(BUYER.socket(&stage.network, STORE_PORT));
    let mut window: VecDeque<bool> = VecDeque::new();
    eventually(stage, "the requests to follow the new weights", async || {
        let answer = buyer.get(BOOK).await?;
        expect(&answer, 200)?;
        window.push_back(answer.application.as_deref() == Some(SECOND.name));
        if window.len() > WINDOW {
            window.pop_front();
        }
        let second = window.iter().filter(|is_second| **is_second).count();
        ensure(second >= ENOUGH, || format!("v2 answered {second} of the last {}", window.len()))
    })
    .await?;
    let followed = milliseconds(begin);
    // A share of one half leaves this range once in ten million runs.
    let sample = within(50.0, 6.0, async || sample(stage, SAMPLE).await).await?;
    let line = format!(
        "requests followed after {followed} ms, then v2 had {:.1} % of {}",
        sample.percent(),
        sample.requests
    );
    let mut figures = figures(sample);
    if let Some(figures) = figures.as_object_mut() {
        figures.insert("followed_ms".to_owned(), json!(followed));
    }
    Ok(Seen::new(line, figures))
}

/// Takes a sample whose share is `wanted` within `tolerance`.
///
/// A sample out of range is repeated once: a machine that paused for a moment is no proof, but two samples in a row
/// are. A failed request ends the step.
async fn within(
    wanted: f64,
    tolerance: f64,
    mut take: impl AsyncFnMut() -> Result<Sample, Problem>,
) -> Result<Sample, Problem> {
    let fits = |sample: Sample| (sample.percent() - wanted).abs() <= tolerance;
    let first = take().await?;
    if fits(first) {
        return Ok(first);
    }
    let second = take().await?;
    ensure(fits(second), || {
        let (first, second) = (first.percent(), second.percent());
        format!("v2 had {first:.1} %, then {second:.1} %, instead of {wanted} % ± {tolerance} %")
    })?;
    Ok(second)
}

fn figures(sample: Sample) -> serde_json::Value {
    let percent = (sample.percent() * 10.0).round() / 10.0;
    json!({ "requests": sample.requests, "second": sample.second, "second_percent": percent })
}

const SAMPLE: usize = 2000;
/// The recent requests that are counted. Of 60 requests, 18 go to the second version once in ten million runs at one in
/// ten, and nearly always at one in two.
const WINDOW: usize = 60;
const ENOUGH: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of samples with these counts of the second version, and the number of samples.
    async fn sampled(seconds: &[usize]) -> (Result<usize, Problem>, usize) {
        let mut samples = 0;
        let found = within(10.0, 4.0, async || {
            samples += 1;
            Ok(Sample { requests: SAMPLE, second: seconds[samples - 1] })
        })
        .await;
        (found.map(|sample| sample.second), samples)
    }

    #[tokio::test]
    async fn sample_out_of_range_is_repeated_once() {
        assert!(matches!(sampled(&[121, 200]).await, (Ok(121), 1)));
        assert!(matches!(sampled(&[300, 279]).await, (Ok(279), 2)));
        let (found, samples) = sampled(&[110, 290, 200]).await;
        let problem = "v2 had 5.5 %, then 14.5 %, instead of 10 % ± 4 %";
        assert_eq!((found.unwrap_err().0.as_str(), samples), (problem, 2));
    }

    #[tokio::test]
    async fn failed_request_is_not_sampled_again() {
        let mut samples = 0;
        let found = within(10.0, 4.0, async || {
            samples += 1;
            Err(Problem("503".to_owned()))
        })
        .await;
        assert_eq!((found.unwrap_err().0.as_str(), samples), ("503", 1));
    }
}
