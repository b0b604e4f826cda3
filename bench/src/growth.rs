//! Growth of a figure over the size of a fleet: the exponent of a power law, fitted to measured points.

use serde::Serialize;

/// How one figure grows with one size.
#[derive(Debug, Clone, Serialize)]
pub struct Growth {
    /// The figure.
    pub figure: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The size, such as the number of proxies.
    pub size: &'static str,
    /// Sizes and figures.
    pub points: Vec<(f64, f64)>,
    /// The fitted exponent: 1 is linear, 0 is constant.
    pub exponent: f64,
    /// The exponent that the design has.
    pub expected: f64,
}

impl Growth {
    /// Fits a power law to points.
    pub(crate) fn fit(
        figure: &'static str,
        unit: &'static str,
        size: &'static str,
        expected: f64,
        points: Vec<(f64, f64)>,
    ) -> Self {
        let exponent = exponent(&points);
        Self { figure, unit, size, points, exponent, expected }
    }
}

/// The slope of the line through the logarithms of all points, by least squares. Points without a logarithm do not count.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let points = points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0);
    let points: Vec<_> = points.map(|(x, y)| (x.ln(), y.ln())).collect();
    let n = points.iter().map(|_| 1.0).sum::<f64>();
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (middle_x, middle_y) = (mean(|(x, _)| *x), mean(|(_, y)| *y));
    let common: f64 = points.iter().map(|(x, y)| (x - middle_x) * (y - middle_y)).sum();
    let square: f64 = points.iter().map(|(x, _)| (x - middle_x).powi(2)).sum();
    if square > 0.0 { common / square } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exponent_of(figure: fn(f64) -> f64) -> f64 {
        let points = [1.0, 2.0, 5.0, 40.0].map(|x| (x, figure(x)));
        Growth::fit("a figure", "ms", "proxies", 1.0, points.to_vec()).exponent
    }

    #[test]
    fn exponent_of_a_power_law_is_exact() {
        for (figure, expected) in [
            ((|x| 3.0 * x) as fn(f64) -> f64, 1.0),
            (|_| 7.0, 0.0),
            (|x| 0.1 * x * x, 2.0),
            (|x| 5.0 / x, -1.0),
        ] {
            let exponent = exponent_of(figure);
            assert!((exponent - expected).abs() < 1e-9, "{exponent} {expected}");
        }
    }

    #[test]
    fn fixed_part_of_a_figure_lowers_its_exponent() {
        let exponent = exponent_of(|x| 10.0 + x);
        assert!((0.1..0.6).contains(&exponent), "{exponent}");
    }

    #[test]
    fn exponent_of_too_few_or_equal_points_is_zero() {
        for points in [&[][..], &[(1.0, 2.0)], &[(3.0, 2.0), (3.0, 4.0)], &[(0.0, 1.0), (2.0, 1.0)]]
        {
            assert!(exponent(points).abs() < f64::EPSILON, "{points:?}");
        }
    }
}
