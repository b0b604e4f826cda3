//! Traces: spans to a collector, with W3C trace context propagation.

use ironmesh_catalog::{ServiceName, Tracing};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::core::v3::TypedExtensionConfig;
use ironmesh_xds_wire::pb::envoy::config::trace::v3::OpenTelemetryConfig;
use ironmesh_xds_wire::pb::envoy::config::trace::v3::tracing::{Http, http};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager;
use ironmesh_xds_wire::pb::envoy::extensions::tracers::opentelemetry::samplers::v3::TraceIdRatioBasedSamplerConfig;
use ironmesh_xds_wire::pb::envoy::r#type::v3::fractional_percent::DenominatorType;
use ironmesh_xds_wire::pb::envoy::r#type::v3::{FractionalPercent, Percent};

use super::{ServiceTelemetry, collector};

/// Traces requests, with the sampling rate of `policy`.
///
/// The trace id alone decides, the same at each sidecar. What a caller sets by `traceparent`,
/// `x-envoy-force-trace`, `x-client-trace-id` or the digits of `x-request-id` decides nothing: the
/// tracer's sampler comes first.
pub(super) fn tracing(policy: &Tracing, service: &ServiceName) -> http_connection_manager::Tracing {
    let sampler = TraceIdRatioBasedSamplerConfig {
        sampling_percentage: Some(FractionalPercent {
            numerator: policy.sampling.0,
            denominator: DenominatorType::Million.into(),
        }),
    };
    let name = policy.service_name.as_ref();
    let config = OpenTelemetryConfig {
        grpc_service: Some(collector::grpc_service(&policy.collector)),
        service_name: name.map_or_else(|| ServiceTelemetry::name(service), ToString::to_string),
        sampler: Some(TypedExtensionConfig {
            name: "envoy.tracers.opentelemetry.samplers.trace_id_ratio_based".to_owned(),
            typed_config: Some(any(&sampler)),
        }),
        ..OpenTelemetryConfig::default()
    };
    http_connection_manager::Tracing {
        client_sampling: Some(Percent { value: 0.0 }),
        provider: Some(Http {
            name: "envoy.tracers.opentelemetry".to_owned(),
            config_type: Some(http::ConfigType::TypedConfig(any(&config))),
        }),
        ..http_connection_manager::Tracing::default()
    }
}
