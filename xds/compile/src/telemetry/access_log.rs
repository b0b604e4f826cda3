//! Access logs as Envoy's loggers.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::{LogFilter, LogFormat, LogSink, LogValue};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::accesslog::v3::access_log_filter::FilterSpecifier;
use ironmesh_xds_wire::pb::envoy::config::accesslog::v3::{
    self as pb, AccessLogFilter, AndFilter, ComparisonFilter, DurationFilter, LogTypeFilter,
    OrFilter, StatusCodeFilter, comparison_filter::Op,
};
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    DataSource, RuntimeUInt32, SubstitutionFormatString, TypedExtensionConfig,
    data_source::Specifier, substitution_format_string::Format,
};
use ironmesh_xds_wire::pb::envoy::data::accesslog::v3::AccessLogType;
use ironmesh_xds_wire::pb::envoy::extensions::access_loggers::file::v3::{
    FileAccessLog, file_access_log,
};
use ironmesh_xds_wire::pb::envoy::extensions::access_loggers::open_telemetry::v3::OpenTelemetryAccessLogConfig;
use ironmesh_xds_wire::pb::envoy::extensions::access_loggers::stream::v3::{
    StdoutAccessLog, stdout_access_log,
};
use ironmesh_xds_wire::pb::envoy::extensions::formatter::req_without_query::v3::ReqWithoutQuery;
use ironmesh_xds_wire::pb::google::protobuf::{Any, Duration, Struct, Value, value::Kind};
use ironmesh_xds_wire::pb::opentelemetry::proto::common::v1::{
    AnyValue, KeyValue, KeyValueList, any_value,
};

use super::{ServiceTelemetry, Written, collector};
use crate::shape::number;

/// The interval at which entries are sent to a collector, and the approximate maximum of bytes
/// until then.
const FLUSH_INTERVAL: Duration = Duration { seconds: 1, nanos: 0 };
const BUFFER_SIZE: u32 = 16 << 10;

/// One entry for each request.
pub(super) fn request_log(written: &Written<'_>) -> pb::AccessLog {
    logger(written, written.log.filter.as_ref().and_then(filter))
}

/// One entry for each TCP connection, at its end. (In audit Envoy also creates one at the
/// beginning.)
pub(super) fn connection_log(written: &Written<'_>) -> pb::AccessLog {
    let types = vec![AccessLogType::TcpConnectionEnd.into()];
    let is_end = FilterSpecifier::LogTypeFilter(LogTypeFilter { types, exclude: false });
    let filters = [Some(is_end), written.log.filter.as_ref().and_then(filter)];
    let filters = filters.into_iter().flatten().map(of).collect();
    let both = combined(filters, |filters| FilterSpecifier::AndFilter(AndFilter { filters }));
    logger(written, both)
}

fn logger(written: &Written<'_>, filter: Option<FilterSpecifier>) -> pb::AccessLog {
    let Written { log, service, file } = written;
    let (name, config) = match &log.sink {
        LogSink::Stdout => {
            let format = stdout_access_log::AccessLogFormat::LogFormat(format(&log.format));
            let config = StdoutAccessLog { access_log_format: Some(format) };
            ("envoy.access_loggers.stdout", any(&config))
        }
        LogSink::File(_) => {
            let format = file_access_log::AccessLogFormat::LogFormat(format(&log.format));
            let config = FileAccessLog { path: file.clone(), access_log_format: Some(format) };
            ("envoy.access_loggers.file", any(&config))
        }
        LogSink::OpenTelemetry { collector, attributes } => {
            let config = OpenTelemetryAccessLogConfig {
                grpc_service: Some(collector::grpc_service(collector)),
                resource_attributes: Some(KeyValueList {
                    values: vec![entry("service.name", text(&ServiceTelemetry::name(service)))],
                }),
                body: Some(body(&log.format)),
                attributes: (!attributes.is_empty()).then(|| KeyValueList {
                    values: attributes.iter().map(|(key, value)| entry(key, text(value))).collect(),
                }),
                formatters: formatters(&log.format, attributes.values()),
                log_name: service.to_string(),
                buffer_flush_interval: Some(FLUSH_INTERVAL),
                buffer_size_bytes: number(BUFFER_SIZE),
                ..OpenTelemetryAccessLogConfig::default()
            };
            ("envoy.access_loggers.open_telemetry", any(&config))
        }
    };
    pb::AccessLog {
        name: name.to_owned(),
        filter: filter.map(of),
        config_type: Some(pb::access_log::ConfigType::TypedConfig(config)),
    }
}

