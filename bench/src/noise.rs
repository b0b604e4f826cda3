//! The verdict on noise: how much the floor's own measurements of the same work vary within the run.
//!
//! The floor does the same work for each change, so its times differ only by what else the machine does. They are
//! measured alternately with those of the control plane, so other work that is constant does not count as noise: it
//! makes both sides slower, and the ratios stay.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::measure::percentile;
use crate::report::milliseconds;

/// The largest spread of a quiet run.
const LIMIT: f64 = 0.25;

/// The verdict of a run, with its reasons.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Noise {
    /// The verdict.
    pub verdict: Verdict,
    /// The largest spread of a quiet run.
    pub limit: f64,
    /// The spread of the floor in each fleet.
    pub spreads: Vec<Spread>,
}

/// Whether a run was quiet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The floor's times vary little in all fleets: absolute figures are valid, too.
    Quiet,
    /// They vary in at least one fleet: only ratios are valid.
    Noisy,
    /// The floor was not measured.
    #[default]
    Unknown,
}

/// The spread of the floor's times in one fleet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// The fleet.
    pub shape: String,
    /// The number of the floor's changes.
    pub changes: usize,
    /// The distance between the 10th and the 90th percentile, as a share of the median.
    pub spread: f64,
}

impl Spread {
    /// The spread of these times of the floor.
    pub(crate) fn of(shape: String, times: &[Duration]) -> Self {
        let [low, middle, high] =
            [10, 50, 90].map(|percent| milliseconds(percentile(times, percent)));
        let spread = if middle > 0.0 { (high - low) / middle } else { 0.0 };
        Self { shape, changes: times.len(), spread }
    }
}

impl Noise {
    /// Judges a run by the spreads of its fleets.
    pub(crate) fn judge(spreads: Vec<Spread>) -> Self {
        let verdict = if spreads.is_empty() {
            Verdict::Unknown
        } else if spreads.iter().all(|one| one.spread <= LIMIT) {
            Verdict::Quiet
        } else {
            Verdict::Noisy
        };
        Self { verdict, limit: LIMIT, spreads }
    }
}

impl fmt::Display for Noise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let consequence = match self.verdict {
            Verdict::Quiet => "quiet: absolute figures are valid, too",
            Verdict::Noisy => "noisy: only ratios are valid",
            Verdict::Unknown => return write!(f, "noise is unknown: the floor was not measured"),
        };
        write!(f, "{consequence}; the floor's changes vary by ")?;
        for (number, one) in self.spreads.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{:.0} % with {}", one.spread * 100.0, one.shape)?;
        }
        write!(
            f,
            " (10th to 90th percentile, of the median; quiet: at most {:.0} %)",
            self.limit * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(times: impl IntoIterator<Item = u64>) -> Spread {
        let times: Vec<_> = times.into_iter().map(Duration::from_millis).collect();
        Spread::of("20 proxies".to_owned(), &times)
    }

    #[test]
    fn spread_ignores_one_slow_change() {
        let even = spread([20, 21, 20, 22, 21, 20, 21, 22, 20, 300]);
        assert!(even.spread <= 0.11, "{even:?}");
        assert_eq!(Noise::judge(vec![even.clone()]).verdict, Verdict::Quiet);
        let wide = spread([20, 21, 20, 22, 21, 20, 21, 29, 30, 31]);
        assert!((0.4..0.6).contains(&wide.spread), "{wide:?}");
        let noise = Noise::judge(vec![even, wide]);
        assert_eq!(noise.verdict, Verdict::Noisy);
        let text = noise.to_string();
        assert!(text.starts_with("noisy") && text.contains("48 % with 20 proxies"), "{text}");
    }

    #[test]
    fn noise_is_unknown_without_a_floor() {
        assert_eq!(Noise::judge(Vec::new()).verdict, Verdict::Unknown);
    }
}
