//! Growth over proxies, services and endpoints: one short run for each size, and the fitted exponents.

use std::time::Duration;

use anyhow::{Context, ensure};
use ironmesh_xds_wire::ResourceType;

use super::RunOptions;
use super::parts::PAUSE;
use crate::fleet::{Fleet, VERIFIED_AT_ONCE};
use crate::growth::Growth;
use crate::measure::{Scope, median, series};
use crate::measured_control_plane::MeasuredControlPlane;
use crate::process::{allow_connections, rss};
use crate::report::{Row, count, microseconds, milliseconds};
use crate::shape::{CHANGING, Shape};

/// How far a fitted exponent may exceed that of the design.
const TOLERANCE: f64 = 0.15;

/// The measurements of one size.
struct Point {
    shape: Shape,
    /// The server's CPU for one change, in milliseconds.
    cpu: f64,
    /// The memory of all proxies, in megabytes.
    memory: f64,
    /// The time to the last ACK, in milliseconds.
    to_last: f64,
}

/// Measures all sizes. Each row has its shape.
pub(super) async fn measure(options: &RunOptions) -> anyhow::Result<(Vec<Row>, Vec<Growth>)> {
    let Sizes { proxies, services, endpoints } = Sizes::up_to(options.scale)?;
    let mut points: Vec<Point> = Vec::new();
    for shape in [&proxies, &services, &endpoints].into_iter().flatten() {
        if points.iter().all(|point| point.shape != *shape) {
            points.push(point(options, *shape).await.with_context(|| format!("with {shape}"))?);
        }
    }
    let fit = |figure: Figure, size: &'static str, of: fn(Shape) -> usize, shapes: &[Shape]| {
        let points = points.iter().filter(|point| shapes.contains(&point.shape));
        let points = points.map(|point| (count(of(point.shape) as u64), (figure.of)(point)));
        let expected = if size == "proxies" { 1.0 } else { 0.0 };
        Growth::fit(figure.name, figure.unit, size, expected, points.collect())
    };
    let growth = vec![
        fit(CPU, "proxies", |shape| shape.proxies, &proxies),
        fit(CPU, "services", |shape| shape.services, &services),
        fit(CPU, "endpoints", |shape| shape.endpoints, &endpoints),
        fit(MEMORY, "proxies", |shape| shape.proxies, &proxies),
        fit(MEMORY, "services", |shape| shape.services, &services),
    ];
    let exponents = WORKS.into_iter().zip(&growth).map(|(work, growth)| {
        let row = Row::new(work, "", growth.exponent).itself_at_most(growth.expected + TOLERANCE);
        Row { shape: "growth: exponents".to_owned(), ..row }
    });
    let figures = points.iter().flat_map(|point| {
        let of = |row: Row| Row { shape: point.shape.to_string(), ..row };
        [
            of(Row::new("scale: server's CPU for one change", "ms", point.cpu)),
            of(Row::new("scale: memory of all proxies", "MB", point.memory)),
            of(Row::new("scale: one change: to the last ACK, median", "ms", point.to_last)),
        ]
    });
    let rows = exponents.chain(figures).collect();
    Ok((rows, growth))
}

/// The fleets, which differ in one size only.
struct Sizes {
    proxies: Vec<Shape>,
    services: Vec<Shape>,
    endpoints: Vec<Shape>,
}

impl Sizes {
    /// The sizes with at most this many proxies, and half as many services.
    fn up_to(limit: usize) -> anyhow::Result<Self> {
        ensure!(
            limit >= 160 && limit.is_multiple_of(80),
            "the limit of `--scale` is a multiple of 80, at least 160: {limit}"
        );
        let (least, usual) = (limit / 8, limit / 20);
        let of = |proxies, services| Shape::new(proxies, services);
        Ok(Self {
            proxies: [8, 4, 2, 1].map(|part| of(limit / part, usual)).to_vec(),
            services: [40, 20, 8, 4, 2].map(|part| of(least, limit / part)).to_vec(),
            endpoints: [1, Shape::ENDPOINTS, (least - 1).min(99)]
                .map(|endpoints| Shape { endpoints, ..of(least, usual) })
                .to_vec(),
        })
    }
}

