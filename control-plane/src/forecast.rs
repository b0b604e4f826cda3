//! The forecast of a policy change: compares two snapshots, and what each proxy would have in each. It changes
//! nothing that runs.

mod findings;
pub mod offline;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;
use ironmesh_analysis::Difference;
use ironmesh_analysis::verdict::VerdictBasis;
use ironmesh_api::{FieldChange, FindingView, Plan, PlannedProxy, ProxyGroup, ResourceChange};
use ironmesh_catalog::{
    CertificateHistory, Inputs, MeshSpecification, Proxy, Records, Removals, Secret,
    ServiceAccount, ServiceCertificate, ServicePort, Snapshot,
};
use ironmesh_providers::{GuardedEndpoints, discover};
use ironmesh_xds_compile::resource_difference::{ResourceDifference, difference};
use ironmesh_xds_compile::{Compiled, Compiler};
use ironmesh_xds_wire::{Resource, ResourceType, Version};
use jiff::Timestamp;
use serde_json::Value;

use crate::sidecars;

/// A proxy whose changes are forecast.
#[derive(Debug, Clone)]
pub struct ForecastProxy {
    /// The proxy, with what it reported about itself last.
    pub proxy: Proxy,
    /// Whether it has a stream.
    pub connected: bool,
}

/// The forecast was cancelled.
#[derive(Debug, thiserror::Error)]
#[error("the plan was cancelled: the client closed its connection")]
pub struct ForecastCancelled;

/// Forecasts what would change for the mesh of `before` and for these proxies if `specification` were the policy.
///
/// The comparison is with the mesh in a settled state: connected proxies have ACKed what they are sent. (A port that
/// was not active in a proxy before is not assumed to be active in the new state either.) Without a control plane,
/// under [`VerdictBasis::PolicyOnly`], the proxies are examples and get no findings. `is_wanted` is called before each proxy:
/// it cancels the forecast.
///
/// # Errors
///
/// Fails if `is_wanted` returns false.
pub fn forecast(
    before: &Arc<Snapshot>,
    specification: &Arc<MeshSpecification>,
    proxies: &[ForecastProxy],
    basis: VerdictBasis,
    with_fields: bool,
    is_wanted: &dyn Fn() -> bool,
) -> Result<Plan, ForecastCancelled> {
    let compiled = |compiler: &mut Compiler| -> Result<Vec<_>, ForecastCancelled> {
        let compiled = proxies.iter().map(|known| {
            if is_wanted() {
                Ok(sidecars::compile(compiler, &known.proxy))
            } else {
                Err(ForecastCancelled)
            }
        });
        compiled.collect()
    };
    let mut compiler = Compiler::new(Arc::clone(before));
    let old = compiled(&mut compiler)?;
    drop(compiler);

    let inputs = with_policy(before.inputs(), specification);
    let mut compiler = Compiler::new(Arc::new(before.revise(inputs.clone())));
    let mut new = compiled(&mut compiler)?;
    if let Some(records) = settled(compiler.snapshot(), proxies, &old, &new) {
        let guarded = GuardedEndpoints::of(&inputs.discovered);
        let discovered = discover(specification, &records, &guarded);
        let settled = compiler.snapshot().revise(Inputs { records, discovered, ..inputs });
        compiler.update(Arc::new(settled));
        new = compiled(&mut compiler)?;
    }
    let after = compiler.snapshot();

    let findings = |snapshot: &Snapshot, compiled: &[Compiled]| -> Vec<FindingView> {
        if basis == VerdictBasis::PolicyOnly {
            return Vec::new();
        }
        let of_proxies = compiled.iter().flat_map(|one| &one.findings);
        let of_calls = [snapshot.outages(|_| false), snapshot.ports_without_listener()].concat();
        snapshot.findings().chain(of_proxies).chain(&of_calls).map(Into::into).collect()
    };
    let found = findings::differing(&findings(before, &old), &findings(after, &new));
    let groups = groups(proxies, &old, &new, basis, with_fields);
    let affected: usize = groups.iter().map(|group| group.proxies.len()).sum();
    Ok(Plan {
        from: before.specification.revision.to_string(),
        to: specification.revision.to_string(),
        difference: Difference::between(before, after),
        removals: Removals::between(&before.specification, specification),
        unaffected: proxies.len() - affected,
        proxies: groups,
        findings_new: found.new,
        findings_gone: found.gone,
        findings_changed: found.changed,
    })
}

/// Adds the differences between the findings of two sets of documents to a plan.
pub fn add_findings(plan: &mut Plan, before: &[FindingView], after: &[FindingView]) {
    let found = findings::differing(before, after);
    plan.findings_new.extend(found.new);
    plan.findings_gone.extend(found.gone);
    plan.findings_changed.extend(found.changed);
}

/// The inputs of the same mesh under a different policy.
fn with_policy(inputs: Inputs, specification: &Arc<MeshSpecification>) -> Inputs {
    let accounts = Snapshot::accounts_served(specification, &inputs.records);
    let certificates = accounts.into_iter().map(|account| {
        let known = inputs.certificates.get(&account).cloned();
        (account.clone(), known.unwrap_or_else(|| placeholder_certificate(account)))
    });
    Inputs {
        certificates: certificates.collect::<OrdMap<_, _>>(),
        discovered: discover(
            specification,
            &inputs.records,
            &GuardedEndpoints::of(&inputs.discovered),
        ),
        specification: Arc::clone(specification),
        ..inputs
    }
}

