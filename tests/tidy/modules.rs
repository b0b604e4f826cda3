//! The modules of a crate or of one of its modules: none of the top-level ones uses another in a circle.
//!
//! The graph is read from `use crate::…`, `crate::…` and `super::…` in the text of each file, as rustfmt writes
//! it. Test code does not count.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use fs_err as fs;

use crate::files::rust_files;
use crate::workspace::root;

/// The source folders whose modules must not form a cycle: of a crate, or of a module below its `src`.
const FOLDERS: &[&str] = &["catalog/src", "catalog/analysis/src", "config/language/src/policy"];

/// For each top-level module those that it uses, each with one place that does.
type Graph = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn top_level_modules_have_no_cycle() {
    let mut cycles = Vec::new();
    for folder in FOLDERS {
        let (source, parent) = folder.split_once("/src").unwrap();
        let parent: Vec<_> =
            parent.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let graph = graph(&parent, &sources(&root().join(source).join("src")));
        assert!(graph.len() > 2, "{folder}: {graph:?}");
        let cycle = cycle(&graph).map(|cycle| format!("{folder}:\n  {}", cycle.join("\n  ")));
        cycles.extend(cycle);
    }
    assert!(cycles.is_empty(), "\n{}", cycles.join("\n"));
}

/// The files of a crate: module path and text.
fn sources(folder: &Path) -> Vec<(Vec<String>, String)> {
    let module = |file: &Path| -> Option<Vec<String>> {
        let path = file.strip_prefix(folder).ok()?.with_extension("");
        Some(path.iter().map(|part| part.to_string_lossy().into_owned()).collect())
    };
    let files = rust_files();
    let files = files.iter().filter_map(|file| Some((module(file)?, file)));
    files.map(|(module, file)| (module, fs::read_to_string(file).unwrap())).collect()
}

/// The graph of the modules directly below `parent`, which is empty for a whole crate.
fn graph(parent: &[String], sources: &[(Vec<String>, String)]) -> Graph {
    let (mut graph, mut exported, mut tests) = (Graph::new(), BTreeMap::new(), BTreeSet::new());
    let mut texts = Vec::new();
    for (module, text) in sources {
        let (text, test_modules) = without_tests(text);
        let is_root = matches!(module.as_slice(), [root] if root == "lib" || root == "main");
        let module = if is_root { Vec::new() } else { module.clone() };
        let Some(below) = module.strip_prefix(parent) else { continue };
        tests.extend(test_modules.into_iter().map(|name| [module.clone(), vec![name]].concat()));
        match below.first() {
            Some(top) => _ = graph.entry(top.clone()).or_default(),
            // `crate::Service` is `crate::service::Service`, if the root re-exports that.
            None => exported.extend(imports(&text).into_iter().filter_map(|path| {
                let from = match path.first()?.as_str() {
                    "crate" => in_parent(parent, &module, &path)?,
                    own => own.to_owned(),
                };
                Some((path.last()?.clone(), from))
            })),
        }
        texts.push((module, text));
    }
    for (module, text) in texts {
        let is_test = tests.iter().any(|test| module.starts_with(test));
        let top = module.strip_prefix(parent).and_then(<[String]>::first);
        let Some(top) = top.filter(|_| !is_test) else { continue };
        for path in imports(&text).into_iter().chain(inline_paths(&text)) {
            let Some(named) = in_parent(parent, &module, &path) else { continue };
            let used = if graph.contains_key(&named) { Some(&named) } else { exported.get(&named) };
            let Some(used) = used.filter(|used| *used != top && graph.contains_key(*used)) else {
                continue;
            };
            let place = format!("{} names {}", module.join("/"), path.join("::"));
            graph.get_mut(top).unwrap().entry(used.clone()).or_insert(place);
        }
    }
    graph
}

/// The first name below `parent` of a path in `module`, if it is one of `parent`.
fn in_parent(parent: &[String], module: &[String], path: &[String]) -> Option<String> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    let absolute = match path.first()?.as_str() {
        "crate" => path.get(1..)?.to_vec(),
        "super" => [module.get(..module.len().checked_sub(ups)?)?, path.get(ups..)?].concat(),
        _ => return None,
    };
    absolute.strip_prefix(parent)?.first().cloned()
}

