//! The names that a document may define although it cannot be parsed.

/// The values of keys that name objects.
pub(crate) fn guess(text: &str) -> Vec<String> {
    let value = |line: &str| {
        let line = line.trim_start_matches([' ', '\t', '-', '{']);
        let (key, value) = line.split_once(':')?;
        let key = key.trim_matches([' ', '"', '\'']);
        let names = ["name", "serviceAccountName", "serviceAccount"];
        let value = value.split([',', '}', '#']).next()?.trim_matches([' ', '\r', '"', '\'']);
        (names.contains(&key) && !value.is_empty()).then(|| value.to_owned())
    };
    text.lines().filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_broken_document_are_guessed() {
        let text = "metadata:\n  name: 'a' # first\n- name: b\r\n- { name: c, x: [\nserviceAccountName: d\n\
                    name:\nnamespace: e\nname\n";
        assert_eq!(guess(text), ["a", "b", "c", "d"]);
    }
}
