//! Policies to push.

use crate::place::Place;

/// A document of one service.
pub(crate) fn service(name: &str) -> String {
    format!("[[service]]\nname = \"{name}\"\nports = [{{ port = 80, protocol = \"http\" }}]\n")
}

/// Writes a policy of `count` documents to the folder `folder`, all of which have the word `mark`; together
/// they are larger than what etcd takes in one transaction.
pub(crate) fn write_large(place: &Place, folder: &str, mark: &str, count: usize) {
    let filler = "x".repeat(100);
    for number in 0..count {
        let mut text = format!("# {mark}\n{}", service(&format!("s{number}")));
        for _ in 0..200 {
            text.push_str(&format!("# {filler}\n"));
        }
        place.write(&format!("{folder}/part-{}/{number}.toml", number % 7), &text);
    }
}
