//! Pure clients: workloads that call services and serve none.
//!
//! Kubernetes has no Service for a workload without callers. Ironmesh has a service without ports for it, for
//! which its proxy is enrolled.

use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::writing::Table;
use crate::kinds::PolicyKind;
use crate::yaml::Workload;

/// Services for the `workloads` whose accounts may call others by `tables`, and which have no service there.
pub(super) fn services_of_workloads<'a>(
    tables: &[Table<'a>],
    workloads: &[Workload<'a>],
) -> Vec<Table<'a>> {
    let services = || tables.iter().filter(|table| table.kind == PolicyKind::Service);
    let served: BTreeSet<_> = services()
        .map(|table| {
            (table.namespace, string(&table.entries, "service_account").unwrap_or(table.name))
        })
        .collect();
    let used_names: BTreeSet<_> = services().map(|table| (table.namespace, table.name)).collect();
    let callers: BTreeSet<_> = tables.iter().flat_map(callers).collect();

    let mut clients = BTreeMap::new();
    for workload in workloads {
        let Some(account) = workload.account_name() else { continue };
        let wanted = (workload.namespace, account);
        let is_referenced = callers.contains(&wanted) && !served.contains(&wanted);
        // The name has no meaning for policy, and the account has it by default.
        let names = [account, workload.name];
        let name =
            names.into_iter().find(|name| !used_names.contains(&(workload.namespace, *name)));
        if let (true, Some(name)) = (is_referenced, name) {
            let known = clients.entry(wanted).or_insert(name);
            *known = name.min(known);
        }
    }
    clients
        .into_iter()
        .map(|((namespace, account), name)| client(namespace, account, name))
        .collect()
}

fn client<'a>(namespace: &'a str, account: &'a str, name: &'a str) -> Table<'a> {
    let mut entries = DeTable::new();
    let mut put = |key: &'static str, value: &'a str| {
        let value = DeValue::String(value.into());
        entries.insert(Spanned::new(0..0, key.into()), Spanned::new(0..0, value));
    };
    put("name", name);
    put("namespace", namespace);
    if account != name {
        put("service_account", account);
    }
    let remarks = vec!["A pure client: there is no Service for it in the input.".to_owned()];
    Table { kind: PolicyKind::Service, namespace, name, entries, remarks }
}

/// The accounts to which a traffic target grants access.
fn callers<'t, 'a>(table: &'t Table<'a>) -> Vec<(&'t str, &'t str)> {
    let sources = match table.kind {
        PolicyKind::TrafficTarget => table.entries.get("sources").map(Spanned::get_ref),
        _ => None,
    };
    let sources = sources.and_then(DeValue::as_array).into_iter().flatten();
    let caller = |source: &'t Spanned<DeValue<'a>>| {
        let source = source.get_ref().as_table()?;
        let namespace = string(source, "namespace").unwrap_or(table.namespace);
        Some((namespace, string(source, "name")?))
    };
    sources.filter_map(caller).collect()
}

fn string<'t>(table: &'t DeTable<'_>, key: &str) -> Option<&'t str> {
    table.get(key)?.get_ref().as_str()
}
