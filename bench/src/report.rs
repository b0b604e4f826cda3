//! The report of a run, as a table or JSON. Each figure has the floor's figure of the same run, and its budget.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: String,
    /// The version that the control plane reports.
    pub subject: String,
    /// The variant of the protocol.
    pub variant: &'static str,
    /// Whether absolute figures are valid: the floor is within 1.5 times of its figures on a quiet machine. Otherwise only
    /// ratios are valid.
    pub counts: bool,
    /// The reasons why absolute figures are not valid.
    pub warnings: Vec<String>,
    /// The skipped parts, with reasons.
    pub skipped: Vec<String>,
    /// The figures.
    pub rows: Vec<Row>,
    /// The duration of the run.
    pub seconds: f64,
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The fleet.
    pub shape: String,
    /// The measured work.
    pub work: &'static str,
    /// The unit of the figures.
    pub unit: &'static str,
    /// The figure of the control plane.
    pub ours: f64,
    /// The figure of the floor.
    pub floor: Option<f64>,
    /// The ratio of the figure to the floor, or to the reference that the work names.
    pub ratio: Option<f64>,
    /// The limit of the ratio; of the figure, if there is no ratio.
    pub budget: Option<f64>,
    /// Whether the budget is met.
    pub met: Option<bool>,
}

impl Row {
    /// A figure without a budget.
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

    /// Adds the figure of the floor.
    pub(crate) fn floor(mut self, floor: Option<f64>) -> Self {
        self.floor = floor;
        self.ratio = floor.filter(|floor| *floor > 0.0).map(|floor| self.ours / floor);
        self
    }

    /// Adds a reference other than the floor.
    pub(crate) fn beside(mut self, other: f64) -> Self {
        self.ratio = (other > 0.0).then(|| self.ours / other);
        self
    }

    /// Adds a limit for the ratio.
    pub(crate) fn at_most(mut self, budget: f64) -> Self {
        self.budget = Some(budget);
        self.met = self.ratio.map(|ratio| ratio <= budget);
        self
    }

    /// Adds a limit for the figure itself.
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
        for skipped in &self.skipped {
            writeln!(f, "skipped: {skipped}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        let counts = if self.counts {
            "absolute figures are valid: the floor is within 1.5 times of its figures on a quiet machine"
        } else {
            "absolute figures are not valid on this busy machine; ratios are, since both sides ran on it"
        };
        writeln!(f, "{counts}; the run took {:.0} s", self.seconds)
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

/// A count as a figure. Counts here are far below the limit of exact `f64` integers.
#[expect(clippy::cast_precision_loss, reason = "counts are below 2^52")]
pub(crate) fn count(value: u64) -> f64 {
    value as f64
}
