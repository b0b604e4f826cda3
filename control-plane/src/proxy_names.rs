//! The names of newly enrolled proxies: the requested one, if it is free, or default names.

use std::collections::BTreeSet;

use ironmesh_catalog::{JoinRecord, ProxyId, ProxyName, Records, ServiceName};
use jiff::Timestamp;

/// The most digits of a number that is added to a name.
const MAX_DIGITS: usize = 20;

/// `count` names `<service>-<n>` that no record has, with the lowest numbers.
pub(crate) fn default_names(
    service: &ServiceName,
    count: usize,
    records: &Records,
) -> Result<Vec<ProxyName>, String> {
    let used: BTreeSet<_> = records.values().filter_map(|record| record.name.as_ref()).collect();
    let mut names = Vec::with_capacity(count);
    for number in 1.. {
        if names.len() == count {
            break;
        }
        let name = format!("{}-{number}", service.name).parse::<ProxyName>();
        let name = name.map_err(|error| error.to_string())?;
        if !used.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The name, unless a proxy in use has it, or it could be mistaken for an id.
pub(crate) fn free_name(
    name: &ProxyName,
    records: &Records,
    now: Timestamp,
) -> Result<ProxyName, String> {
    if name.as_str().parse::<ProxyId>().is_ok() {
        return Err(format!(
            "the name `{name}` is a UUID, which could be mistaken for the id of a proxy: choose a different name"
        ));
    }
    let mut in_use = records.values().filter(|record| record.is_in_use(now));
    match in_use.find(|record| record.name.as_ref() == Some(name)) {
        None => Ok(name.clone()),
        Some(other) => Err(format!(
            "the name `{name}` belongs to the proxy {} at {}: choose a different name, or revoke that proxy first",
            other.id, other.mesh_address
        )),
    }
}

/// The name, or the first of `NAME-2`, `NAME-3` and so on, that no proxy in use has. A machine chooses its own name, which
/// must not be mistaken for another proxy or for an id.
pub(crate) fn name_like(wanted: &ProxyName, records: &Records, now: Timestamp) -> ProxyName {
    if let Ok(name) = free_name(wanted, records, now) {
        return name;
    }
    let used: BTreeSet<_> = records
        .values()
        .filter(|record| record.is_in_use(now))
        .filter_map(|record| record.name.as_ref())
        .collect();
    // Room for the number.
    let stem: String =
        wanted.as_str().chars().take(ProxyName::MAX_LENGTH - MAX_DIGITS - 1).collect();
    let numbered = (2_u64..).map(|number| format!("{stem}-{number}").parse::<ProxyName>());
    let mut free = numbered.flatten().filter(|name| !used.contains(name));
    free.next().unwrap_or_else(|| wanted.clone())
}

/// The new records, and those of the proxies that lose their names to them: their certificates have expired. Such a proxy
/// may renew, or the clock is wrong; it is then shown by its id, since two proxies in use never have one name.
pub(crate) fn with_unnamed(
    new: Vec<JoinRecord>,
    present: &Records,
    now: Timestamp,
) -> Vec<JoinRecord> {
    let is_new = |id: ProxyId| new.iter().any(|record| record.id == id);
    let named = new.iter().filter(|record| record.revoked.is_none());
    let names: BTreeSet<_> = named.filter_map(|record| record.name.as_ref()).collect();
    let former = present
        .values()
        .filter(|record| record.revoked.is_none() && !record.is_in_use(now) && !is_new(record.id));
    let former = former.filter(|record| record.name.as_ref().is_some_and(|n| names.contains(n)));
    let unnamed = former.map(|record| JoinRecord { name: None, ..(**record).clone() });
    let unnamed: Vec<_> = unnamed.collect();
    [new, unnamed].concat()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use ironmesh_catalog::Revocation;
    use uuid::Uuid;

    use super::*;

    fn records(names: &[Option<&str>]) -> Records {
        let record = |(name, number): (Option<&str>, u128)| {
            let id = ProxyId(Uuid::from_u128(number));
            let address = SocketAddr::from(([10, 0, 0, 1], 15003));
            let services = vec!["shop/web".parse().unwrap()];
            let record = JoinRecord {
                name: name.map(|name| name.parse().unwrap()),
                ..JoinRecord::new(id, services, address, Timestamp::now(), Timestamp::MAX)
            };
            (id, Arc::new(record))
        };
        names.iter().copied().zip(1..).map(record).collect()
    }

    #[test]
    fn default_names_have_the_lowest_free_numbers() {
        let records = records(&[Some("web-2"), None, Some("other-1")]);
        let names = default_names(&"shop/web".parse().unwrap(), 3, &records).unwrap();
        let names: Vec<_> = names.iter().map(ProxyName::as_str).collect();
        assert_eq!(names, ["web-1", "web-3", "web-4"]);
    }

    #[test]
    fn name_is_free_unless_a_proxy_in_use_has_it() {
        let (name, now) = ("web-1".parse().unwrap(), Timestamp::now());
        let records = records(&[Some("web-1")]);
        let error = free_name(&name, &records, now).unwrap_err();
        assert!(error.contains("at 10.0.0.1:15003"), "{error}");
        assert_eq!(
            free_name(&"web-2".parse().unwrap(), &records, now),
            Ok("web-2".parse().unwrap())
        );
        let revoke = |(id, record): (&ProxyId, &Arc<JoinRecord>)| {
            let revoked = Some(Revocation::by_operator(now, None));
            (*id, Arc::new(JoinRecord { revoked, ..(**record).clone() }))
        };
        let revoked: Records = records.iter().map(revoke).collect();
        assert_eq!(free_name(&name, &revoked, now), Ok(name));
        let id = "6b1f2c1e-0b5c-4c62-9b8e-3f5a0f8f7c11".parse().unwrap();
        assert!(free_name(&id, &records, now).unwrap_err().contains("is a UUID"));
    }

    #[test]
    fn machine_with_a_taken_name_gets_a_number() {
        let now = Timestamp::now();
        let records = records(&[Some("vm1"), Some("vm1-2")]);
        let name = |wanted: &str| name_like(&wanted.parse().unwrap(), &records, now).to_string();
        assert_eq!((name("vm2"), name("vm1")), ("vm2".to_owned(), "vm1-3".to_owned()));
        let long = "v".repeat(ProxyName::MAX_LENGTH);
        assert_eq!(name(&long), long);
        // An id is no name.
        let id = "6b1f2c1e-0b5c-4c62-9b8e-3f5a0f8f7c11";
        assert_eq!(name(id), format!("{id}-2"));
    }
}
