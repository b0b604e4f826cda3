//! The steps about the split: its weights are what is measured, and moving them takes moments.

use std::collections::VecDeque;

use serde_json::json;
use tokio::time::Instant;

use super::report::Seen;
use super::sample::{Sample, sample};
use crate::error::Problem;
use crate::http_client::HttpConnection;
use crate::policy::{SPLIT, split};
use crate::sidecars::{BUYER, SECOND, STORE_PORT};
use crate::stage::Stage;
use crate::waiting::{ensure, eventually, milliseconds};

/// The policy as shipped: one in ten goes to the second version.
pub(super) async fn as_shipped(stage: &Stage) -> Result<Seen, Problem> {
    // Of 500 requests a share of 10 % comes out between 4 and 16 %, but once in 100,000 times.
    let sample = sample_within(stage, 10.0, 6.0).await?;
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
    let mut connection = HttpConnection::open(BUYER.socket(&stage.network, STORE_PORT)).await?;
    let mut window: VecDeque<bool> = VecDeque::new();
    eventually(stage, "the requests to follow the new weights", async || {
        let answer = connection.get("/books/1").await?;
        ensure(answer.status == 200, || format!("{} {}", answer.status, answer.text().trim()))?;
        window.push_back(answer.application.as_deref() == Some(SECOND.name));
        if window.len() > WINDOW {
            window.pop_front();
        }
        let second = window.iter().filter(|is_second| **is_second).count();
        ensure(second >= ENOUGH, || format!("v2 answered {second} of the last {}", window.len()))
    })
    .await?;
    let followed = milliseconds(begin);
    let sample = sample_within(stage, 50.0, 8.0).await?;
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

/// A sample may be out of range by chance, and is then taken again. A request that fails is not a
/// matter of chance, and ends it.
async fn sample_within(stage: &Stage, wanted: f64, tolerance: f64) -> Result<Sample, Problem> {
    eventually(stage, &format!("{wanted} % ± {tolerance} % for v2"), async || {
        let sample = match sample(stage, SAMPLE).await {
            Ok(sample) => sample,
            Err(problem) => return Ok(Err(problem)),
        };
        let percent = sample.percent();
        ensure((percent - wanted).abs() <= tolerance, || format!("{percent:.1} %"))?;
        Ok(Ok(sample))
    })
    .await?
}

fn figures(sample: Sample) -> serde_json::Value {
    let percent = (sample.percent() * 10.0).round() / 10.0;
    json!({ "requests": sample.requests, "second": sample.second, "second_percent": percent })
}

const SAMPLE: usize = 500;
/// Of 60 requests at one in ten, 18 go to the second version once in ten million times; at one in two,
/// next to always.
const WINDOW: usize = 60;
const ENOUGH: usize = 18;
