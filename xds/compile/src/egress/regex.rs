//! Hosts as expressions on the whole of `:authority`, which has a port or none.

use std::collections::BTreeSet;

use ironmesh_catalog::Snapshot;

/// Addresses of either family with the port `port`. Which they are is judged where they lead.
pub(super) fn addresses(port: u16) -> String {
    format!(r"(?:[0-9.]+|\[[0-9a-fA-F:.]+\]):{port}")
}

/// The names that a service of the mesh could have: one label, `<name>.<namespace>`, and those below the
/// domain. Whoever asks for one of these means the mesh, also where there is no such service.
pub(super) fn of_the_mesh(snapshot: &Snapshot) -> String {
    let services = snapshot.specification.services.keys();
    let namespaces: BTreeSet<_> = services.map(|name| name.namespace.as_str()).collect();
    let namespaces: Vec<_> = namespaces.into_iter().collect();
    let domain = snapshot.mesh.domain.as_str().replace('.', r"\.");
    let label = "[a-z0-9-]+";
    let short = format!(r"{label}(?:\.(?:{}))?", namespaces.join("|"));
    // (A name may end with a dot.)
    format!(r"(?i:(?:{short}|(?:.*\.)?{domain})\.?)(?::[0-9]+)?")
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    fn is_whole(expression: &str, text: &str) -> bool {
        Regex::new(&format!(r"\A(?:{expression})\z")).unwrap().is_match(text)
    }

    #[test]
    fn an_address_has_its_port() {
        for host in ["10.1.2.3:5432", "[2001:db8::1]:5432", "[::ffff:10.1.2.3]:5432"] {
            assert!(is_whole(&addresses(5432), host), "{host}");
        }
        for host in ["10.1.2.3", "10.1.2.3:543", "a.example:5432", "2001:db8::1:5432", ""] {
            assert!(!is_whole(&addresses(5432), host), "{host}");
        }
    }
}
