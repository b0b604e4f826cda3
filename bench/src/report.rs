//! What a run says: for people a table, for machines JSON. Each figure stands beside the floor's of
//! the same run, and beside the budget.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What it ran on.
    pub machine: String,
    /// The version of the control plane, as it says itself.
    pub subject: String,
    /// The variant of the protocol.
    pub variant: &'static str,
    /// Whether the floor comes within 1.5 times of what it was in quiet; without that, ratios hold
    /// and absolute figures do not.
    pub counts: bool,
    /// Why not.
    pub doubts: Vec<String>,
    /// What was not measured, and why.
    pub left_out: Vec<String>,
    /// The figures.
    pub rows: Vec<Row>,
    /// How long it took.
    pub seconds: f64,
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The fleet.
    pub shape: String,
    /// What was measured.
    pub work: &'static str,
    /// In what.
    pub unit: &'static str,
    /// Of the control plane.
    pub ours: f64,
    /// Of the floor.
    pub floor: Option<f64>,
    /// What is compared with the budget: to the floor, or to what the work says.
    pub ratio: Option<f64>,
    /// The most that the ratio may be, or where there is none the figure.
    pub budget: Option<f64>,
    /// Whether it is.
    pub met: Option<bool>,
}

impl Row {
    /// A figure without a judgement.
    pub(crate) fn new(work: &'static str, unit: &'static str, ours: f64) -> Self {
        Self {
            shape: String::new(),
            work,
            unit,
            ours,
            floor: None,
            ratio: None,
            budget: None,
            met: None,
        }
    }

    /// The same work on the floor.
    pub(crate) fn floor(mut self, floor: Option<f64>) -> Self {
        self.floor = floor;
        self.ratio = floor.filter(|floor| *floor > 0.0).map(|floor| self.ours / floor);
        self
    }

    /// What the figure is compared with, where that is not the floor.
    pub(crate) fn beside(mut self, other: f64) -> Self {
        self.ratio = (other > 0.0).then(|| self.ours / other);
        self
    }

    /// The most that the ratio may be.
    pub(crate) fn at_most(mut self, budget: f64) -> Self {
        self.budget = Some(budget);
        self.met = self.ratio.map(|ratio| ratio <= budget);
        self
    }

    /// The most that the figure itself may be.
    pub(crate) fn itself_at_most(mut self, budget: f64) -> Self {
        self.budget = Some(budget);
        self.met = Some(self.ours <= budget);
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}) on {}", self.subject, self.variant, self.machine)?;
        let mut shape = "";
        for row in &self.rows {
            if row.shape != shape {
                shape = &row.shape;
                writeln!(f, "\n{shape}")?;
                writeln!(
                    f,
                    "  {:<66}{:>9} {:>9} {:>7} {:>7}  ",
                    "WORK", "OURS", "FLOOR", "RATIO", "BUDGET"
                )?;
            }
            let number = |value: Option<f64>| value.map(figure).unwrap_or_default();
            let met = match row.met {
                Some(true) => "met",
                Some(false) => "NOT MET",
                None => "",
            };
            writeln!(
                f,
                "  {:<66}{:>9} {:>9} {:>7} {:>7}  {met}",
                format!("{}, {}", row.work, row.unit),
                figure(row.ours),
                number(row.floor),
                row.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
                number(row.budget),
            )?;
        }
        writeln!(f)?;
        for left_out in &self.left_out {
            writeln!(f, "left out: {left_out}")?;
        }
        for doubt in &self.doubts {
            writeln!(f, "doubt: {doubt}")?;
        }
        let counts = if self.counts {
            "this run counts: the floor is within 1.5 of what it was on a quiet machine"
        } else {
            "this run does not count by its absolute figures: ratios hold, as both sides had the same machine"
        };
        writeln!(f, "{counts}; it took {:.0} s", self.seconds)
    }
}

fn figure(value: f64) -> String {
    if value != 0.0 && value.abs() < 100.0 && value.fract() != 0.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub(crate) fn microseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// As a figure: counts here are far below what a `f64` holds exactly.
#[expect(clippy::cast_precision_loss, reason = "counts are below 2^52")]
pub(crate) fn count(value: u64) -> f64 {
    value as f64
}