/// The text without comments and without what follows `#[cfg(test)]`; and the names of its test modules that
/// have a file.
fn without_tests(text: &str) -> (String, Vec<String>) {
    let (mut kept, mut modules) = (String::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push_str(line.split("//").next().unwrap_or(line));
            kept.push('\n');
            continue;
        }
        let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
        let mut item = lines.by_ref().skip_while(|line| line.trim_start().starts_with("#["));
        let Some(first) = item.next() else { break };
        if let Some(declared) = first.trim().strip_suffix(';') {
            modules.extend(declared.rsplit(' ').next().map(str::to_owned));
        } else {
            while item.next().is_some_and(|line| line != end) {}
        }
    }
    (kept, modules)
}

/// The paths of all `use` declarations.
fn imports(text: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for declaration in text.split(';') {
        let Some((before, tree)) = declaration.rsplit_once("use ") else { continue };
        if before.ends_with(|last: char| last.is_whitespace()) || before.is_empty() {
            expand("", &tree.split_whitespace().collect::<String>(), &mut paths);
        }
    }
    paths
}

/// Adds the paths of a `use` tree without spaces.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<Vec<String>>) {
    let Some((before, branches)) = tree.split_once('{') else {
        paths.push(format!("{prefix}{tree}").split("::").map(str::to_owned).collect());
        return;
    };
    let prefix = format!("{prefix}{before}");
    let branches = branches.strip_suffix('}').unwrap_or(branches);
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in branches.char_indices().chain([(branches.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if start < at {
                    expand(&prefix, &branches[start..at], paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The paths that begin with `crate::` or `super::`, wherever they are.
fn inline_paths(text: &str) -> Vec<Vec<String>> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let words = text.split(|letter: char| !is_part(letter));
    let paths = words.filter(|word| word.starts_with("crate::") || word.starts_with("super::"));
    paths.map(|path| path.split("::").map(str::to_owned).collect()).collect()
}

/// A shortest cycle, as the places that make it.
fn cycle(graph: &Graph) -> Option<Vec<String>> {
    let mut shortest: Option<Vec<String>> = None;
    for start in graph.keys() {
        let mut open = VecDeque::from([(start, Vec::new())]);
        let mut known = BTreeSet::new();
        while let Some((module, places)) = open.pop_front() {
            for (used, place) in &graph[module] {
                let places = [places.clone(), vec![place.clone()]].concat();
                if used == start {
                    if shortest.as_ref().is_none_or(|known| places.len() < known.len()) {
                        shortest = Some(places);
                    }
                } else if known.insert(used) {
                    open.push_back((used, places));
                }
            }
        }
    }
    shortest
}

#[test]
fn cycles_are_found_through_re_exports_and_super() {
    let file = |module: &str, text: &str| {
        (module.split('/').map(str::to_owned).collect::<Vec<_>>(), text.to_owned())
    };
    let lib = "pub mod a;\nmod b;\npub use b::{inner::Deep, Thing};\n";
    let inner = "fn f() -> super::super::a::A {}\n";
    let tests = "#[cfg(test)]\nmod tests;\n";
    let with = |a: &str| {
        graph(
            &[],
            &[
                file("lib", lib),
                file("a", a),
                file("b", tests),
                file("b/inner", inner),
                file("b/tests", "use crate::c::C;\n"),
                file("c", "use crate::{\n    a::A,\n    Deep,\n};\n"),
            ],
        )
    };
    assert_eq!(cycle(&with("")), None);
    assert_eq!(
        cycle(&with("// crate::b\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n")),
        None
    );
    let expected =
        vec!["a names crate::Thing".to_owned(), "b/inner names super::super::a::A".into()];
    assert_eq!(cycle(&with("use crate::Thing;\n")), Some(expected));
}

#[test]
fn cycles_are_found_below_a_module() {
    let path = |module: &str| module.split('/').map(str::to_owned).collect::<Vec<_>>();
    let with = |b: &str| {
        let files = [
            ("lib", "mod p;\nmod a;\n"),
            ("p", "mod a;\nmod b;\npub use b::Thing;\n#[cfg(test)]\nmod tests;\n"),
            ("p/a", "use super::Thing;\n"),
            ("p/b", b),
            ("p/tests", "use super::a::A;\n"),
            ("a", "use crate::p::b;\n"),
        ];
        graph(&path("p"), &files.map(|(module, text)| (path(module), text.to_owned())))
    };
    // `crate::a` is a module of the same name that is elsewhere.
    assert_eq!(cycle(&with("use crate::a::A;\n")), None);
    let expected = vec!["p/a names super::Thing".to_owned(), "p/b names crate::p::a::A".into()];
    assert_eq!(cycle(&with("use crate::p::a::A;\n")), Some(expected));
}
