//! Access to one service port: which accounts may call it, and which policy objects allow them.
//!
//! It lists the grants that verdicts and the compiler evaluate. It never decides what a rule allows.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::allowed_traffic::AllowedTraffic;
use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::grants::Grant;
use ironmesh_catalog::name::ServiceAccount;
use ironmesh_catalog::service::{Mode, Port, Service};
use ironmesh_catalog::snapshot::Snapshot;

use crate::difference::CallerGroup;
use crate::verdict::GrantingRule;
use crate::written_target::written_target;

/// The callers of a service port.
#[derive(Debug)]
pub struct PortAccess<'a> {
    /// The callers that the mode allows without a traffic target; none in strict mode.
    pub open_to: Option<CallerGroup>,
    /// The grants of each account that traffic targets allow some traffic, in the order of the targets. In audit mode, what
    /// strict mode would allow; empty in permissive mode, which ignores targets.
    pub granted: BTreeMap<&'a ServiceAccount, Vec<&'a Arc<Grant>>>,
}

impl<'a> PortAccess<'a> {
    /// The callers of `port` of `service`, which is no subset: a call of a subset is a call of its service.
    pub fn of(snapshot: &'a Snapshot, service: &Service, port: &Port) -> Self {
        let mode = snapshot.mode_of(service);
        let mut granted: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let all = if mode == Mode::Permissive { &[] } else { snapshot.grants.on(&service.account) };
        for grant in all {
            if snapshot.specification.allowing_rules(&grant.target, port).next().is_none() {
                continue;
            }
            let sources = grant.sources.iter();
            for source in sources.filter(|source| service.is_visible_in(&source.namespace)) {
                granted.entry(source).or_default().push(grant);
            }
        }
        Self { open_to: service.open_callers(mode).map(CallerGroup::from), granted }
    }
}

/// The rules of a grant that allow traffic on `port`, in the order of policy.
pub fn granting_rules<'a>(
    snapshot: &'a Snapshot,
    grant: &'a Grant,
    port: &'a Port,
) -> impl Iterator<Item = GrantingRule> {
    let target = Cited::target(written_target(snapshot, grant));
    snapshot.specification.allowing_rules(&grant.target, port).map(move |rule| GrantingRule {
        target: target.clone(),
        rule: rule.cited(),
        traffic: rule.traffic(),
    })
}

/// Whether a grant allows all traffic of `port`.
pub fn allows_everything(snapshot: &Snapshot, grant: &Grant, port: &Port) -> bool {
    let mut rules = snapshot.specification.allowing_rules(&grant.target, port);
    rules.any(|rule| match rule.traffic() {
        AllowedTraffic::EveryRequest | AllowedTraffic::Connections => true,
        AllowedTraffic::Requests { .. } => false,
    })
}
