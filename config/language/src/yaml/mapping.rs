//! The mapping from resources to tables of the policy language: the known kinds and versions, and the mapping
//! of each.

mod egress;
mod identity_binding;
mod ingress_backend;
mod made;
mod paths;
mod retry;
mod routes;
mod service;
mod surroundings;
mod telemetry;
mod traffic_split;
mod traffic_target;
mod upstream_traffic_setting;
mod workload;

use std::cell::RefCell;
use std::ops::Range;

use ironmesh_catalog::{Finding, Spot};
use toml::de::DeTable;

use self::made::Made;
use self::surroundings::{OSM_CONFIG, Surroundings};
pub(crate) use self::workload::Workload;
use super::parse::Parsed;
use super::resource::{Resource, resources};
use crate::codes;
use crate::kinds::PolicyKind;
use crate::suggest::{closest, did_you_mean};
use crate::table::{FindingReported, Reader, Value, list};

/// The rules by which the mesh of the input enforced its resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportDialect {
    /// The rules of the SMI specification, which are also those of Ironmesh.
    Smi,
    /// The rules of Open Service Mesh, where they differ from the specification.
    Osm,
}

/// The outcome of one resource.
#[derive(Debug)]
pub(crate) struct Outcome<'a> {
    /// The names of the resource in its document.
    pub(crate) kind: &'a str,
    pub(crate) name: Option<&'a str>,
    pub(crate) namespace: &'a str,
    /// The spot of its kind, and its span.
    pub(crate) spot: Spot,
    pub(crate) span: Range<usize>,
    /// The equivalent table; `None` if there is none.
    pub(crate) mapped: Option<Mapped<'a>>,
    /// Whether it is no policy, so that nothing is lost.
    pub(crate) is_inert: bool,
    /// Whether it is a resource of a mesh, and so contains no secret of another system.
    pub(crate) is_of_mesh: bool,
    /// The range of the reader's findings about it.
    pub(crate) findings: Range<usize>,
    /// The differences of the table from the resource, with reasons.
    pub(crate) changes: Vec<String>,
    /// The parts of it whose meaning depends on [`ImportDialect`].
    pub(crate) differences: Vec<Difference>,
}

/// A table of the policy language.
#[derive(Debug)]
pub(crate) struct Mapped<'a> {
    pub(crate) kind: PolicyKind,
    pub(crate) at: Range<usize>,
    pub(crate) table: DeTable<'a>,
}

/// A part whose meaning depends on [`ImportDialect`].
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) spot: Spot,
    /// The meanings.
    pub(crate) what: String,
}

/// The mapper from resources to tables.
#[derive(Debug)]
pub(crate) struct Mapper<'a> {
    dialect: ImportDialect,
    workloads: Vec<Workload<'a>>,
    surroundings: Surroundings<'a>,
}

/// The mapping of one resource.
struct Context<'m, 'a> {
    dialect: ImportDialect,
    workloads: &'m [Workload<'a>],
    surroundings: &'m Surroundings<'a>,
    parsed: &'a Parsed<'a>,
    changes: RefCell<Vec<String>>,
    differences: RefCell<Vec<Difference>>,
}

impl Context<'_, '_> {
    fn change(&self, text: impl Into<String>) {
        let (mut changes, text) = (self.changes.borrow_mut(), text.into());
        if !changes.contains(&text) {
            changes.push(text);
        }
    }

    fn difference(&self, spot: Spot, what: impl Into<String>) {
        self.differences.borrow_mut().push(Difference { spot, what: what.into() });
    }

    fn is_of_osm(&self) -> bool {
        self.dialect == ImportDialect::Osm
    }
}

impl<'a> Mapper<'a> {
    /// A mapper of resources that were enforced by the rules of `dialect`. Workloads and other objects in any
    /// of the `sources` count for all of them.
    pub(crate) fn new(
        dialect: ImportDialect,
        sources: impl IntoIterator<Item = (&'a Reader<'a>, &'a Parsed<'a>)>,
    ) -> Self {
        let (mut workloads, mut surroundings) = (Vec::new(), Surroundings::default());
        for (reader, parsed) in sources {
            // An invalid resource is reported when its own source is mapped.
            let before = reader.findings_count();
            for resource in resources(reader, parsed).iter().flatten() {
                workloads.extend(workload::read(resource));
                surroundings.add(resource);
            }
            reader.truncate_findings(before);
        }
        Self { dialect, workloads, surroundings }
    }

    /// The workloads of all sources.
    pub(crate) fn workloads(&self) -> &[Workload<'a>] {
        &self.workloads
    }

