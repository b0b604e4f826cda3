//! `[[upstream_traffic_setting]]`: limits and load balancing of the calls to a service.

mod connections;
mod locality;
mod outliers;
mod rate_limit;

use ironmesh_catalog::UpstreamTrafficSetting;

use super::level;
use super::part::{Id, Part};
use crate::codes;
use crate::table::{FindingReported, Table, Value};

/// Reads one upstream traffic setting into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let level = level::read(&mut table);
    let connections = table.optional("connection_settings", connections::read);
    let outliers = table.optional("outlier_detection", outliers::read);
    let locality = table.optional("locality", locality::read);
    let rates = table.optional("rate_limit", rate_limit::read);
    let routes = table.optional("http_routes", rate_limit::read_routes);
    let is_empty = matches!((&connections, &outliers, &locality), (Ok(None), Ok(None), Ok(None)))
        && matches!((&rates, &routes), (Ok(None), Ok(None)));
    let no_setting = if is_empty { no_setting(&table) } else { Ok(()) };
    if let Ok(id) = id {
        let level = level.level(&id, part);
        let setting = || {
            let (tcp, http) = connections?.unwrap_or_default();
            let rate_limit::Limits { local_http, local_tcp, global_http, global_tcp } =
                rates?.unwrap_or_default();
            no_setting?;
            Ok(UpstreamTrafficSetting {
                namespace: id.namespace.clone(),
                name: id.name.clone(),
                level: level?,
                tcp,
                http,
                outlier_detection: outliers?,
                locality: locality?,
                local_http,
                local_tcp,
                global_http,
                global_tcp,
                http_routes: routes?,
                spot: id.spot.clone(),
            })
        };
        let setting = setting();
        part.upstream_traffic_settings.push(&id, setting);
    }
    table.finish();
}

fn no_setting(table: &Table<'_>) -> Result<(), FindingReported> {
    let message = "an upstream traffic setting needs a setting";
    let finding = ironmesh_catalog::Finding::error(codes::MISSING_KEY, Some(table.spot()), message);
    let help = "set connections, outliers, localities or rates, or remove the object";
    Err(table.report(finding.label("no setting").help(help)))
}

/// Rejects the table `value`, which needs at least one of its keys.
fn missing_alternative(value: Value<'_>, keys: &[&str]) -> FindingReported {
    let message = format!("`{}` is empty", value.key());
    let finding = value.error(codes::MISSING_KEY, message).label("no setting");
    value.report(finding.help(format!("set at least one of {}", crate::table::list(keys))))
}
