//! Service of Kubernetes: its name, its ports, and the account of the pods behind it. Everything else
//! concerns only Kubernetes.

use std::collections::BTreeSet;

use ironmesh_catalog::Finding;
use toml::Spanned;
use toml::de::DeValue;

use super::made::{Made, number};
use super::workload::{Workload, strings};
use super::{Context, FindingReported, Resource};
use crate::codes;
use crate::table::{Table, Value};

pub(super) fn read<'a>(
    made: &mut Made<'a>,
    resource: &Resource<'a>,
    _: bool,
    context: &Context<'_, 'a>,
) -> Result<(), FindingReported> {
    let mut table = resource.table("a Service");
    let Some(mut spec) = table.optional("spec", |value| value.table("a Service"))? else {
        return Ok(());
    };
    if let Some(kind) = spec.get("type")
        && kind.string_if_any() == Some("ExternalName")
    {
        let message = "services of type `ExternalName` are not served";
        let finding = kind.error(codes::NOT_SERVED, message).label("outside of the mesh");
        return Err(kind.report(finding.help("remove it from the policy")));
    }
    let selector = resource.below(&["spec", "selector"]).map(strings).unwrap_or_default();
    let namespace = resource.namespace();
    let workloads: Vec<_> = context
        .workloads
        .iter()
        .filter(|workload| workload.is_behind(namespace, &selector))
        .collect();
    account(made, resource, &workloads, context);
    spec.optional("ports", |value| {
        made.put_list("ports", value, |item| port(item, &workloads, context))
    })
    .map(|_| ())
}

/// The account of the pods behind the service, if all have the same.
fn account<'a>(
    made: &mut Made<'a>,
    resource: &Resource<'a>,
    workloads: &[&Workload<'a>],
    context: &Context<'_, 'a>,
) {
    let accounts: BTreeSet<_> =
        workloads.iter().filter_map(|workload| workload.account_name()).collect();
    let mut accounts = accounts.into_iter();
    match (accounts.next(), accounts.next()) {
        (None, _) => context.change(
            "Which account it runs as is not in the input: that of its name, unless `service_account` names another.",
        ),
        (Some(account), None) if Some(account) == resource.name() => {}
        (Some(account), None) => {
            let written = workloads.iter().find_map(|workload| workload.account);
            let at = written.map_or_else(|| resource.at(), Spanned::span);
            made.put("service_account", at, DeValue::String(account.into()));
        }
        (Some(one), Some(other)) => {
            let message = format!("the pods behind the service run as `{one}` and as `{other}`");
            let finding = Finding::warning(codes::INVALID_VALUE, Some(resource.spot()), message);
            let help = "a service has one account: that of its name, unless `service_account` names another; put several accounts behind it by a TrafficSplit";
            resource.reader.report(finding.label("several accounts").help(help));
        }
    }
}

/// A port; none, if its protocol is not supported.
fn port<'a>(
    item: Value<'a>,
    workloads: &[&Workload<'a>],
    context: &Context<'_, 'a>,
) -> Result<Option<Made<'a>>, FindingReported> {
    let mut table = item.table("a port")?;
    let mut made = Made::default();
    made.copy(&mut table, "name", "name");
    made.copy(&mut table, "port", "port");
    if let Some(transport) = table.get("protocol")
        && transport.string_if_any() != Some("TCP")
    {
        let message = format!("only ports of protocol TCP are served{}", which(&made));
        let finding = transport.error(codes::NOT_SERVED, message).label("not served");
        transport.report(finding.help("remove the port"));
        return Ok(None);
    }
    let Some((at, protocol)) = protocol(&made, &mut table, context) else { return Ok(None) };
    made.put("protocol", at.unwrap_or_else(|| item.written().span()), protocol);
    target(&mut made, &mut table, workloads);
    Ok(Some(made))
}

/// The protocol by the rules of Open Service Mesh: `appProtocol`, else the prefix of the port's name (that of
/// `tcp-server-first-` is `tcp-`, too), else HTTP. `None`, with a finding, if the protocol is not supported.
fn protocol<'a>(
    made: &Made<'a>,
    table: &mut Table<'a>,
    context: &Context<'_, 'a>,
) -> Option<(Option<std::ops::Range<usize>>, DeValue<'a>)> {
    if let Some(value) = table.get("appProtocol") {
        let at = value.written().span();
        let protocol = match value.string_if_any()?.to_lowercase().as_str() {
            "http" => "http",
            "http2" | "kubernetes.io/h2c" => "http2",
            "grpc" => "grpc",
            "tcp" | "tcp-server-first" => "tcp",
            other => {
                let message = format!("`appProtocol` `{other}` is not served{}", which(made));
                let finding = value.error(codes::NOT_SERVED, message).label("not served");
                let help = "use `tcp`, which carries any bytes, TLS of the application among them";
                value.report(finding.help(help));
                return None;
            }
        };
        return Some((Some(at), DeValue::String(protocol.into())));
    }
    let name = table.get("name").and_then(Value::string_if_any).unwrap_or("").to_lowercase();
    let prefixes = [("http-", "http"), ("grpc-", "grpc"), ("tcp-", "tcp")];
    let known = prefixes.iter().find(|(prefix, _)| name.starts_with(prefix));
    let protocol = known.map_or("http", |(_, protocol)| protocol);
    if known.is_none() {
        context.change(
            "`http` where neither `appProtocol` nor the beginning of the port's name gives a protocol.",
        );
    }
    Some((None, DeValue::String(protocol.into())))
}

/// The end of a sentence that names the port.
fn which(made: &Made<'_>) -> String {
    made.number("port").map_or(String::new(), |number| format!(": port `{number}`"))
}

/// The port of the application, unless it is the service port.
fn target<'a>(made: &mut Made<'a>, table: &mut Table<'a>, workloads: &[&Workload<'a>]) {
    let Some(value) = table.get("targetPort") else { return };
    let Some(name) = value.string_if_any() else {
        if made.number("port") != number(value.written()) {
            made.copy(table, "targetPort", "target_port");
        }
        return;
    };
    let mut found = workloads.iter().map(|workload| workload.ports.get(name).copied());
    let first = found.next().flatten();
    let is_same = |port: Option<&'a _>| port.and_then(number) == first.and_then(number);
    match first {
        Some(port) if found.all(is_same) => {
            if made.number("port") != number(port) {
                made.put("target_port", value.written().span(), port.get_ref().clone());
            }
        }
        _ => {
            let message = format!("`targetPort` `{name}` is the name of a port of pods");
            let finding = value.error(codes::INVALID_VALUE, message).label("which number?");
            value.report(finding.help("give the number of the port"));
        }
    }
}