    /// The outcome of each resource of `parsed`. Problems are reported to `reader`.
    pub(crate) fn map(&self, reader: &'a Reader<'a>, parsed: &'a Parsed<'a>) -> Vec<Outcome<'a>> {
        let resources = resources(reader, parsed);
        resources.into_iter().flatten().map(|resource| self.outcome(&resource, parsed)).collect()
    }

    fn outcome(&self, resource: &Resource<'a>, parsed: &'a Parsed<'a>) -> Outcome<'a> {
        let before = resource.reader.findings_count();
        let context = Context {
            dialect: self.dialect,
            workloads: &self.workloads,
            surroundings: &self.surroundings,
            parsed,
            changes: RefCell::default(),
            differences: RefCell::default(),
        };
        let mut is_inert = false;
        let mapped = match meaning(resource) {
            Err(FindingReported) => None,
            Ok(Meaning::Inert) => {
                is_inert = true;
                None
            }
            Ok(Meaning::Policy(api, has_spec)) => map(resource, api, has_spec, &context).ok(),
        };
        Outcome {
            kind: resource.kind().unwrap_or("resource"),
            name: resource.name(),
            namespace: resource.namespace(),
            spot: resource.spot(),
            span: resource.span(),
            mapped,
            is_inert,
            is_of_mesh: resource.api_version().is_some_and(|(group, _)| is_of_mesh(group)),
            findings: before..resource.reader.findings_count(),
            changes: context.changes.into_inner(),
            differences: context.differences.into_inner(),
        }
    }
}

/// The meaning of a resource.
enum Meaning {
    /// A resource of this API, and whether its version has a `spec`.
    Policy(&'static Api, bool),
    /// No policy.
    Inert,
}

/// A kind of resource that is policy.
struct Api {
    group: &'static str,
    kind: &'static str,
    /// The versions, each with whether the content of the resource is below `spec`.
    versions: &'static [(&'static str, bool)],
    /// The kind of policy that it becomes, if any.
    table: Option<PolicyKind>,
    /// The name of the kind, with its article.
    what: &'static str,
    read: for<'m, 'a> fn(
        &mut Made<'a>,
        &Resource<'a>,
        bool,
        &Context<'m, 'a>,
    ) -> Result<(), FindingReported>,
}

/// The kinds of the SMI specification 0.6.0, the services to which its splits refer, and the kinds of Open
/// Service Mesh.
const APIS: [Api; 12] = [
    Api {
        group: "access.smi-spec.io",
        kind: "TrafficTarget",
        versions: &[
            ("v1alpha1", false),
            ("v1alpha2", true),
            ("v1alpha3", true),
            ("v1alpha4", true),
        ],
        table: Some(PolicyKind::TrafficTarget),
        what: "a TrafficTarget",
        read: traffic_target::read,
    },
    Api {
        group: "access.smi-spec.io",
        kind: "IdentityBinding",
        versions: &[("v1alpha4", true)],
        table: Some(PolicyKind::IdentityBinding),
        what: "an IdentityBinding",
        read: identity_binding::read,
    },
    Api {
        group: SPECS,
        kind: "HTTPRouteGroup",
        versions: &[
            ("v1alpha1", false),
            ("v1alpha2", false),
            ("v1alpha3", true),
            ("v1alpha4", true),
        ],
        table: Some(PolicyKind::HttpRouteGroup),
        what: "an HTTPRouteGroup",
        read: routes::read_http,
    },
    Api {
        group: SPECS,
        kind: "TCPRoute",
        versions: &[
            ("v1alpha1", false),
            ("v1alpha2", false),
            ("v1alpha3", true),
            ("v1alpha4", true),
        ],
        table: Some(PolicyKind::TcpRoute),
        what: "a TCPRoute",
        read: routes::read_tcp,
    },
    Api {
        group: SPECS,
        kind: "UDPRoute",
        versions: &[("v1alpha4", true)],
        table: None,
        what: "a UDPRoute",
        read: routes::reject_udp,
    },
    Api {
        group: "split.smi-spec.io",
        kind: "TrafficSplit",
        versions: &[("v1alpha1", true), ("v1alpha2", true), ("v1alpha3", true), ("v1alpha4", true)],
        table: Some(PolicyKind::TrafficSplit),
        what: "a TrafficSplit",
        read: traffic_split::read,
    },
    Api {
        group: "",
        kind: "Service",
        versions: &[("v1", true)],
        table: Some(PolicyKind::Service),
        what: "a Service",
        read: service::read,
    },
    Api {
        group: OSM_POLICY,
        kind: "Retry",
        versions: &[("v1alpha1", true)],
        table: Some(PolicyKind::Retry),
        what: "a Retry",
        read: retry::read,
    },
    Api {
        group: OSM_POLICY,
        kind: "UpstreamTrafficSetting",
        versions: &[("v1alpha1", true)],
        table: Some(PolicyKind::UpstreamTrafficSetting),
        what: "an UpstreamTrafficSetting",
        read: upstream_traffic_setting::read,
    },
    Api {
        group: OSM_POLICY,
        kind: "Egress",
        versions: &[("v1alpha1", true)],
        table: Some(PolicyKind::Egress),
        what: "an Egress",
        read: egress::read,
    },
    Api {
        group: OSM_POLICY,
        kind: "IngressBackend",
        versions: &[("v1alpha1", true)],
        table: Some(PolicyKind::IngressBackend),
        what: "an IngressBackend",
        read: ingress_backend::read,
    },
    Api {
        group: OSM_POLICY,
        kind: "Telemetry",
        versions: &[("v1alpha1", true)],
        table: Some(PolicyKind::Telemetry),
        what: "a Telemetry",
        read: telemetry::read,
    },
];

