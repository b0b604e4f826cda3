//! `[[identity_binding]]`: a named set of callers.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::{
    BoundIdentity, IdentityBinding, Labels, Provider, ServiceAccount, SpiffeId, Spot,
};

use super::labels;
use super::part::{Id, Part, Reference, ReferenceTarget};
use crate::codes;
use crate::table::{FindingReported, Table, Value};

/// The keys by which a binding selects callers, for a message that puts the text between two backquotes.
const SCHEMES: &str = "service_account` or `spiffe_identities` or `endpoint_labels";

/// Reads one identity binding into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let account = table.optional("service_account", |value| Ok((value.name()?, value.spot())));
    let identities = table.optional("spiffe_identities", |value| {
        let meaning = "an empty list never means anyone: name an identity, or leave this out";
        let mut seen = BTreeMap::new();
        value.at_least_one(meaning, |item| read_identity(item, &mut seen))
    });
    let labels = table.optional("endpoint_labels", |value| {
        labels::read(value, "no labels never mean any endpoint: name one, or leave this out")
    });
    let trusted_providers = table.optional("trusted_providers", |value| {
        // Join records and lists in policy are always trusted.
        let words: Vec<_> = Provider::external().map(|one| (one.name(), one)).collect();
        let providers = value
            .at_least_one("leave it out to trust none", |item| item.word("provider", &words))?;
        Ok((BTreeSet::from_iter(providers), value))
    });
    let trusted_providers = trusted_providers.and_then(|given| match given {
        Some((_, value)) if table.get("endpoint_labels").is_none() => Err(without_labels(value)),
        given => Ok(given.map(|(providers, _)| providers).unwrap_or_default()),
    });
    let both = match (table.get("service_account"), table.get("endpoint_labels")) {
        (Some(account), Some(labels)) => Err(reject_account_with_labels(account, labels)),
        (Some(_), None) | (None, Some(_)) => Ok(()),
        (None, None) if table.get("spiffe_identities").is_some() => Ok(()),
        (None, None) => Err(table.missing(SCHEMES)),
    };
    if let Ok(id) = id {
        let account = account.map(|account| {
            account.map(|(name, spot)| (ServiceAccount::new(id.namespace.clone(), name), spot))
        });
        if let Ok(Some((account, spot))) = &account {
            let referenced = ReferenceTarget::Account(account.clone());
            part.references.push(Reference { referenced, spot: spot.clone() });
        }
        let binding = binding(&id, account, identities, labels, trusted_providers, both);
        part.identity_bindings.push(&id, binding);
    }
    table.finish();
}

fn binding(
    id: &Id,
    account: Result<Option<(ServiceAccount, Spot)>, FindingReported>,
    identities: Result<Option<Vec<BoundIdentity>>, FindingReported>,
    labels: Result<Option<Labels>, FindingReported>,
    trusted_providers: Result<BTreeSet<Provider>, FindingReported>,
    both: Result<(), FindingReported>,
) -> Result<IdentityBinding, FindingReported> {
    both?;
    Ok(IdentityBinding {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        account: account?.map(|(account, _)| account),
        identities: identities?.unwrap_or_default(),
        endpoint_labels: labels?,
        trusted_providers: trusted_providers?,
        spot: id.spot.clone(),
    })
}

/// SMI: a binding selects by labels or names an account.
fn reject_account_with_labels(account: Value<'_>, labels: Value<'_>) -> FindingReported {
    let message = "an identity binding has `service_account` or `endpoint_labels`, not both";
    let finding = labels.error(codes::INVALID_VALUE, message).label("one too many");
    let finding = finding.related(account.spot(), "the account is named here");
    labels.report(finding.help("write two bindings, and name both where they are used"))
}

fn without_labels(trusted_providers: Value<'_>) -> FindingReported {
    let message = "`trusted_providers` needs `endpoint_labels`";
    let finding = trusted_providers.error(codes::INVALID_VALUE, message).label("without effect");
    let help = "it limits whose labels `endpoint_labels` selects by: add these, or remove it";
    trusted_providers.report(finding.help(help))
}

fn read_identity(
    item: Value<'_>,
    seen: &mut BTreeMap<SpiffeId, Spot>,
) -> Result<BoundIdentity, FindingReported> {
    let text = item.string()?;
    let id = SpiffeId::new(text).map_err(|invalid| {
        let message = format!("a SPIFFE ID {}: `{text}`", invalid.problem);
        let finding = item.error(codes::INVALID_VALUE, message).label("not a SPIFFE ID");
        item.report(finding.help("write one as in `spiffe://mesh.internal/ns/shop/sa/bookstore`"))
    })?;
    if let Some(first) = seen.insert(id.clone(), item.spot()) {
        let finding = item.error(codes::DUPLICATE_NAME, format!("identity `{id}` is given twice"));
        return Err(item.report(finding.label("given again").related(first, "first given here")));
    }
    Ok(BoundIdentity { id, spot: item.spot() })
}
