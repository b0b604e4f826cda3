//! Incremental loading: after an edit it equals a full load, and repeats only the necessary work.

use std::collections::BTreeMap;

use ironmesh_catalog::ServiceName;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

/// Texts of documents: some define the same object, some are broken, and some have references that
/// may be missing.
const TEXTS: [&str; 16] = [
    "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n",
    "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"tcp\" }]\n",
    "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n\
     endpoints = { static = [{ address = \"10.0.0.1\" }] }\n",
    "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n\
     endpoints = { static = [{ address = \"10.0.0.2\", weight = 3 }, { address = \"10.0.0.1\" }] }\n",
    "[[service]]\nname = \"store-v1\"\nservice_account = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n",
    "[[service]]\nname = \"buyer\"\n",
    "[[service]]\nname = \"buyer\"\nservice_account = \"shopper\"\n",
    "[[http_route_group]]\nname = \"all\"\nmatches = [{ name = \"all\" }]\n",
    "[[http_route_group]]\nname = \"all\"\nmatches = [{ name = \"some\", path_regex = \"/some\" }]\n",
    "[[traffic_target]]\nname = \"buyers\"\ndestination = { name = \"store\" }\n\
     sources = [{ name = \"buyer\" }]\n\
     rules = [{ kind = \"HTTPRouteGroup\", name = \"all\", matches = [\"all\"] }]\n",
    "[[traffic_split]]\nname = \"split\"\nservice = \"store\"\n\
     backends = [{ service = \"store-v1\", weight = 1 }]\n",
    "[[traffic_split]]\nname = \"back\"\nservice = \"store-v1\"\n\
     backends = [{ service = \"store\", weight = 1 }]\n",
    "[[tcp_route]]\nname = \"tcp\"\nmatches = { ports = [81] }\n",
    "[[service]\nname = \"store\"\n",
    "[[service]]\nname = \"buyer\"\nport = 80\n",
    "# nothing\n",
];

/// Edits of documents, each a text and its replacement. Most have no effect on other documents.
const WORDS: [(&str, &str); 9] = [
    ("10.0.0.1", "10.0.0.2"),
    ("10.0.0.2", "10.0.0.3\", weight = 7 }, { address = \"10.0.0.1"),
    ("10.0.0.3\", weight = 7 }, { address = \"10.0.0.1", "10.0.0.1"),
    ("[[", "# One line more.\n[["),
    ("# One line more.\n", ""),
    ("\"all\" }]\n", "\"all\", methods = [\"GET\"] }]\n"),
    ("buyer", "shopper"),
    ("shopper", "buyer"),
    ("[[", "["),
];

