//! Workloads of Kubernetes. They are no policy, but name the account of the pods behind a service.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Resource;

/// Pods that are created from one template.
#[derive(Debug)]
pub(crate) struct Workload<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
    /// The account of the pods, if one is named.
    pub(super) account: Option<&'a Spanned<DeValue<'a>>>,
    /// The numbers of the named ports.
    pub(super) ports: BTreeMap<&'a str, &'a Spanned<DeValue<'a>>>,
}

/// Whether resources of this kind run pods.
pub(super) fn runs_pods(group: &str, kind: &str) -> bool {
    match group {
        "" => matches!(kind, "Pod" | "ReplicationController"),
        "apps" => matches!(kind, "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet"),
        "batch" => kind == "Job",
        _ => false,
    }
}

/// The workload of `resource`, if it is one.
pub(super) fn read<'a>(resource: &Resource<'a>) -> Option<Workload<'a>> {
    let (group, _) = resource.api_version()?;
    let kind = resource.kind().filter(|kind| runs_pods(group, kind))?;
    let template: &[&str] = if kind == "Pod" { &[] } else { &["spec", "template"] };
    let below = |keys: [&str; 2]| {
        let keys: Vec<_> = template.iter().copied().chain(keys).collect();
        resource.below(&keys)
    };
    let pod = resource.below(&[template, &["spec"]].concat())?;
    let mut ports = BTreeMap::new();
    for container in tables(pod.get("containers")) {
        for port in tables(container.get("ports")) {
            let name = port.get("name").and_then(|name| name.get_ref().as_str());
            ports.extend(name.zip(port.get("containerPort")));
        }
    }
    Some(Workload {
        namespace: resource.namespace(),
        name: resource.name()?,
        labels: below(["metadata", "labels"]).map(strings).unwrap_or_default(),
        account: pod.get("serviceAccountName").or_else(|| pod.get("serviceAccount")),
        ports,
    })
}

impl<'a> Workload<'a> {
    /// The account of the pods: Kubernetes runs pods without one as `default`.
    pub(crate) fn account_name(&self) -> Option<&'a str> {
        match self.account {
            Some(account) => account.get_ref().as_str(),
            None => Some("default"),
        }
    }

    /// Whether the selector of a service in `namespace` selects this workload.
    pub(super) fn is_behind(&self, namespace: &str, selector: &BTreeMap<&str, &str>) -> bool {
        // A service without a selector has endpoints that are listed elsewhere.
        self.namespace == namespace
            && !selector.is_empty()
            && selector.iter().all(|(label, value)| self.labels.get(label) == Some(value))
    }
}

/// The strings of a table.
pub(super) fn strings<'t>(table: &'t DeTable<'_>) -> BTreeMap<&'t str, &'t str> {
    let entries = table.iter();
    entries.filter_map(|(key, value)| Some((&**key.get_ref(), value.get_ref().as_str()?))).collect()
}

/// The tables of a list.
fn tables<'a>(list: Option<&'a Spanned<DeValue<'a>>>) -> impl Iterator<Item = &'a DeTable<'a>> {
    let items = list.and_then(|list| list.get_ref().as_array());
    items.into_iter().flatten().filter_map(|item| item.get_ref().as_table())
}
