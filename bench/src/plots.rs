//! Plots of a report as SVG: bars of all ratios beside their goals, and lines of growth on logarithmic axes.

use std::fmt::Write as _;
use std::path::Path;

use crate::growth::Growth;
use crate::report::{Goal, Report, Row, count};

/// Writes `ratios.svg` to this folder, and `growth.svg` if growth was measured.
pub fn write(folder: &Path, report: &Report) -> anyhow::Result<()> {
    fs_err::create_dir_all(folder)?;
    fs_err::write(folder.join("ratios.svg"), ratios(&report.rows)?)?;
    if !report.growth.is_empty() {
        fs_err::write(folder.join("growth.svg"), growth(&report.growth)?)?;
    }
    Ok(())
}

/// An SVG document.
struct Canvas {
    text: String,
}

impl Canvas {
    fn new(width: f64, height: f64) -> Result<Self, std::fmt::Error> {
        let mut text = String::new();
        write!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        )?;
        Ok(Self { text })
    }

    fn text(&mut self, (x, y): (f64, f64), attributes: &str, text: &str) -> std::fmt::Result {
        let text = escaped(text);
        writeln!(self.text, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{text}</text>")
    }

    fn bar(&mut self, (x, y): (f64, f64), width: f64, color: &str) -> std::fmt::Result {
        writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{color}\"/>"
        )
    }

    fn line(&mut self, points: &[(f64, f64)], attributes: &str) -> std::fmt::Result {
        let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        writeln!(self.text, "<polyline points=\"{points}\" fill=\"none\" {attributes}/>")
    }

    fn finish(self) -> String {
        self.text + "</svg>\n"
    }
}

/// Horizontal bars of all ratios, by fleet. A line marks each goal.
fn ratios(rows: &[Row]) -> Result<String, std::fmt::Error> {
    let rows: Vec<_> = rows.iter().filter(|row| row.ratio.is_some()).collect();
    let goal = |row: &Row| match row.goal {
        Some(Goal::Ratio(limit)) => Some(limit),
        Some(Goal::Value(_)) | None => None,
    };
    let longest = rows.iter().flat_map(|row| [row.ratio, goal(row)]).flatten().fold(1.0, f64::max);
    let longest = longest.min(WIDEST);
    let x = |ratio: f64| LABELS + ratio.min(longest) / longest * BARS;
    let shapes = rows.chunk_by(|one, other| one.shape == other.shape).count();
    let height = count((rows.len() + shapes) as u64) * LINE + 2.0 * LINE;
    let mut canvas = Canvas::new(LABELS + BARS + 60.0, height)?;
    canvas.line(&[(x(1.0), LINE), (x(1.0), height - LINE)], "stroke=\"#888\"")?;
    canvas.text((x(1.0), LINE - 6.0), "text-anchor=\"middle\"", "floor")?;
    let mut y = LINE;
    for shape in rows.chunk_by(|one, other| one.shape == other.shape) {
        let name = shape.first().map_or("", |row| &row.shape);
        canvas.text((8.0, y + TEXT), "font-weight=\"bold\"", name)?;
        y += LINE;
        for row in shape {
            let ratio = row.ratio.unwrap_or_default();
            let color = match row.met {
                Some(true) => "#3a7d44",
                Some(false) => "#c0392b",
                None => "#8899aa",
            };
            canvas.text((LABELS - 8.0, y + TEXT), "text-anchor=\"end\"", row.work)?;
            canvas.bar((LABELS, y + 3.0), x(ratio) - LABELS, color)?;
            let longer = if ratio > longest { " →" } else { "" };
            canvas.text((x(ratio) + 4.0, y + TEXT), "", &format!("{ratio:.2}{longer}"))?;
            if let Some(goal) = goal(row) {
                let mark = [(x(goal), y + 1.0), (x(goal), y + LINE - 1.0)];
                canvas.line(&mark, "stroke=\"black\" stroke-width=\"2\"")?;
            }
            y += LINE;
        }
    }
    canvas.text(
        (8.0, y + TEXT),
        "",
        "black line: goal; green: met; red: not met; gray: no goal",
    )?;
    Ok(canvas.finish())
}

