//! `[[retry]]`: the kind Retry of Open Service Mesh: retries of the calls of one account to some services.

use ironmesh_catalog::{Name, Retry, RetryDestination, ServiceName};

use super::http_route::{Keys, read_account, read_retries};
use super::part::{Id, Part, Reference, ReferenceTarget};
use crate::table::{FindingReported, Table, Value};

/// Reads one retry into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let home = id.as_ref().ok().map(|id| &id.namespace);
    let mut references = Vec::new();
    let source = table.required("source", |value| read_account(value, home, &mut references));
    let destinations = table.required("destinations", |value| {
        let meaning = "name the services whose calls are tried again";
        value.at_least_one(meaning, |item| read_destination(item, home, &mut references))
    });
    let retries = table.required("retry_policy", |value| {
        let mut table = value.table("a retry policy")?;
        let retries = read_retries(&mut table, &Keys::OSM);
        table.finish();
        retries
    });
    if let Ok(id) = id {
        part.references.extend(references);
        let retry = match (source, destinations, retries) {
            (Ok(source), Ok(destinations), Ok(retries)) => Ok(Retry {
                namespace: id.namespace.clone(),
                name: id.name.clone(),
                source,
                destinations,
                retries,
                spot: id.spot.clone(),
            }),
            _ => Err(FindingReported),
        };
        part.retries.push(&id, retry);
    }
    table.finish();
}

fn read_destination(
    item: Value<'_>,
    home: Option<&Name>,
    references: &mut Vec<Reference>,
) -> Result<RetryDestination, FindingReported> {
    let mut table = item.table("a destination of a retry")?;
    let kind =
        table.optional("kind", |value| value.word("kind of destination", &[("Service", ())]));
    let name = table.required("name", |value| Ok((value.name()?, value.spot())));
    let namespace = table.optional("namespace", Value::name);
    table.finish();
    let (name, spot) = name?;
    let namespace = namespace?.or_else(|| home.cloned()).ok_or(FindingReported)?;
    let service = ServiceName::new(namespace, name);
    references.push(Reference {
        referenced: ReferenceTarget::Service(service.clone()),
        spot: spot.clone(),
    });
    kind.map(|_| RetryDestination { service, spot })
}