const SPECS: &str = "specs.smi-spec.io";

const OSM_POLICY: &str = "policy.openservicemesh.io";

/// Groups of Open Service Mesh.
const OSM: [&str; 2] = [OSM_POLICY, OSM_CONFIG];

fn is_of_mesh(group: &str) -> bool {
    OSM.contains(&group) || APIS.iter().any(|api| api.group == group && !group.is_empty())
}

/// Groups without any policy of access or traffic.
const INERT: [&str; 10] = [
    "",
    "apiextensions.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "metrics.smi-spec.io",
    "policy",
    "rbac.authorization.k8s.io",
];

/// The meaning of `resource`; an unknown resource is reported.
fn meaning(resource: &Resource<'_>) -> Result<Meaning, FindingReported> {
    let reader = resource.reader;
    if resource.has_no_type() {
        let message = "this is no resource: it has neither `apiVersion` nor `kind`";
        let finding = Finding::error(codes::UNKNOWN_RESOURCE, Some(resource.spot()), message);
        let help = "remove it from the policy folder, if it is no policy";
        return Err(reader.report(finding.label("no resource").help(help)));
    }
    let mut table = resource.table("a resource");
    let kind = table.required("kind", Value::string);
    table.required("apiVersion", Value::string)?;
    let (kind, (group, version)) = (kind?, resource.api_version().ok_or(FindingReported)?);
    if let Some(api) = APIS.iter().find(|api| (api.group, api.kind) == (group, kind)) {
        if let Some((_, has_spec)) = api.versions.iter().find(|(known, _)| *known == version) {
            return Ok(Meaning::Policy(api, *has_spec));
        }
        let message = format!("there is no version `{version}` of {kind}");
        let spot = resource.api_version_spot();
        let finding = Finding::error(codes::UNKNOWN_RESOURCE, Some(spot), message);
        let versions: Vec<_> = api.versions.iter().map(|(version, _)| *version).collect();
        let help = format!("the versions of `{group}` are {}", list(&versions));
        return Err(reader.report(finding.label("unknown version").help(help)));
    }
    if surroundings::is_extension_service(group, kind) {
        return Ok(Meaning::Inert);
    }
    if OSM.contains(&group) {
        let message = format!(
            "{kind} of Open Service Mesh is not served by this version: the mesh ignores all its settings"
        );
        let finding = Finding::error(codes::NOT_SERVED, Some(resource.spot()), message);
        return Err(reader.report(finding.label("not served").help("remove it from the policy")));
    }
    let is_misspelt = closest(kind, kinds_of(group)).is_some();
    if INERT.contains(&group) && !is_misspelt {
        if !workload::runs_pods(group, kind) {
            let message = format!("{kind} is not policy: Ironmesh ignores it");
            let finding = Finding::warning(codes::UNKNOWN_RESOURCE, Some(resource.spot()), message);
            reader.report(finding.label("not read").help("remove it from the policy folder"));
        }
        return Ok(Meaning::Inert);
    }
    let full = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let message = format!("there is no kind `{kind}` of `{full}` in policy");
    let finding = Finding::error(codes::UNKNOWN_RESOURCE, Some(resource.spot()), message);
    Err(reader.report(finding.label("unknown kind").help(advice(group, kind))))
}

fn kinds_of(group: &str) -> impl Iterator<Item = &'static str> {
    APIS.iter().filter(move |api| api.group == group).map(|api| api.kind)
}

/// The known kind most similar to an unknown one.
fn advice(group: &str, kind: &str) -> String {
    if let Some(near) = closest(kind, kinds_of(group)) {
        return did_you_mean(near);
    }
    if let Some(api) = APIS.iter().find(|api| api.kind == kind) {
        let newest = api.versions.last().map_or("", |(version, _)| version);
        return did_you_mean(&format!("apiVersion: {}/{newest}", api.group));
    }
    let kinds: Vec<_> = APIS.iter().map(|api| api.kind).collect();
    format!("the kinds are {}", list(&kinds))
}

fn map<'a>(
    resource: &Resource<'a>,
    api: &Api,
    has_spec: bool,
    context: &Context<'_, 'a>,
) -> Result<Mapped<'a>, FindingReported> {
    let mut made = Made::default();
    let mut table = resource.table(api.what);
    let metadata = table.required("metadata", |value| {
        let mut metadata = value.table("`metadata`")?;
        made.copy(&mut metadata, "name", "name");
        made.copy(&mut metadata, "namespace", "namespace");
        metadata.required("name", |_| Ok(()))
    });
    // An empty key in a service of Kubernetes means nothing.
    let nulls = match api.group {
        "" => Ok(()),
        _ => resource.reject_nulls(&context.parsed.nulls),
    };
    let read = (api.read)(&mut made, resource, has_spec, context);
    metadata.and(nulls).and(read)?;
    Ok(Mapped {
        kind: api.table.ok_or(FindingReported)?,
        at: resource.at(),
        table: made.into_table(),
    })
}