/// The disjunction of the conditions.
fn filter(filter: &LogFilter) -> Option<FilterSpecifier> {
    let at_least = |value: u32, runtime_key: &str| ComparisonFilter {
        op: Op::Ge.into(),
        // Envoy requires a runtime key that could override the value. Nothing sets it.
        value: Some(RuntimeUInt32 {
            default_value: value,
            runtime_key: format!("ironmesh.access_log.{runtime_key}"),
        }),
    };
    let status = filter.status_at_least.map(|status| {
        let comparison = Some(at_least(status.into(), "status"));
        FilterSpecifier::StatusCodeFilter(StatusCodeFilter { comparison })
    });
    let slow = filter.slower_than_ms.map(|milliseconds| {
        let comparison = Some(at_least(milliseconds.saturating_add(1), "duration"));
        FilterSpecifier::DurationFilter(DurationFilter { comparison })
    });
    let filters = status.into_iter().chain(slow).map(of).collect();
    combined(filters, |filters| FilterSpecifier::OrFilter(OrFilter { filters }))
}

/// The only filter of a list, or several combined by `join`. (Envoy rejects a combination of one.)
fn combined(
    mut filters: Vec<AccessLogFilter>,
    join: impl Fn(Vec<AccessLogFilter>) -> FilterSpecifier,
) -> Option<FilterSpecifier> {
    match filters.len() {
        0 | 1 => filters.pop().and_then(|one| one.filter_specifier),
        _ => Some(join(filters)),
    }
}

fn of(filter: FilterSpecifier) -> AccessLogFilter {
    AccessLogFilter { filter_specifier: Some(filter) }
}

fn format(format: &LogFormat) -> SubstitutionFormatString {
    let written = match format {
        LogFormat::Text(text) => Format::TextFormatSource(DataSource {
            specifier: Some(Specifier::InlineString(text.to_string())),
            ..DataSource::default()
        }),
        LogFormat::Json(fields) => Format::JsonFormat(structure(fields)),
    };
    SubstitutionFormatString {
        format: Some(written),
        formatters: formatters(format, []),
        ..SubstitutionFormatString::default()
    }
}

fn structure(fields: &BTreeMap<Arc<str>, LogValue>) -> Struct {
    let value = |value: &LogValue| match value {
        LogValue::Text(text) => Kind::StringValue(text.to_string()),
        LogValue::Object(fields) => Kind::StructValue(structure(fields)),
    };
    let field =
        |(name, one): (&Arc<str>, &LogValue)| (name.to_string(), Value { kind: Some(value(one)) });
    Struct { fields: fields.iter().map(field).collect() }
}

/// A format as the body of a record.
fn body(format: &LogFormat) -> AnyValue {
    match format {
        LogFormat::Text(written) => text(written),
        LogFormat::Json(fields) => object(fields),
    }
}

fn object(fields: &BTreeMap<Arc<str>, LogValue>) -> AnyValue {
    let value = |value: &LogValue| match value {
        LogValue::Text(written) => text(written),
        LogValue::Object(fields) => object(fields),
    };
    let values = fields.iter().map(|(name, one)| entry(name, value(one))).collect();
    AnyValue { value: Some(any_value::Value::KvlistValue(KeyValueList { values })) }
}

fn text(text: &str) -> AnyValue {
    AnyValue { value: Some(any_value::Value::StringValue(text.to_owned())) }
}

fn entry(key: &str, value: AnyValue) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

/// The extensions that Envoy needs for the formats: one operator is not built in.
fn formatters<'a>(
    format: &LogFormat,
    others: impl IntoIterator<Item = &'a Arc<str>>,
) -> Vec<TypedExtensionConfig> {
    let is_used = |text: &Arc<str>| text.contains("%REQ_WITHOUT_QUERY(");
    let of_format = match format {
        LogFormat::Text(text) => is_used(text),
        LogFormat::Json(fields) => uses(fields, &is_used),
    };
    let is_needed = of_format || others.into_iter().any(is_used);
    let config: Any = any(&ReqWithoutQuery {});
    let formatter = TypedExtensionConfig {
        name: "envoy.formatter.req_without_query".to_owned(),
        typed_config: Some(config),
    };
    is_needed.then_some(formatter).into_iter().collect()
}

fn uses(fields: &BTreeMap<Arc<str>, LogValue>, is_used: &impl Fn(&Arc<str>) -> bool) -> bool {
    fields.values().any(|value| match value {
        LogValue::Text(text) => is_used(text),
        LogValue::Object(fields) => uses(fields, is_used),
    })
}
