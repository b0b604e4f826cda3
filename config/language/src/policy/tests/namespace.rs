//! `[[namespace]]`.

use ironmesh_catalog::{Mode, Service};

use super::{finding, specification};

const SERVICES: &str = "[[service]]\nname = \"till\"\nnamespace = \"shop\"\n\
                        [[service]]\nname = \"safe\"\nnamespace = \"shop\"\nmode = \"strict\"\n\
                        [[service]]\nname = \"park\"\n";

#[test]
fn service_mode_overrides_namespace_mode_and_that_the_mesh() {
    let text = format!("{SERVICES}[[namespace]]\nname = \"shop\"\nmode = \"audit\"\n");
    let specification = specification(&text);
    let mode = |service: &Service| specification.mode_of(service, Mode::Permissive);
    let services = specification.services.values();
    let modes: Vec<_> = services.map(|one| (one.name.name.as_str(), mode(one))).collect();
    let expected = [("park", Mode::Permissive), ("safe", Mode::Strict), ("till", Mode::Audit)];
    assert_eq!(modes, expected);
}

#[test]
fn namespace_without_services_is_a_warning() {
    let reported =
        finding(&format!("{SERVICES}[[namespace]]\nname = \"shopp\"\nmode = \"audit\"\n"));
    assert!(
        reported.starts_with("warning[IM0313]: there is no service in namespace `shopp`"),
        "{reported}"
    );
    assert!(reported.ends_with("did you mean `shop`?"), "{reported}");
}

#[test]
fn namespace_is_unique_and_has_no_namespace_key() {
    let twice = "[[namespace]]\nname = \"shop\"\n".repeat(2);
    let reported = finding(&format!("{SERVICES}{twice}"));
    assert!(
        reported.starts_with("error[IM0202]: namespace `shop` is defined twice ("),
        "{reported}"
    );
    let nested = "[[namespace]]\nname = \"shop\"\nnamespace = \"default\"\n";
    let reported = finding(&format!("{SERVICES}{nested}"));
    assert!(reported.starts_with("error[IM0102]: "), "{reported}");
}
