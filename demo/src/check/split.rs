//! The steps about the split: its weights are what is measured, and moving them takes moments.
//!
//! First is waited until the weights have arrived, and then measured: whoever samples until it fits
//! will find any weights at last.

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

/// The policy as shipped: one in ten goes to the second version.
pub(super) async fn as_shipped(stage: &Stage) -> Result<Seen, Problem> {
    let mut unseen = vec![FIRST.name, SECOND.name];
    let mut buyer = HttpClient::new(BUYER.socket(&stage.network, STORE_PORT));
    eventually(stage, "answers of both versions", async || {
        let answer = buyer.get(BOOK).await?;
        expect(&answer, 200)?;
        unseen.retain(|name| answer.application.as_deref() != Some(*name));
        ensure(unseen.is_empty(), || format!("no answer of {unseen:?} yet"))
    })
    .await?;
    // Of 2000 requests a share of 10 % is out of this range once in a hundred million times.
    let sample = within(10.0, 4.0, async || sample(stage, SAMPLE).await).await?;
    let line = format!(
        "v2 had {:.1} % of {} requests, as its answers and the applications say",
        sample.percent(),
        sample.requests
    );
    Ok(Seen::new(line, figures(sample)))
}

/// Both halves.
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
    // At one half it is out of this range once in ten million times.
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

/// A sample with the share that is wanted, as far as the tolerance goes. What is out of range is taken
/// once more: a machine that stood still for a moment is no proof, and two in a row are. A request
/// that fails ends it.
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
/// Of 60 requests at one in ten, 18 go to the second version once in ten million times; at one in two,
/// next to always.
const WINDOW: usize = 60;
const ENOUGH: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of samples with these numbers for the second version, and how many were taken.
    async fn taken(seconds: &[usize]) -> (Result<usize, Problem>, usize) {
        let mut taken = 0;
        let found = within(10.0, 4.0, async || {
            taken += 1;
            Ok(Sample { requests: SAMPLE, second: seconds[taken - 1] })
        })
        .await;
        (found.map(|sample| sample.second), taken)
    }

    #[tokio::test]
    async fn sample_out_of_range_is_repeated_once() {
        assert!(matches!(taken(&[121, 200]).await, (Ok(121), 1)));
        assert!(matches!(taken(&[300, 279]).await, (Ok(279), 2)));
        let (found, taken) = taken(&[110, 290, 200]).await;
        let problem = "v2 had 5.5 %, then 14.5 %, instead of 10 % ± 4 %";
        assert_eq!((found.unwrap_err().0.as_str(), taken), (problem, 2));
    }

    #[tokio::test]
    async fn failed_request_is_not_sampled_again() {
        let mut taken = 0;
        let found = within(10.0, 4.0, async || {
            taken += 1;
            Err(Problem("503".to_owned()))
        })
        .await;
        assert_eq!((found.unwrap_err().0.as_str(), taken), ("503", 1));
    }
}
