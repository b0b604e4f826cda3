use std::fmt::Write as _;

use ironmesh_catalog::Records;
use ironmesh_config_language::{Document, load_documents};
use ironmesh_config_settings::Settings;

use super::*;
use crate::forecast::offline;

/// A mesh with so many HTTP ports, which so many callers may call by so many rules each.
fn mesh(ports: usize, callers: usize, rules: usize) -> Snapshot {
    let (mut text, mut sources, mut matches) = (String::new(), String::new(), String::new());
    for port in 0..ports {
        let port = format!(
            "name = 's{port:04}'\nservice_account = 'served'\nports = [{{ port = 80, protocol = 'http' }}]"
        );
        writeln!(text, "[[service]]\n{port}").unwrap();
    }
    for caller in 0..callers {
        writeln!(text, "[[service]]\nname = 'c{caller:04}'").unwrap();
        write!(sources, "{{ name = 'c{caller:04}' }}, ").unwrap();
    }
    for rule in 0..rules {
        write!(matches, "{{ name = 'm{rule}', path_regex = '/{rule}' }}, ").unwrap();
    }
    let group = format!("name = 'all'\nmatches = [{matches}]");
    let rule = "rules = [{ kind = 'HTTPRouteGroup', name = 'all' }]";
    let target =
        format!("name = 'all'\ndestination = {{ name = 'served' }}\nsources = [{sources}]\n{rule}");
    writeln!(text, "[[http_route_group]]\n{group}\n[[traffic_target]]\n{target}").unwrap();
    let loaded = load_documents([Document::new("p.toml", text)]);
    let specification = loaded.specification.unwrap_or_else(|| panic!("{:#?}", loaded.findings));
    offline::snapshot(&Settings::default(), &specification, Records::new())
}

/// All ports, from as many pages as that needs, and the sizes of these pages.
fn pages(snapshot: &Snapshot) -> (Vec<PortAccessView>, Vec<usize>) {
    let (mut ports, mut sizes) = (Vec::new(), Vec::new());
    let mut query = AccessQuery::default();
    loop {
        let page = access_page(snapshot, &query).unwrap();
        sizes.push(page.ports.len());
        ports.extend(page.ports);
        assert!(ports.len() <= page.matching);
        query.after = page.next;
        if query.after.is_none() {
            assert_eq!(ports.len(), page.matching);
            return (ports, sizes);
        }
    }
}

#[test]
fn page_ends_with_its_ports_or_its_callers() {
    let (ports, sizes) = pages(&mesh(MAX_ACCESS_PAGE + 1, 1, 1));
    assert_eq!((ports.len(), sizes), (MAX_ACCESS_PAGE + 1, vec![MAX_ACCESS_PAGE, 1]));
    let (ports, sizes) = pages(&mesh(9, MAX_PORT_CALLERS, 1));
    assert_eq!((ports.len(), sizes), (9, vec![4, 4, 1]));
}

#[test]
fn callers_and_rules_of_a_port_are_bounded_and_the_rest_is_counted() {
    let snapshot = mesh(1, MAX_PORT_CALLERS + 3, MAX_CALLER_RULES + 2);
    let (ports, _) = pages(&snapshot);
    let access = &ports[0].access;
    assert_eq!((access.callers.len(), access.more_callers), (MAX_PORT_CALLERS, 3));
    for caller in &access.callers {
        assert_eq!((caller.rules.len(), caller.more_rules), (MAX_CALLER_RULES, 2));
        assert_eq!(caller.extent, AccessExtent::Some);
    }
}