/// A panel for each figure and size, with logarithmic axes. A dashed line has the expected exponent.
fn growth(all: &[Growth]) -> Result<String, std::fmt::Error> {
    let height = count(all.len() as u64) * PANEL;
    let mut canvas = Canvas::new(2.0 * MARGIN + PLOT, height)?;
    for (one, top) in all.iter().zip((0_u32..).map(|number| f64::from(number) * PANEL)) {
        let title = format!(
            "{}, {}, over {}: exponent {:.2}, expected {}",
            one.figure, one.unit, one.size, one.exponent, one.expected
        );
        canvas.text((8.0, top + TEXT), "font-weight=\"bold\"", &title)?;
        let points = one.points.iter().copied().filter(|(x, y)| *x > 0.0 && *y > 0.0);
        let points: Vec<_> = points.collect();
        let Some(&(first_x, first_y)) = points.first() else { continue };
        let most = points.iter().map(|(x, _)| x / first_x).fold(1.01, f64::max);
        let scale = PLOT / most.log10();
        let bottom = top + PANEL - 3.0 * LINE;
        let place = |(x, y): (f64, f64)| {
            let (right, up) = ((x / first_x).log10(), (y / first_y).log10());
            (MARGIN + right * scale, bottom - up * scale * RISE)
        };
        let expected =
            [1.0, most].map(|ratio| place((first_x * ratio, first_y * ratio.powf(one.expected))));
        canvas.line(&expected, "stroke=\"#888\" stroke-dasharray=\"4\"")?;
        let places: Vec<_> = points.iter().copied().map(place).collect();
        canvas.line(&places, "stroke=\"#1f5f99\" stroke-width=\"2\"")?;
        for ((x, y), (right, down)) in points.iter().zip(places) {
            let label = if *y < 10.0 { format!("{y:.1}") } else { format!("{y:.0}") };
            canvas.text((right, down - 6.0), "text-anchor=\"middle\"", &label)?;
            let axis = top + PANEL - LINE;
            canvas.text(
                (right, axis),
                "text-anchor=\"middle\" fill=\"#555\"",
                &format!("{x:.0}"),
            )?;
        }
    }
    Ok(canvas.finish())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The sizes in pixels: of a line, a bar, the baseline in a line, the labels and the longest bar.
const LINE: f64 = 20.0;
const BAR: f64 = 14.0;
const TEXT: f64 = 14.0;
const LABELS: f64 = 460.0;
const BARS: f64 = 420.0;
/// The largest ratio that a bar shows at its length, so that small ones stay visible.
const WIDEST: f64 = 5.0;
/// The sizes of a panel of growth: its height, its margins and the width of the plot; and the height of a power of ten,
/// relative to its width.
const PANEL: f64 = 240.0;
const MARGIN: f64 = 60.0;
const PLOT: f64 = 420.0;
const RISE: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let of = |shape: &str, row: Row| Row { shape: shape.to_owned(), ..row };
        vec![
            of(
                "one <fleet>",
                Row::new("a change & its ACK", "ms", 6.0).floor(Some(4.0)).at_most(1.2),
            ),
            of("one <fleet>", Row::new("memory", "KB", 1.0).floor(Some(1.0)).at_most(1.3)),
            of("one <fleet>", Row::new("without a floor", "KB", 1.0)),
            of("another fleet", Row::new("connect", "ms", 6.0).floor(Some(0.5))),
        ]
    }

    /// Checks that each element ends, and that the text has no character that is special in XML.
    fn assert_well_formed(svg: &str) {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let (tag, text) = tag.split_once('>').unwrap();
            assert!(!text.contains('>') && !text.replace("&amp;", "").contains("& "), "{text}");
            let name = tag.split([' ', '/']).find(|name| !name.is_empty()).unwrap();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "{svg}");
            } else if !tag.ends_with('/') {
                assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
                open.push(name);
            }
        }
        assert!(open.is_empty() && !svg.contains("NaN"), "{open:?}");
    }

    #[test]
    fn bars_are_well_formed_and_show_each_ratio() {
        let svg = ratios(&rows()).unwrap();
        assert_well_formed(&svg);
        for text in ["one &lt;fleet&gt;", "a change &amp; its ACK", ">1.50<", "memory", ">12.00 →<"]
        {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("without a floor"));
        // The background, and a bar for each ratio.
        assert_eq!(svg.matches("<rect").count(), 1 + 3);
        assert_eq!(svg.matches("stroke-width=\"2\"").count(), 2);
        assert_eq!(svg.matches("#c0392b").count(), 1);
    }

    #[test]
    fn growth_is_well_formed_and_shows_each_point() {
        let points = vec![(250.0, 10.0), (500.0, 21.0), (2000.0, 79.0)];
        let one = Growth::fit("CPU", "ms", "proxies", 1.0, points);
        let none = Growth::fit("memory", "MB", "services", 0.0, Vec::new());
        let svg = growth(&[one, none]).unwrap();
        assert_well_formed(&svg);
        for text in
            [">250<", ">500<", ">2000<", ">10<", ">21<", ">79<", "exponent 0.99, expected 1"]
        {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains("memory, MB, over services"));
    }

    #[test]
    fn report_without_ratios_has_an_empty_plot() {
        assert_well_formed(&ratios(&[]).unwrap());
    }
}