/// A placeholder for a certificate that is issued when the policy becomes active.
pub fn placeholder_certificate(account: ServiceAccount) -> Arc<ServiceCertificate> {
    Arc::new(ServiceCertificate {
        chain: format!("a certificate that is yet to be issued for {account}"),
        key: Secret::new(String::new()),
        serial: String::new(),
        not_before: Timestamp::MIN,
        not_after: Timestamp::MAX,
        renew_at: Timestamp::MAX,
        history: CertificateHistory::default(),
        account,
    })
}

/// The records after connected proxies have ACKed what they are sent; none if they do not change.
fn settled(
    snapshot: &Snapshot,
    proxies: &[ForecastProxy],
    old: &[Compiled],
    new: &[Compiled],
) -> Option<Records> {
    let mut settled = snapshot.inputs().records;
    let mut differs = false;
    for ((known, old), new) in proxies.iter().zip(old).zip(new) {
        let id = known.proxy.record.id;
        let Some(record) = snapshot.record(id).filter(|_| known.connected) else {
            continue;
        };
        let mut record = (**record).clone();
        let before = (record.participation.clone(), record.ports_without_backend.clone());
        record.participation.0.retain(|port| new.serves.0.contains(port));
        record.participation.0.extend(new.serves.0.difference(&old.serves.0).cloned());
        // A port whose application is known has a backend.
        record.ports_without_backend.0.retain(|(service, port)| {
            let behind = (id, ServicePort::new(service.clone(), *port));
            !snapshot.local_endpoints.contains_key(&behind)
        });
        if (&record.participation, &record.ports_without_backend) != (&before.0, &before.1) {
            differs = true;
            settled.insert(record.id, Arc::new(record));
        }
    }
    differs.then_some(settled)
}

/// The content that one group of proxies shares: the changed resources, the drained connections and, if wanted, the
/// versions of each resource.
type GroupKey = (Vec<(ResourceType, Arc<str>, &'static str, Versions)>, Vec<String>);

type Versions = Option<(Option<Version>, Option<Version>)>;

/// Groups the proxies that would be sent something by what that is. Listeners have a different address on each
/// machine, and still belong to one group.
fn groups(
    proxies: &[ForecastProxy],
    old: &[Compiled],
    new: &[Compiled],
    basis: VerdictBasis,
    with_fields: bool,
) -> Vec<ProxyGroup> {
    let mut groups: BTreeMap<GroupKey, ProxyGroup> = BTreeMap::new();
    for ((known, old), new) in proxies.iter().zip(old).zip(new) {
        let differences = difference(&old.resources, &new.resources);
        if differences.is_empty() {
            continue;
        }
        let version =
            |resource: &Option<Arc<Resource>>| resource.as_ref().map(|resource| resource.version());
        let key = differences.iter().map(|one| {
            let versions = with_fields.then(|| (version(&one.before), version(&one.after)));
            (one.resource_type, Arc::clone(&one.name), how(one), versions)
        });
        let drains: Vec<_> = differences.iter().flat_map(ResourceDifference::drains).collect();
        let key = (key.collect(), drains.clone());
        let group = groups.entry(key).or_insert_with(|| ProxyGroup {
            proxies: Vec::new(),
            resources: differences.iter().map(|one| change(one, with_fields)).collect(),
            drains,
        });
        let record = &known.proxy.record;
        group.proxies.push(PlannedProxy {
            id: (basis == VerdictBasis::Mesh).then_some(record.id),
            name: (basis == VerdictBasis::Mesh).then(|| record.display_name()),
            services: record.services.clone(),
            connected: known.connected,
        });
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_cached_key(|group| {
        group.proxies.first().map(|proxy| (proxy.services.clone(), proxy.id))
    });
    groups
}

fn how(difference: &ResourceDifference) -> &'static str {
    match (&difference.before, &difference.after) {
        (None, _) => "added",
        (_, None) => "removed",
        _ => "changed",
    }
}

fn change(difference: &ResourceDifference, with_fields: bool) -> ResourceChange {
    let json = |resource: &Option<Arc<Resource>>| {
        resource.as_ref().filter(|_| with_fields).map(|resource| resource.to_json())
    };
    let mut fields = Vec::new();
    differing(String::new(), json(&difference.before), json(&difference.after), &mut fields);
    ResourceChange {
        resource_type: difference.resource_type.to_string(),
        name: difference.name.to_string(),
        change: how(difference).to_owned(),
        fields,
    }
}

/// Appends the fields in which two values differ, at any depth.
fn differing(at: String, before: Option<Value>, after: Option<Value>, into: &mut Vec<FieldChange>) {
    match (before, after) {
        (before, after) if before == after => {}
        (Some(Value::Object(mut before)), Some(Value::Object(mut after))) => {
            let keys: BTreeSet<_> = before.keys().chain(after.keys()).cloned().collect();
            for key in keys {
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                differing(at, before.remove(&key), after.remove(&key), into);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            let longest = before.len().max(after.len());
            let (mut before, mut after) = (before.into_iter(), after.into_iter());
            for n in 0..longest {
                differing(format!("{at}/{n}"), before.next(), after.next(), into);
            }
        }
        (before, after) => into.push(FieldChange { at, before, after }),
    }
}
