//! The reader of one document: syntax, then the kinds of tables. It knows no other document.

use ironmesh_catalog::{Finding, Spot};
use toml::de::DeTable;

use super::damage::{self, Damage};
use super::part::Part;
use super::single_tables;
use super::udp::NO_UDP;
use crate::codes;
use crate::document::Document;
use crate::findings::Findings;
use crate::kinds::{PolicyKind, policy_kinds};
use crate::limits::FINDINGS_OF_ONE;
use crate::suggest::{closest, did_you_mean};
use crate::syntax;
use crate::table::{Reader, Table, Value, list};
use crate::yaml;

/// Reads the content of `document`.
pub(super) fn read(document: &Document) -> Part {
    if document.is_yaml() { read_yaml(document) } else { read_toml(document) }
}

fn read_toml(document: &Document) -> Part {
    let (root, errors) = DeTable::parse_recoverable(&document.text);
    let reader = Reader::new(document);
    let (mut starts, mut broken) = (Vec::new(), Findings::at_most(FINDINGS_OF_ONE));
    let single = if errors.is_empty() {
        Vec::new()
    } else {
        single_tables::find(&document.text, root.get_ref(), &errors, PolicyKind::keys())
    };
    broken.extend(single.iter().map(|one| one.finding(&reader)));
    for error in errors {
        starts.push(syntax::span(&document.text, &error).start);
        if !single.iter().any(|one| one.explains(&error, &document.text)) {
            broken.push(syntax::finding(&reader, &error));
        }
    }
    let mut part = read_tables(&reader, root.get_ref());
    (part.findings, part.has_more) = reader.take_findings().into_parts();
    if !starts.is_empty() {
        // A damaged part may define names that seem to be missing.
        part.may_be_defined.extend(damage::names(&document.text));
        part.damaged(&Damage::new(&document.text, &starts));
        part.findings.retain(|finding| !single.iter().any(|one| one.is_in(finding)));
        let (broken, has_more) = broken.into_parts();
        part.findings.extend(broken);
        part.has_more = has_more;
    }
    part
}

/// Reads a document in YAML, by the equivalent tables of its resources.
fn read_yaml(document: &Document) -> Part {
    let reader = Reader::new(document);
    let parsed = yaml::parse(&reader);
    let yaml::Tree { root, broken, may_be_defined } = yaml::tree(&reader, &parsed);
    let mut part = read_tables(&reader, &root);
    (part.findings, part.has_more) = reader.take_findings().into_parts();
    part.findings.extend(broken);
    part.may_be_defined.extend(may_be_defined);
    part
}

/// Reads the tables of `root`.
fn read_tables<'a>(reader: &'a Reader<'a>, root: &'a DeTable<'a>) -> Part {
    let mut part = Part::default();
    for (spot, value) in Table::new(reader, root, 0..0, "a policy document").entries() {
        if let Some(kind) = PolicyKind::of_key(value.key()) {
            read_kind(value, kind, &mut part);
        } else {
            value.report(unknown_kind(value.key(), spot));
            remember_names(value, &mut part);
        }
    }
    part
}

type Read = fn(Table<'_>, &mut Part);

macro_rules! readers {
    ($($key:ident, $objects:ident, $Object:ident $(, $rest:tt)*;)*) => {
        /// The reader of the objects of `kind`.
        fn reader_of(kind: PolicyKind) -> Read {
            match kind {
                $(PolicyKind::$Object => super::$key::read,)*
            }
        }
    };
}

policy_kinds!(readers);

/// Kinds of SMI and Open Service Mesh that this version does not support, so that their users look for no
/// typing error.
const LATER_KINDS: [&str; 1] = ["mesh_config"];

fn read_kind(value: Value<'_>, kind: PolicyKind, part: &mut Part) {
    if value.is_table() {
        value.report(single_tables::finding(kind.key(), value.spot(), 0));
        remember_names(value, part);
        return;
    }
    let Ok(items) = value.items() else { return };
    for item in items {
        part.outline.add(item, kind);
        if let Ok(table) = item.table(kind.what()) {
            reader_of(kind)(table, part);
        }
    }
}

fn unknown_kind(key: &str, spot: Spot) -> Finding {
    let kinds = PolicyKind::keys();
    // SMI's own spelling, `TrafficTarget` or `traffictarget`, is near enough as well.
    let flat = |word: &str| word.replace(['_', '-'], "").to_lowercase();
    let same = kinds.clone().find(|kind| flat(kind) == flat(key));
    let known = format!("the kinds are {}", list(&kinds.clone().collect::<Vec<_>>()));
    let (code, message, help) = if key == "udp_route" {
        (codes::NOT_SERVED, format!("kind `{key}` is not served"), NO_UDP.to_owned())
    } else if LATER_KINDS.contains(&key) {
        (codes::NOT_SERVED, format!("kind `{key}` is not served by this version"), known)
    } else {
        let message = format!("there is no kind `{key}`");
        let near = same.or_else(|| closest(key, kinds)).map(did_you_mean);
        (codes::UNKNOWN_KEY, message, near.unwrap_or(known))
    };
    Finding::error(code, Some(spot), message).label("unknown kind").help(help)
}

/// The names in an unreadable kind are not reported as missing.
fn remember_names(value: Value<'_>, part: &mut Part) {
    for mut table in value.tables_if_any() {
        let names = ["name", "service_account"].map(|key| table.get(key));
        let names = names.into_iter().flatten().filter_map(Value::string_if_any);
        part.may_be_defined.extend(names.map(str::to_owned));
    }
}
