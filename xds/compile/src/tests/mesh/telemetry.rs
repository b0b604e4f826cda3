//! Random telemetry: of the mesh, of a namespace, and of services; of a few kinds.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use ironmesh_catalog::{
    AccessLog, Collector, Level, LogFilter, LogFormat, LogSink, Name, Sampling, ServiceName,
    Telemetry, Tracing,
};
use proptest::collection::btree_map;
use proptest::prelude::*;

use super::{SERVICES, name, spot};

/// The kind of telemetry by subject: 0 is the mesh, 1 the first namespace, then come the services.
pub(super) type TelemetryShape = BTreeMap<usize, usize>;

/// The number of kinds.
const KINDS: usize = 4;

pub(super) fn telemetry() -> impl Strategy<Value = TelemetryShape> {
    btree_map(0..SERVICES + 2, 0..KINDS, 0..4)
}

/// The telemetry objects of a mesh with these service names.
pub(super) fn build(
    shape: &TelemetryShape,
    service: impl Fn(usize) -> ServiceName,
) -> OrdMap<(Name, Name), Arc<Telemetry>> {
    let one = |(about, kind): (&usize, &usize)| {
        let namespace = name("n", 0);
        let level = match about {
            0 => Level::Mesh,
            1 => Level::Namespace(namespace.clone()),
            _ => Level::Service(service(about - 2)),
        };
        let collector = Collector { host: format!("otel-{kind}").into(), port: Collector::PORT };
        let log = |sink| AccessLog {
            format: LogFormat::Text("%DURATION%".into()),
            sink,
            filter: Some(LogFilter { status_at_least: Some(500), slower_than_ms: None }),
        };
        let attributes = BTreeMap::new();
        let sink = match kind {
            0 => Some(LogSink::Stdout),
            1 => Some(LogSink::OpenTelemetry { collector: collector.clone(), attributes }),
            _ => None,
        };
        let sampling = Sampling(1000);
        let tracing = Tracing { collector, sampling, service_name: None };
        let telemetry = Telemetry {
            namespace: namespace.clone(),
            name: name("t", *about),
            level,
            access_log: sink.map(log),
            tracing: (*kind > 1).then_some(tracing),
            spot: spot(),
        };
        ((namespace, telemetry.name.clone()), Arc::new(telemetry))
    };
    shape.iter().map(one).collect()
}
