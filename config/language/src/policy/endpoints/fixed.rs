//! `static` of `[service.endpoints]`: the endpoints that policy lists itself.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ironmesh_catalog::{Finding, Port, Spot, StaticEndpoint};

use crate::codes;
use crate::policy::{labels, locality};
use crate::table::{FindingReported, Value};

/// Reads the list of a service with `ports`, which are `None` if they are not known.
pub(super) fn read(
    value: Value<'_>,
    ports: Option<&[Port]>,
) -> Result<Vec<StaticEndpoint>, FindingReported> {
    let meaning = "leave `endpoints` out to use the proxies enrolled for this service";
    let mut seen = BTreeMap::new();
    value.at_least_one(meaning, |item| read_endpoint(item, ports, &mut seen))
}

/// The address of an endpoint's application, and its port if that is known.
type Place = (IpAddr, Option<u16>);

fn read_endpoint(
    item: Value<'_>,
    ports: Option<&[Port]>,
    seen: &mut BTreeMap<Place, Spot>,
) -> Result<StaticEndpoint, FindingReported> {
    let mut table = item.table("an endpoint")?;
    let address = table.required("address", |value| Ok((read_address(value)?, value.spot())));
    let port = table.optional("port", |value| super::read_port(value, ports));
    let weight = table.optional("weight", |value| value.integer(codes::WEIGHTS, 1..=u32::MAX));
    let labels = table
        .optional("labels", |value| labels::read(value, "leave `labels` out where there are none"));
    let locality = table.optional("locality", locality::read);
    table.finish();

    let (address, spot) = address?;
    let port = port?;
    let target = match ports {
        Some([only]) => Some(only.target),
        _ => None,
    };
    if let Some(first) = seen.insert((address, port.or(target)), spot.clone()) {
        let message = format!("endpoint `{address}` is given twice with the same port");
        let finding = Finding::error(codes::DUPLICATE_NAME, Some(spot), message);
        return Err(item.report(finding.label("given again").related(first, "first given here")));
    }
    let (weight, labels) = (weight?.unwrap_or(1), labels?.unwrap_or_default());
    let locality = locality?.unwrap_or_default();
    Ok(StaticEndpoint { address, port, weight, labels, locality, spot })
}

fn read_address(value: Value<'_>) -> Result<IpAddr, FindingReported> {
    let address: IpAddr = value.parsed("an IP address")?;
    if address.is_unspecified() || address.is_multicast() {
        let message = format!("`address` must be the address of one machine: `{address}`");
        let finding = value.error(codes::INVALID_VALUE, message).label("unspecified or multicast");
        return Err(value.report(finding));
    }
    Ok(address)
}
