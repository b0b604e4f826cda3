//! The policy folder with the bookstore's files, and the edits of the demo.

use std::io;
use std::path::{Path, PathBuf};

use crate::addresses::Network;

/// The shipped files.
const FILES: [(&str, &str); 5] = [
    ("services.toml", include_str!("../../examples/bookstore/policy/services.toml")),
    ("buyers.toml", include_str!("../../examples/bookstore/policy/buyers.toml")),
    ("split.toml", include_str!("../../examples/bookstore/policy/split.toml")),
    ("thieves.toml", include_str!("../../examples/bookstore/policy/thieves.toml")),
    ("warehouse.toml", include_str!("../../examples/bookstore/policy/warehouse.toml")),
];

/// The folder that the control plane reads and users edit.
#[derive(Debug)]
pub(crate) struct PolicyFolder {
    path: PathBuf,
}

impl PolicyFolder {
    /// Writes the files for this network.
    pub(crate) fn create(path: PathBuf, network: &Network) -> io::Result<Self> {
        fs_err::create_dir(&path)?;
        let folder = Self { path };
        for (name, text) in FILES {
            folder.put(name, &network.localized(text))?;
        }
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces a file atomically, by a rename. The new file is written beside the folder, where the control plane
    /// does not read it.
    pub(crate) fn put(&self, name: &str, text: &str) -> io::Result<()> {
        let part = self.path.with_extension("part");
        fs_err::write(&part, text)?;
        fs_err::rename(&part, self.path.join(name))
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        fs_err::remove_file(self.path.join(name))
    }

    /// Applies an edit.
    pub(crate) fn edit(&self, edit: &Edit) -> io::Result<()> {
        let before = fs_err::read_to_string(self.path.join(edit.file))?;
        let after = before.replace(&edit.before, &edit.after);
        if after == before {
            let problem = format!("`{}` does not contain `{}`", edit.file, edit.before);
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        self.put(edit.file, &after)
    }
}

/// A replacement of some text in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edit {
    file: &'static str,
    before: String,
    after: String,
}

impl Edit {
    fn new(file: &'static str, before: &str, after: &str) -> Self {
        Self { file, before: before.to_owned(), after: after.to_owned() }
    }

    /// The edit that reverts this one.
    pub(crate) fn reverted(self) -> Self {
        Self { before: self.after, after: self.before, ..self }
    }

    /// Allows the thief to get books.
    pub(crate) fn allow_thief() -> Self {
        Self::new("thieves.toml", r#"matches = ["home"] }]"#, r#"matches = ["home", "buy"] }]"#)
    }

    /// Allows the thief to connect to the warehouse.
    pub(crate) fn allow_thief_at_warehouse() -> Self {
        let (stores, both) =
            (r#"[{ name = "bookstore" }]"#, r#"[{ name = "bookstore" }, { name = "bookthief" }]"#);
        Self::new("warehouse.toml", stores, both)
    }

    /// Moves the second version of the store to a new address.
    pub(crate) fn move_second_version(network: &Network, from: u8, to: u8) -> Self {
        let endpoint = |host| format!("[{{ address = \"{}\" }}]", network.host(host));
        Self::new("services.toml", &endpoint(from), &endpoint(to))
    }
}

/// The file `split.toml` with these weights.
pub(crate) fn split(first: u32, second: u32) -> String {
    format!(
        r#"[[traffic_split]]
name = "bookstore"
service = "bookstore"
backends = [
  {{ service = "bookstore-v1", weight = {first} }},
  {{ service = "bookstore-v2", weight = {second} }},
]
"#
    )
}

/// The name of the file with the split.
pub(crate) const SPLIT: &str = "split.toml";

/// A policy file that must be rejected, with the number of the wrong line.
pub(crate) const MISTAKE: (&str, &str, u32) = (
    "mistake.toml",
    r#"[[traffic_target]]
name = "mistake"
destination = { name = "bookstore" }
sources = [{ name = "bookbyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "bookstore" }]
"#,
    4,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edit_applies_and_can_be_reverted() {
        let place = tempfile::tempdir().unwrap();
        let network = Network::claim(&[]).unwrap();
        let folder = PolicyFolder::create(place.path().join("policy"), &network).unwrap();
        let texts =
            || FILES.map(|(name, _)| fs_err::read_to_string(folder.path().join(name)).unwrap());
        let before = texts();
        let edits = [
            Edit::allow_thief(),
            Edit::allow_thief_at_warehouse(),
            Edit::move_second_version(&network, 22, 23),
        ];
        for edit in edits {
            folder.edit(&edit).unwrap();
            assert_ne!(texts(), before);
            assert!(folder.edit(&edit.clone().reverted().reverted()).is_err());
            folder.edit(&edit.reverted()).unwrap();
            assert_eq!(texts(), before);
        }
    }

    #[test]
    fn folder_contains_only_policy_files() {
        let place = tempfile::tempdir().unwrap();
        let network = Network::claim(&[]).unwrap();
        let folder = PolicyFolder::create(place.path().join("policy"), &network).unwrap();
        folder.put(SPLIT, &split(1, 1)).unwrap();
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), FILES.len());
        let services = fs_err::read_to_string(folder.path().join("services.toml")).unwrap();
        assert!(services.contains(&network.host(22).to_string()), "{services}");
    }

    #[test]
    fn mistake_is_on_its_documented_line() {
        let (_, text, line) = MISTAKE;
        assert!(text.lines().nth(line as usize - 1).unwrap().contains("bookbyer"));
    }
}
