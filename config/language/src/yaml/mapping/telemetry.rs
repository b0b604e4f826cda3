//! Telemetry, of Open Service Mesh.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::Finding;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::made::Made;
use super::surroundings::OSM_CONFIG;
use super::{Context, FindingReported, Resource};
use crate::codes;
use crate::table::{Value, list};

/// The default namespace of Open Service Mesh itself: telemetry in it applies to the mesh.
const ROOT: &str = "osm-system";

pub(super) fn read<'a>(
    made: &mut Made<'a>,
    resource: &Resource<'a>,
    has_spec: bool,
    context: &Context<'_, 'a>,
) -> Result<(), FindingReported> {
    let mut spec = resource.spec("a Telemetry", has_spec)?;
    let selector = spec.optional("selector", |value| Ok((value, labels(value)?)));
    let selected = selector.and_then(|selector| {
        match selector {
            Some((selector, labels)) if !labels.is_empty() => {
                let service = service(selector, &labels, resource, context)?;
                context.change(format!(
                    "The pods of its `selector` were those of the service `{service}`."
                ));
                made.put("service", selector.written().span(), DeValue::String(service.into()));
            }
            _ => whole(made, resource, context),
        }
        Ok(())
    });
    // Without it, Open Service Mesh failed.
    let log = spec.required("accessLog", |value| {
        made.put_table("access_log", value, |value| access_log(value, context))
    });
    spec.finish();
    selected.and(log)
}

/// The labels of a selector. Without one of them, it would select more pods.
fn labels(selector: Value<'_>) -> Result<BTreeMap<&str, &str>, FindingReported> {
    let table = selector.table("`selector`")?;
    let labels: Vec<_> =
        table.entries().map(|(_, value)| Ok((value.key(), value.string()?))).collect();
    labels.into_iter().collect()
}

/// Sets the scope to the whole mesh, or to the namespace.
fn whole(made: &mut Made<'_>, resource: &Resource<'_>, context: &Context<'_, '_>) {
    if resource.namespace() == ROOT {
        context.change(format!(
            "Open Service Mesh took telemetry in its own namespace, which is `{ROOT}` unless it was \
             installed in another, for all of the mesh."
        ));
        made.put("scope", resource.at(), DeValue::String("mesh".into()));
    }
}

/// The one service whose pods a selector selects exactly.
fn service<'a>(
    selector: Value<'a>,
    labels: &BTreeMap<&'a str, &'a str>,
    resource: &Resource<'a>,
    context: &Context<'_, 'a>,
) -> Result<&'a str, FindingReported> {
    let namespace = resource.namespace();
    // Several workloads may have one name.
    let behind = |selector: &BTreeMap<&str, &str>| -> BTreeSet<usize> {
        let workloads = context.workloads.iter().enumerate();
        let behind = workloads.filter(|(_, one)| one.is_behind(namespace, selector));
        behind.map(|(n, _)| n).collect()
    };
    let selected = behind(labels);
    let services: Vec<_> = context
        .surroundings
        .services
        .iter()
        .filter(|service| service.namespace == namespace)
        .map(|service| (service.name, behind(&service.selector)))
        .filter(|(_, behind)| !behind.is_empty() && behind.is_subset(&selected))
        .collect();
    let others = match services.as_slice() {
        [(only, behind)] if *behind == selected => return Ok(only),
        [(_, behind)] => &selected - behind,
        _ => BTreeSet::new(),
    };
    let names: Vec<_> = services.iter().map(|(name, _)| *name).collect();
    let message = "a selector of labels is not served: sidecars are those of services";
    let finding = selector.error(codes::NOT_SERVED, message);
    let other = others.first().and_then(|other| context.workloads.get(*other));
    let help = match (names.as_slice(), other) {
        ([], _) => "set it for a service: `service = \"…\"` in TOML".to_owned(),
        (services, Some(other)) => format!(
            "it selects the pods of `{}` as well, which are not behind {}: set it for each service, in TOML",
            other.name,
            list(services)
        ),
        (several, None) => format!("set it for each, in TOML: {}", list(several)),
    };
    Err(selector.report(finding.label("no service").help(help)))
}

fn access_log<'a>(
    value: Value<'a>,
    context: &Context<'_, 'a>,
) -> Result<Made<'a>, FindingReported> {
    let mut made = Made::default();
    let mut table = value.table("`accessLog`")?;
    // Open Service Mesh has the same default as Ironmesh for an empty value.
    let is_set = table.get("format").is_some_and(|one| one.string_if_any() != Some(""));
    if is_set {
        made.copy(&mut table, "format", "format");
    }
    let sink = table.optional("openTelemetry", |value| {
        if context.is_of_osm() {
            context.change(
                "Open Service Mesh wrote the log to standard output as well; here it goes to one place.",
            );
        }
        made.put_table("sink", value, |value| open_telemetry(value, context))
    });
    table.finish();
    sink.map(|_| made)
}

fn open_telemetry<'a>(
    value: Value<'a>,
    context: &Context<'_, 'a>,
) -> Result<Made<'a>, FindingReported> {
    let mut made = Made::default();
    let mut table = value.table("`openTelemetry`")?;
    let collector = table.required("extensionService", |value| {
        let collector = collector(value, context)?;
        made.put("open_telemetry", value.written().span(), DeValue::Table(collector));
        Ok(())
    });
    let is_empty =
        |value: Value<'a>| value.written().get_ref().as_table().is_some_and(DeTable::is_empty);
    if table.get("attributes").is_some_and(|attributes| !is_empty(attributes)) {
        made.copy(&mut table, "attributes", "attributes");
    }
    table.finish();
    collector.map(|()| made)
}

/// The address of the extension service that `value` names.
fn collector<'a>(
    value: Value<'a>,
    context: &Context<'_, 'a>,
) -> Result<DeTable<'a>, FindingReported> {
    let mut table = value.table("`extensionService`")?;
    let name = table.required("name", Value::string);
    let namespace = table.required("namespace", Value::string);
    table.finish();
    let (name, namespace) = (name?, namespace?);
    let mut known = context.surroundings.extension_services.iter();
    let Some(found) = known.find(|one| (one.namespace, one.name) == (namespace, name)) else {
        let message = format!("there is no ExtensionService `{name}` in namespace `{namespace}`");
        let finding = value.error(codes::NOT_FOUND, message).label("not found");
        let help = format!(
            "put it into the same file: it is of `{OSM_CONFIG}`, and sets `host` and `port`"
        );
        return Err(value.report(finding.help(help)));
    };
    if found.protocol == Some("http1") {
        let message = format!("spans are exported by gRPC, and `{name}` speaks HTTP/1.1");
        let finding: Finding = value.error(codes::NOT_SERVED, message).label("not served");
        return Err(value.report(finding.help("name the port of the collector's gRPC (`h2c`)")));
    }
    let mut collector = DeTable::new();
    for (key, setting) in [("host", found.host), ("port", found.port)] {
        if let Some(setting) = setting {
            // Its problems are reported where it is named, since it may be written in another file.
            let at = value.written().span();
            let key = Spanned::new(at.clone(), key.into());
            collector.insert(key, Spanned::new(at, setting.get_ref().clone()));
        }
    }
    Ok(collector)
}