/// A change of a policy folder.
#[derive(Debug, Clone)]
enum Edit {
    /// Replaces a text in a file.
    Replace(Index, (&'static str, &'static str)),
    /// Replaces the content of a file.
    Write(&'static str, Vec<&'static str>),
    Remove(Index),
    /// Renames a file.
    Rename(Index, &'static str),
    /// Makes a file unreadable, or readable again.
    Bar(&'static str),
}

fn edit() -> impl Strategy<Value = Edit> {
    let path = || select(&["a.toml", "b.toml", "c/a.toml"][..]);
    prop_oneof![
        8 => (any::<Index>(), select(&WORDS[..])).prop_map(|(at, words)| Edit::Replace(at, words)),
        3 => (path(), prop::collection::vec(select(&TEXTS[..]), 0..4))
            .prop_map(|(path, texts)| Edit::Write(path, texts)),
        1 => any::<Index>().prop_map(Edit::Remove),
        1 => (any::<Index>(), path()).prop_map(|(from, to)| Edit::Rename(from, to)),
        1 => path().prop_map(Edit::Bar),
    ]
}

/// A policy folder, and its unreadable file.
#[derive(Debug, Default)]
struct Files {
    texts: BTreeMap<&'static str, String>,
    barred: Option<&'static str>,
}

impl Files {
    /// A folder without findings.
    fn good() -> Self {
        let text = |numbers: &[usize]| numbers.iter().map(|n| TEXTS[*n]).collect::<String>();
        let texts =
            [("a.toml", text(&[2])), ("b.toml", text(&[4, 5, 10])), ("c/a.toml", text(&[7, 9]))];
        Self { texts: texts.into(), barred: None }
    }

    fn edit(&mut self, edit: Edit) {
        let taken = |texts: &mut BTreeMap<&'static str, String>, at: Index| {
            let paths: Vec<_> = texts.keys().copied().collect();
            (!paths.is_empty()).then(|| texts.remove(at.get(&paths)))?
        };
        match edit {
            Edit::Replace(at, (from, to)) => {
                let paths: Vec<_> = self.texts.keys().copied().collect();
                if !paths.is_empty()
                    && let Some(text) = self.texts.get_mut(at.get(&paths))
                {
                    *text = text.replace(from, to);
                }
            }
            Edit::Write(path, texts) => {
                self.texts.insert(path, texts.concat());
            }
            Edit::Remove(at) => drop(taken(&mut self.texts, at)),
            Edit::Rename(at, to) => {
                if let Some(text) = taken(&mut self.texts, at) {
                    self.texts.insert(to, text);
                }
            }
            Edit::Bar(path) => self.barred = (self.barred != Some(path)).then_some(path),
        }
    }

    fn load(&self, loader: &mut Loader) -> Loaded {
        let readable = self.texts.iter().filter(|(path, _)| Some(**path) != self.barred);
        let documents = readable.map(|(path, text)| Document::new(*path, text.as_str()));
        let unreadable = self.barred.filter(|path| self.texts.contains_key(path)).map(|path| {
            Finding::error(crate::codes::UNREADABLE_FILE, None, format!("`{path}` cannot be read"))
        });
        loader.load(documents.collect(), unreadable.into_iter().collect())
    }
}

proptest! {
    #[test]
    fn incremental_load_equals_full_load_after_any_edits(
        edits in prop::collection::vec(edit(), 1..20)
    ) {
        let (mut files, mut loader) = (Files::good(), Loader::default());
        prop_assert!(files.load(&mut loader).findings.is_empty());
        for edit in edits {
            files.edit(edit);
            let (again, fresh) = (files.load(&mut loader), files.load(&mut Loader::default()));
            prop_assert_eq!(&again.findings, &fresh.findings);
            // Equal objects may have different spots; the debug output includes the spots.
            let shown = |loaded: &Loaded| format!("{:#?}", loaded.specification);
            prop_assert_eq!(shown(&again), shown(&fresh));
            prop_assert_eq!(&again.revision, &fresh.revision);
            prop_assert_eq!(again.documents, fresh.documents);
        }
    }
}

/// A document with a service that has these endpoints, and with another service.
fn store(addresses: &[&str]) -> Document {
    let list: Vec<_> = addresses.iter().map(|one| format!("{{ address = \"{one}\" }}")).collect();
    let ports = "ports = [{ port = 80, protocol = \"http\" }]";
    let text = format!(
        "[[service]]\nname = \"store\"\n{ports}\nendpoints = {{ static = [{}] }}\n\
         [[service]]\nname = \"other\"\n",
        list.join(", ")
    );
    Document::new("store.toml", text)
}

#[test]
fn edit_parses_only_its_document_and_shares_the_rest() {
    let rest: Vec<_> = (0..100)
        .map(|n| {
            let text = format!(
                "[[service]]\nname = \"buyer-{n}\"\n\
                 [[http_route_group]]\nname = \"all-{n}\"\nmatches = [{{ name = \"all\" }}]\n\
                 [[traffic_target]]\nname = \"of-{n}\"\ndestination = {{ name = \"store\" }}\n\
                 sources = [{{ name = \"buyer-{n}\" }}]\n\
                 rules = [{{ kind = \"HTTPRouteGroup\", name = \"all-{n}\" }}]\n"
            );
            Document::new(format!("{n:03}.toml"), text)
        })
        .collect();
    let mut loader = Loader::default();
    let mut load = |store: Document| {
        let loaded = loader.load_documents(rest.iter().cloned().chain([store]));
        (loaded.specification.unwrap(), (loader.parsed(), loader.checked()))
    };
    let (before, _) = load(store(&["10.0.0.1"]));
    let edited = store(&["10.0.0.1", "10.0.0.2"]);
    let (after, work) = load(edited.clone());
    assert_eq!(work, (101 + 1, 1), "one document is parsed, and no check is repeated");
    assert!(after.traffic_targets.ptr_eq(&before.traffic_targets));
    assert!(after.http_route_groups.ptr_eq(&before.http_route_groups));
    let changed: Vec<_> = before.services.diff(&after.services).collect();
    assert_eq!(changed.len(), 2, "the edited service, and the one after it in the document");
    let same = |spec: &MeshSpecification| {
        Arc::clone(spec.services.get(&"buyer-7".parse::<ServiceName>().unwrap()).unwrap())
    };
    assert!(Arc::ptr_eq(&same(&before), &same(&after)));
    // Only an edit with an effect on other documents causes a check. Unchanged objects stay shared.
    let text = edited.text.replace("http", "tcp");
    let (again, work) = load(Document::new("store.toml", text));
    assert_eq!(work, (101 + 2, 2));
    assert!(again.traffic_targets.ptr_eq(&before.traffic_targets));
}

#[test]
fn warnings_of_other_documents_are_kept_without_rechecking() {
    let elsewhere = Document::new(
        "elsewhere.toml",
        "[[http_route_group]]\nname = \"all\"\nmatches = [{ name = \"all\" }]\n\
         [[traffic_target]]\nname = \"t\"\ndestination = { name = \"other\" }\n\
         sources = [{ name = \"other\" }]\nrules = [{ kind = \"HTTPRouteGroup\", name = \"all\" }]\n\
         [[service]]\nname = \"lonely\"\nports = [{ port = 80, protocol = \"http\" }]\n",
    );
    let mut loader = Loader::default();
    let mut load = |addresses: &[&str], before: &str| {
        let text = store(addresses).text.replace("name = \"other\"", "name = \"buyer\"");
        let ports = "name = \"other\"\nports = [{ port = 80, protocol = \"http\" }]";
        let text =
            format!("{before}[[service]]\n{ports}\n{text}").replace("\"store\"", "\"other-store\"");
        let text = text.replace("other-store\"", "other-store\"\nservice_account = \"other\"");
        let documents = [elsewhere.clone(), Document::new("store.toml", text)];
        (lines(&loader.load_documents(documents)), loader.checked())
    };
    let (reported, checked) = load(&["10.0.0.1"], "");
    assert!(
        reported[0].starts_with("warning[IM0308]: no caller may call service `default/lonely`"),
        "{reported:?}"
    );
    assert_eq!((reported.len(), checked), (1, 1));
    assert_eq!(load(&["10.0.0.1", "10.0.0.2"], ""), (reported.clone(), 1));
    assert_eq!(load(&["10.0.0.2"], "# a line more\n"), (reported, 1));
}
