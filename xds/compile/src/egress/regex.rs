//! Regular expressions for hosts, on the whole of `:authority`, with or without a port.

use ironmesh_catalog::Name;

use crate::mesh_view::MeshView;

/// The maximum length of a list of namespaces in one expression: RE2 compiles each letter to an
/// instruction, and the bootstrap allows 1,000.
const MAX_LIST_LENGTH: usize = 400;

/// Matches addresses of either family with port `port`. A filter checks the address itself.
pub(super) fn addresses(port: u16) -> String {
    format!(r"(?:[0-9.]+|\[[0-9a-fA-F:.]+\]):{port}")
}

/// Matches the names that a service of the mesh could have: one label, names below the domain, and
/// `<name>.<namespace>`. Such a name means the mesh, even if no such service exists.
pub(super) fn mesh_host_regexes(mesh: MeshView<'_>) -> Vec<String> {
    let namespaces = mesh.namespaces().into_iter().map(Name::as_str);
    let domain = mesh.domain().as_str().replace('.', r"\.");
    let label = "[a-z0-9-]+";
    let mut names = vec![label.to_owned(), format!(r"(?:.*\.)?{domain}")];
    names.extend(lists(namespaces).map(|list| format!(r"{label}\.(?:{list})")));
    // A name may end with a dot.
    names.iter().map(|name| format!(r"(?i:{name}\.?)(?::[0-9]+)?")).collect()
}

/// Joins words to lists of alternatives that are not too long.
fn lists<'a>(words: impl IntoIterator<Item = &'a str>) -> impl Iterator<Item = String> {
    let mut lists: Vec<String> = Vec::new();
    for word in words {
        match lists.last_mut().filter(|list| list.len() + word.len() < MAX_LIST_LENGTH) {
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
        assert!(
            lists.len() > 1 && lists.iter().all(|list| list.len() <= MAX_LIST_LENGTH),
            "{lists:?}"
        );
        assert_eq!(lists.join("|"), words.join("|"));
    }
}
