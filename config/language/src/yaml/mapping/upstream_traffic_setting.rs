//! UpstreamTrafficSetting, of Open Service Mesh.

mod rates;

use ironmesh_catalog::Name;
use toml::de::DeValue;

use super::made::Made;
use super::{Context, FindingReported, Resource};
use crate::codes;
use crate::table::{Table, Value};

pub(super) fn read<'a>(
    made: &mut Made<'a>,
    resource: &Resource<'a>,
    has_spec: bool,
    context: &Context<'_, 'a>,
) -> Result<(), FindingReported> {
    let mut spec = resource.spec("an UpstreamTrafficSetting", has_spec)?;
    let host = spec.required("host", |value| service(made, value, resource, context));
    let rates = spec.optional("rateLimit", |value| made.put_table("rate_limit", value, rates::all));
    let routes = spec.optional("httpRoutes", |value| {
        made.put_list("http_routes", value, |item| rates::route(item, context).map(Some))
    });
    let connections = spec.optional("connectionSettings", |value| {
        made.put_table("connection_settings", value, connections)
    });
    spec.finish();
    host.and(rates).and(routes).and(connections).map(|_| ())
}

/// The service of a host: `<service>.<namespace>` with any suffix.
fn service<'a>(
    made: &mut Made<'a>,
    value: Value<'a>,
    resource: &Resource<'a>,
    context: &Context<'_, 'a>,
) -> Result<(), FindingReported> {
    let host = value.string()?;
    let mut parts = host.split('.');
    let service = parts.next().filter(|service| Name::new(service).is_ok());
    let namespace = parts.next().filter(|namespace| Name::new(namespace).is_ok());
    let (Some(service), Some(namespace)) = (service, namespace) else {
        let message = format!("`host` must be the hostname of a service: `{host}`");
        let finding = value.error(codes::INVALID_VALUE, message).label("not of a service");
        let help = "it is written as `<service>.<namespace>.svc.cluster.local`";
        return Err(value.report(finding.help(help)));
    };
    if namespace != resource.namespace() {
        let message = format!(
            "the service of `{host}` is in namespace `{namespace}`, and the setting in `{}`",
            resource.namespace()
        );
        let finding = value.error(codes::INVALID_VALUE, message).label("of another namespace");
        return Err(value.report(finding.help("put both into one namespace")));
    }
    context.change(format!("The service `{service}` was written as a hostname: `{host}`."));
    made.put("service", value.written().span(), DeValue::String(service.into()));
    Ok(())
}

fn connections(value: Value<'_>) -> Result<Made<'_>, FindingReported> {
    let mut made = Made::default();
    let mut table = value.table("`connectionSettings`")?;
    let tcp = table.optional("tcp", |value| {
        let keys = [("maxConnections", "max_connections"), ("connectTimeout", "connect_timeout")];
        made.put_table("tcp", value, |value| Ok(renamed(value.table("`tcp`")?, &keys)))
    });
    let http = table.optional("http", |value| {
        let keys = [
            ("maxRequests", "max_requests"),
            ("maxRequestsPerConnection", "max_requests_per_connection"),
            ("maxPendingRequests", "max_pending_requests"),
            ("maxRetries", "max_retries"),
        ];
        made.put_table("http", value, |value| Ok(renamed(value.table("`http`")?, &keys)))
    });
    table.finish();
    tcp.and(http).map(|_| made)
}

/// A table with another spelling of each key.
fn renamed<'a>(mut table: Table<'a>, keys: &[(&'static str, &'static str)]) -> Made<'a> {
    let mut made = Made::default();
    for (theirs, ours) in keys {
        made.copy(&mut table, theirs, ours);
    }
    table.finish();
    made
}
