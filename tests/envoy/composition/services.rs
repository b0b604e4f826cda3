//! The services of the mesh, and their settings that never change.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ironmesh_tests::LongConnections;

use super::model::{ALL, LEVELS, Level, Setting, rule};

/// The services by namespace. Their own settings never change: routes set those of `store`, `whole`
/// and `both`, a retry those of `again` and `both`, and one service and one namespace exist for
/// each setting.
pub(super) fn services() -> BTreeMap<String, Vec<String>> {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let shadows = LEVELS.map(Level::shadow);
    let mut services = BTreeMap::from([
        (
            "default".to_owned(),
            [names(&["store", "next", "bare", "again"]), shadows.into()].concat(),
        ),
        ("plain".to_owned(), names(&["whole", "again", "both"])),
    ]);
    for setting in ALL {
        let name = setting.name();
        services.entry(format!("n-{name}")).or_default().push("store".to_owned());
        services.entry("default".to_owned()).or_default().push(format!("s-{name}"));
    }
    services
}

/// The services and their grants.
pub(super) fn service_policy() -> String {
    let mut policy = format!("[[service]]\nname = \"buyer\"\n{}", LongConnections::POLICY);
    for (namespace, services) in services() {
        let mut object = |text: &str| {
            let (kind, rest) = text.split_once('\n').unwrap();
            writeln!(policy, "{kind}\nnamespace = \"{namespace}\"\n{rest}").unwrap();
        };
        object("[[http_route_group]]\nname = \"all\"\nmatches = [{ name = \"all\" }]");
        for service in services {
            let shadow = (8082..).zip(LEVELS).find(|(_, level)| level.shadow() == service);
            let target = match (&*service, shadow) {
                ("next", _) => 8081,
                (_, Some((port, _))) => port,
                _ => 8080,
            };
            object(&format!(
                "[[service]]\nname = \"{service}\"\n\
                 ports = [{{ name = \"web\", port = 14001, protocol = \"http\", target_port = {target} }}]"
            ));
            object(&format!(
                "[[traffic_target]]\nname = \"{service}\"\ndestination = {{ name = \"{service}\" }}\n\
                 sources = [{{ name = \"buyer\", namespace = \"default\" }}]\n\
                 rules = [{{ kind = \"HTTPRouteGroup\", name = \"all\" }}]"
            ));
        }
    }
    policy
}

/// A route group that matches a path.
pub(super) fn group(namespace: &str, name: &str, path: &str) -> String {
    format!(
        "[[http_route_group]]\nnamespace = \"{namespace}\"\nname = \"{name}\"\n\
         matches = [{{ name = \"it\", path_regex = \"{path}(/|$)\" }}]\n"
    )
}

/// An HTTP route with these settings for a service's requests of a group.
pub(super) fn group_route(
    namespace: &str,
    service: &str,
    group: &str,
    settings: &[Setting],
) -> String {
    let about = format!(
        "service = \"{service}\"\nmatches = [{{ kind = \"HTTPRouteGroup\", name = \"{group}\" }}]"
    );
    rule(namespace, &format!("{service}-{group}"), &about, Level::Route, settings)
}

/// The fixed settings of routes, services and namespaces. The tests add settings of farther levels.
pub(super) fn near_policy() -> String {
    let mut policy = format!(
        "[[retry]]\nname = \"again\"\nsource = {{ name = \"buyer\" }}\ndestinations = [{{ name = \"again\" }}, \
         {{ name = \"again\", namespace = \"plain\" }}, {{ name = \"both\", namespace = \"plain\" }}]\n\
         retry_policy = {{ retry_on = \"503\", num_retries = {}, retry_backoff_base_interval = \"1ms\" }}\n",
        Level::Retry.retries()
    );
    for setting in ALL {
        let name = setting.name();
        for namespace in ["default", "plain"] {
            policy += &group(namespace, &name, &setting.path());
        }
        for (namespace, service) in [("default", "store"), ("plain", "whole"), ("plain", "both")] {
            policy += &group_route(namespace, service, &name, &[setting]);
        }
        let about = format!("service = \"s-{name}\"");
        policy += &rule("default", &format!("s-{name}"), &about, Level::Service, &[setting]);
        policy += &rule(&format!("n-{name}"), "here", "", Level::Namespace, &[setting]);
    }
    policy
}
