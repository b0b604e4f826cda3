//! `[[tcp_route]]`: connections to these ports, whatever is said on them.

use ironmesh_catalog::TcpRoute;

use super::draft::{Draft, Id};
use crate::table::{Table, Value};

/// Reads one TCP route into `draft`.
pub(super) fn read(mut table: Table<'_>, draft: &mut Draft) {
    let id = Id::read(&mut table, draft);
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
        draft.tcp_routes.insert("TCP route", &id, route, &table);
    }
    table.finish();
}
