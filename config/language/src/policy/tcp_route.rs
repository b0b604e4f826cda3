//! `[[tcp_route]]`: connections to these ports, with any content.

use ironmesh_catalog::TcpRoute;

use super::part::{Id, Part};
use crate::table::{Table, Value};

/// Reads one TCP route into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let ports = table.optional("matches", |value| {
        let mut matches = value.table("`matches` of a TCP route")?;
        let ports = matches.required("ports", |value| {
            let meaning = "leave `matches` out to mean all TCP ports";
            value.at_least_one(meaning, Value::port)
        });
        matches.finish();
        ports
    });
    if let Ok(id) = id {
        let route = ports.map(|ports| TcpRoute {
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            ports,
            spot: id.spot.clone(),
        });
        part.tcp_routes.push(&id, route);
    }
    table.finish();
}
