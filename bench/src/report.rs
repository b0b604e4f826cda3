//! The report of a run, as one table or JSON. Each figure has the floor's figure of the same run, and its goal.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::growth::Growth;
use crate::noise::Noise;

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: String,
    /// The version that the control plane reports.
    pub subject: String,
    /// The variant of the protocol.
    pub variant: &'static str,
    /// Whether absolute figures are valid. Otherwise only ratios are.
    pub noise: Noise,
    /// What else limits the figures.
    pub notes: Vec<String>,
    /// The skipped parts, with reasons.
    pub skipped: Vec<String>,
    /// The figures.
    pub rows: Vec<Row>,
    /// The growth of figures over the size of the fleet.
    pub growth: Vec<Growth>,
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
    /// The goal.
    pub goal: Option<Goal>,
    /// Whether the goal is met.
    pub met: Option<bool>,
}

/// The upper limit of a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// The limit of the ratio.
    Ratio(f64),
    /// The limit of the figure itself.
    Value(f64),
}

impl Row {
    /// A figure without a goal.
    pub(crate) fn new(work: &'static str, unit: &'static str, ours: f64) -> Self {
        let (shape, floor, ratio, goal, met) = (String::new(), None, None, None, None);
        Self { shape, work, unit, ours, floor, ratio, goal, met }
    }

    /// Adds the figure of the floor.
    pub(crate) fn floor(mut self, floor: Option<f64>) -> Self {
        self.floor = floor;
        self.ratio = floor.filter(|floor| *floor > 0.0).map(|floor| self.ours / floor);
        self.judged()
    }

    /// Adds a reference other than the floor.
    pub(crate) fn beside(mut self, other: f64) -> Self {
        self.ratio = (other > 0.0).then(|| self.ours / other);
        self.judged()
    }

    /// Adds a limit for the ratio.
    pub(crate) fn at_most(mut self, limit: f64) -> Self {
        self.goal = Some(Goal::Ratio(limit));
        self.judged()
    }

    /// Adds a limit for the figure itself.
    pub(crate) fn itself_at_most(mut self, limit: f64) -> Self {
        self.goal = Some(Goal::Value(limit));
        self.judged()
    }

    /// Compares the figure with its goal, as often as one of them is added.
    fn judged(mut self) -> Self {
        self.met = match self.goal {
            Some(Goal::Ratio(limit)) => self.ratio.map(|ratio| ratio <= limit),
            Some(Goal::Value(limit)) => Some(self.ours <= limit),
            None => None,
        };
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}) on {}", self.subject, self.variant, self.machine)?;
        write_line(f, "WORK", ["RATIO", "GOAL", "", "OURS", "FLOOR", "UNIT"])?;
        let mut shape = "";
        for row in &self.rows {
            if row.shape != shape {
                shape = &row.shape;
                writeln!(f, "{shape}")?;
            }
            let ratio = row.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
            let goal = match row.goal {
                Some(Goal::Ratio(limit)) => format!("≤ {limit}"),
                Some(Goal::Value(limit)) => format!("≤ {limit} {}", row.unit),
                None => String::new(),
            };
            let met = match row.met {
                Some(true) => "met",
                Some(false) => "NOT MET",
                None => "",
            };
            let (ours, floor) = (figure(row.ours), row.floor.map(figure).unwrap_or_default());
            let columns = [&*ratio, goal.trim_end(), met, &ours, &floor, row.unit];
            write_line(f, &format!("  {}", row.work), columns)?;
        }
        writeln!(f)?;
        for skipped in &self.skipped {
            writeln!(f, "skipped: {skipped}")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        writeln!(f, "{}", self.noise)?;
        writeln!(f, "the run took {:.0} s", self.seconds)
    }
}

/// Writes a line of the table, without spaces at its end.
fn write_line(f: &mut fmt::Formatter<'_>, work: &str, columns: [&str; 6]) -> fmt::Result {
    let [ratio, goal, met, ours, floor, unit] = columns;
    let line = format!("{work:<70}{ratio:>7}  {goal:<9} {met:<8}{ours:>9} {floor:>9}  {unit}");
    writeln!(f, "{}", line.trim_end())
}

fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        ..1.0 => format!("{value:.2}"),
        ..100.0 if value.fract() != 0.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let of = |shape: &str, row: Row| Row { shape: shape.to_owned(), ..row };
        let rows = vec![
            of("one fleet", Row::new("a change", "ms", 44.4).floor(Some(37.0)).at_most(1.2)),
            of("one fleet", Row::new("memory", "KB", 157.0).at_most(1.3).floor(Some(63.7))),
            of("another fleet", Row::new("policy", "ms", 376.0).itself_at_most(400.0)),
        ];
        let (machine, subject) = ("a machine".to_owned(), "ironmesh".to_owned());
        let (variant, noise, seconds) = ("delta", Noise::default(), 1.0);
        let (notes, skipped, growth) = (Vec::new(), Vec::new(), Vec::new());
        Report { machine, subject, variant, noise, notes, skipped, rows, growth, seconds }
    }

    #[test]
    fn report_is_one_table_with_ratios_first() {
        let text = report().to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(text.matches("WORK").count(), 1);
        assert_eq!((lines[2], lines[5]), ("one fleet", "another fleet"));
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(lines[1]), ["WORK", "RATIO", "GOAL", "OURS", "FLOOR", "UNIT"]);
        let change = ["a", "change", "1.20", "≤", "1.2", "met", "44.4", "37", "ms"];
        assert_eq!(words(lines[3]), change);
        let policy = ["policy", "≤", "400", "ms", "met", "376", "ms"];
        assert_eq!(words(lines[6]), policy);
    }

    #[test]
    fn goal_is_compared_in_whichever_order_it_is_added() {
        let met: Vec<_> = report().rows.iter().map(|row| row.met).collect();
        assert_eq!(met, [Some(true), Some(false), Some(true)]);
        assert_eq!(Row::new("a change", "ms", 1.0).at_most(1.2).met, None);
    }
}
