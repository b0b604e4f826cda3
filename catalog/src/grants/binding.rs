//! Resolution of one identity binding to service accounts.

use std::collections::{BTreeMap, BTreeSet};

use super::{GrantInputs, LabelsByService};
use crate::codes::UNTRUSTED_LABELS;
use crate::finding::{Code, Finding};
use crate::identity::TrustDomain;
use crate::labels::Labels;
use crate::name::ServiceAccount;
use crate::object_ref::ObjectRef;
use crate::policy::{BoundIdentity, IdentityBinding};
use crate::policy_object::PolicyObject;
use crate::service_labels::{ReportedLabels, ServiceLabels};
use crate::specification::MeshSpecification;

/// An identity that no caller in the mesh can have.
const STRANGE_IDENTITY: Code = Code(408);

/// Labels that only some of an account's endpoints have.
const LABELS_OF_A_PART: Code = Code(409);

/// The accounts of `binding`, given the labels of the services in its namespace. Its parts without an account
/// get `findings`.
pub(super) fn accounts(
    inputs: &GrantInputs<'_>,
    binding: &IdentityBinding,
    labels_by_service: &LabelsByService,
    findings: &mut Vec<Finding>,
) -> BTreeSet<ServiceAccount> {
    let mut accounts: BTreeSet<ServiceAccount> = binding.account.iter().cloned().collect();
    for identity in &binding.identities {
        match inputs.trust_domain.account(&identity.id) {
            Some(account) => {
                accounts.insert(account);
            }
            None => {
                findings.push(strange(inputs.trust_domain, identity).object(object_of(binding)));
            }
        }
    }
    if let Some(labels) = &binding.endpoint_labels {
        accounts.extend(labelled(
            inputs.specification,
            binding,
            labels,
            labels_by_service,
            findings,
        ));
    }
    accounts
}

/// The accounts of the binding's namespace all of whose endpoints, and all of whose proxies, have the
/// labels. Only labels that operators or the binding's trusted providers set are considered: a registrant
/// that no operator trusts neither adds a grant nor removes one.
///
/// A certificate identifies an account, not an endpoint: a grant for some endpoints of an account would apply
/// to all of them. So accounts with the labels on some endpoints only are excluded, with a finding.
fn labelled(
    specification: &MeshSpecification,
    binding: &IdentityBinding,
    labels: &Labels,
    labels_by_service: &LabelsByService,
    findings: &mut Vec<Finding>,
) -> Vec<ServiceAccount> {
    let mut by_account: BTreeMap<&ServiceAccount, Vec<&ServiceLabels>> = BTreeMap::new();
    for (name, reported) in
        labels_by_service.iter().filter(|(name, _)| name.namespace == binding.namespace)
    {
        if let Some(service) = specification.services.get(name) {
            by_account.entry(&service.account).or_default().push(reported);
        }
    }
    let trusted = &binding.trusted_providers;
    let mut bound = Vec::new();
    for (account, services) in by_account {
        let places: Vec<_> = services.iter().flat_map(|one| one.trusted_by(trusted)).collect();
        match places.iter().filter(|place| place.include(labels)).count() {
            0 => {
                let ignored = services.iter().flat_map(|one| one.ignored_by(trusted));
                let ignored: Vec<_> = ignored.filter(|one| one.labels.include(labels)).collect();
                findings.extend(untrusted(binding, labels, account, &ignored));
            }
            with if with == places.len() => bound.push(account.clone()),
            with => findings.push(in_part(binding, labels, account, with, places.len())),
        }
    }
    bound
}

/// The finding about an account whose endpoints have the labels only by reports that do not count.
fn untrusted(
    binding: &IdentityBinding,
    labels: &Labels,
    account: &ServiceAccount,
    ignored: &[&ReportedLabels],
) -> Option<Finding> {
    let first = ignored.first()?;
    let from = if ignored.iter().all(|one| one.selected_by_tag) {
        "instances added by a tag"
    } else {
        "untrusted providers"
    };
    let message = format!(
        "identity binding `{}/{}` does not select account `{account}`: labels `{labels}` come only from \
         {from} ({} endpoint{})",
        binding.namespace,
        binding.name,
        ignored.len(),
        if ignored.len() == 1 { "" } else { "s" }
    );
    let label = if first.selected_by_tag {
        format!("labels of {} endpoints added by a tag never count", first.provider)
    } else {
        format!("{} is not trusted", first.provider)
    };
    let by_record = "enroll its proxies with the labels (`ironmesh proxy bootstrap --label …`)";
    let by_provider = ignored.iter().find(|one| !one.selected_by_tag).map(|one| {
        format!(
            "; or, if everyone who may write to {0} may receive what this binding grants: \
             `trusted_providers = [\"{0}\"]`",
            one.provider
        )
    });
    let help = format!("{by_record}{}", by_provider.unwrap_or_default());
    Some(
        Finding::warning(UNTRUSTED_LABELS, Some(binding.spot.clone()), message)
            .object(object_of(binding))
            .label(label)
            .help(help),
    )
}

fn object_of(binding: &IdentityBinding) -> ObjectRef {
    let name = format!("{}/{}", binding.namespace, binding.name);
    ObjectRef::Policy(PolicyObject { kind: "identity_binding".into(), name })
}

fn strange(trust_domain: &TrustDomain, identity: &BoundIdentity) -> Finding {
    let id = &identity.id;
    let message = format!("no caller can have the identity `{id}` in this mesh");
    Finding::warning(STRANGE_IDENTITY, Some(identity.spot.clone()), message)
        .label("no service account")
        .help(format!(
            "the mesh's own identities are `{}…`, and no other trust domain is trusted",
            trust_domain.workload_prefix()
        ))
}

fn in_part(
    binding: &IdentityBinding,
    labels: &Labels,
    account: &ServiceAccount,
    with: usize,
    all: usize,
) -> Finding {
    let message = format!(
        "identity binding `{}/{}` leaves out account `{account}`: only {with} of its {all} endpoints \
         have the labels `{labels}`",
        binding.namespace, binding.name
    );
    Finding::warning(LABELS_OF_A_PART, Some(binding.spot.clone()), message)
        .object(object_of(binding))
        .label("not of all endpoints")
        .help("endpoints of one account have one identity: give those with the labels an account of their own")
}