/// Measures one size.
async fn point(options: &RunOptions, shape: Shape) -> anyhow::Result<Point> {
    allow_connections(u64::try_from(shape.proxies + VERIFIED_AT_ONCE)?)?;
    let mut subject = MeasuredControlPlane::start(&options.ironmesh, shape).await?;
    let measured = measured(options, &mut subject, shape).await;
    measured.with_context(|| format!("the control plane's log ends with\n{}", subject.log_tail()))
}

async fn measured(
    options: &RunOptions,
    subject: &mut MeasuredControlPlane,
    shape: Shape,
) -> anyhow::Result<Point> {
    let (server, patience) = (subject.id()?, options.patience);
    let empty = rss(server)?;
    let fleet = Fleet::new(subject.enroll(shape).await?, options.variant, options.delay);
    fleet.connect(subject.xds(), true);
    fleet.all_configured(patience).await?;
    fleet.quiet(SETTLED, patience).await?;
    let memory = count(rss(server)?.saturating_sub(empty)) / 1e6;
    let clients = shape.proxies;
    let scope = Scope { cluster: CHANGING, clients, among: clients, pause: PAUSE, patience };
    series(&fleet, &[server], scope, WARM_UP, async || subject.change()).await?;
    let changes =
        series(&fleet, &[server], scope, options.events, async || subject.change()).await?;
    let holdings = fleet.holdings(0).unwrap_or_default();
    let changing = holdings.get(&ResourceType::Endpoint).and_then(|all| all.get(CHANGING));
    let endpoints = changing.map_or(0, |known| known.references.endpoints);
    ensure!(
        usize::try_from(endpoints)? == shape.endpoints,
        "`{CHANGING}` has {endpoints} endpoints, expected {}",
        shape.endpoints
    );
    let verified = fleet.verify(subject.xds(), patience).await?;
    ensure!(verified == clients, "{verified} of {clients} have exactly the server's set");
    let n = count(u64::try_from(clients)?);
    let cpu = microseconds(changes.cpu_each()) * n / 1e3;
    Ok(Point { shape, cpu, memory, to_last: milliseconds(median(&changes.to_last)) })
}

/// A figure of a point.
#[derive(Clone, Copy)]
struct Figure {
    name: &'static str,
    unit: &'static str,
    of: fn(&Point) -> f64,
}

const CPU: Figure =
    Figure { name: "server's CPU for one change", unit: "ms", of: |point| point.cpu };
const MEMORY: Figure =
    Figure { name: "memory of all proxies", unit: "MB", of: |point| point.memory };
/// The rows of the exponents, in the order of the fits.
const WORKS: [&str; 5] = [
    "server's CPU for one change, over proxies",
    "server's CPU for one change, over services",
    "server's CPU for one change, over endpoints",
    "memory of all proxies, over proxies",
    "memory of all proxies, over services",
];
const WARM_UP: usize = 2;
const SETTLED: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_differ_in_one_number_and_meet_in_one_fleet() {
        let sizes = Sizes::up_to(2000).unwrap();
        let numbers =
            |shapes: &[Shape], of: fn(&Shape) -> usize| shapes.iter().map(of).collect::<Vec<_>>();
        assert_eq!(numbers(&sizes.proxies, |s| s.proxies), [250, 500, 1000, 2000]);
        assert_eq!(numbers(&sizes.services, |s| s.services), [50, 100, 250, 500, 1000]);
        assert_eq!(numbers(&sizes.endpoints, |s| s.endpoints), [1, 9, 99]);
        let common = Shape::new(250, 100);
        for shapes in [&sizes.proxies, &sizes.services, &sizes.endpoints] {
            assert!(shapes.contains(&common), "{shapes:?}");
        }
        let small = Sizes::up_to(160).unwrap();
        for shape in [small.proxies, small.services].concat() {
            let text = format!("{}x{}", shape.proxies, shape.services);
            assert_eq!(text.parse(), Ok(shape));
        }
        assert!(Sizes::up_to(1000).is_err() && Sizes::up_to(80).is_err());
    }
}
