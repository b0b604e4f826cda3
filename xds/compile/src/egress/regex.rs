//! Hosts as expressions on the whole of `:authority`, which has a port or none.

use std::collections::BTreeSet;

use ironmesh_catalog::Snapshot;

/// How long a list of namespaces in one expression may be: RE2 makes an instruction of each letter, and the
/// bootstrap allows 1,000.
const LONGEST: usize = 400;

/// Addresses of either family with the port `port`. Which they are is judged where they lead.
pub(super) fn addresses(port: u16) -> String {
    format!(r"(?:[0-9.]+|\[[0-9a-fA-F:.]+\]):{port}")
}

/// The names that a service of the mesh could have: one label, those below the domain, and
/// `<name>.<namespace>`. Whoever asks for one of these means the mesh, also where there is no such service.
pub(super) fn of_the_mesh(snapshot: &Snapshot) -> Vec<String> {
    let services = snapshot.specification.services.keys();
    let namespaces: BTreeSet<_> = services.map(|name| name.namespace.as_str()).collect();
    let domain = snapshot.mesh.domain.as_str().replace('.', r"\.");
    let label = "[a-z0-9-]+";
    let mut names = vec![label.to_owned(), format!(r"(?:.*\.)?{domain}")];
    names.extend(lists(namespaces).map(|list| format!(r"{label}\.(?:{list})")));
    // (A name may end with a dot.)
    names.iter().map(|name| format!(r"(?i:{name}\.?)(?::[0-9]+)?")).collect()
}

/// The words in lists of alternatives that are not too long.
fn lists<'a>(words: impl IntoIterator<Item = &'a str>) -> impl Iterator<Item = String> {
    let mut lists: Vec<String> = Vec::new();
    for word in words {
        match lists.last_mut().filter(|list| list.len() + word.len() < LONGEST) {
            Some(list) => {
                list.push('|');
                list.push_str(word);
            }
            None => lists.push(word.to_owned()),
        }
    }
    lists.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_lists_are_bounded_and_cover_every_word() {
        let words: Vec<_> = (0..100).map(|n| format!("namespace-{n}")).collect();
        let lists: Vec<_> = lists(words.iter().map(String::as_str)).collect();
        assert!(lists.len() > 1 && lists.iter().all(|list| list.len() <= LONGEST), "{lists:?}");
        assert_eq!(lists.join("|"), words.join("|"));
    }
}
