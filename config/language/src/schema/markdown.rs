//! The schema as Markdown, for the pages below docs/reference/policy.

use std::collections::BTreeMap;

use super::{Form, KINDS, Key, Kind, Shape, WhenOmitted};

/// The table of all kinds, in which each links to its page.
pub fn kinds() -> String {
    let row = |one: &&Kind| {
        let (key, about) = (one.kind.key(), one.about);
        format!("| [`[[{key}]]`]({key}.md) | {about} |\n")
    };
    let rows: String = KINDS.iter().map(row).collect();
    format!("| Kind | Purpose |\n|---|---|\n{rows}")
}

impl Kind {
    /// The table of keys, followed by the example that uses every key.
    pub fn reference(&self) -> String {
        let mut lines = vec![
            "| Key | Type | Required / Default | Meaning |".to_owned(),
            "|---|---|---|---|".to_owned(),
        ];
        rows(&self.shape, "", &mut lines, &mut BTreeMap::new());
        lines.push(String::new());
        lines.extend(required_alternatives(&self.shape));
        lines.push("This example uses every key:\n\n```toml".to_owned());
        format!("{}\n{}```\n", lines.join("\n"), self.example)
    }
}

/// Adds the rows of a table and of the tables in it; `before` is the path of the table. `listed` has the
/// paths of the tables with rows, by their names: the page refers to those.
fn rows(
    shape: &Shape,
    before: &str,
    lines: &mut Vec<String>,
    listed: &mut BTreeMap<&'static str, String>,
) {
    for Key { name, about, form, left_out } in shape.keys {
        let path = format!("{before}{name}");
        let below = table(form).map(|(shape, below)| (shape, format!("{path}{below}")));
        let first = below.as_ref().and_then(|(shape, _)| listed.get(shape.what));
        let more = match (first, &below) {
            (Some(first), _) => Some(format!("Keys as in `{first}`.")),
            (None, Some((shape, _))) => required_alternatives(shape),
            (None, None) => None,
        };
        let meaning = [(*about).to_owned()].into_iter().chain(more).collect::<Vec<_>>().join(" ");
        let row = [format!("`{path}`"), type_of(form), default(left_out), meaning];
        // A bar would end the cell.
        let row = row.map(|cell| cell.replace('|', "\\|"));
        lines.push(format!("| {} |", row.join(" | ")));
        if let (None, Some((shape, path))) = (first, below) {
            rows(shape, &format!("{path}."), lines, listed);
            listed.insert(shape.what, path);
        }
    }
}

/// The default of a key, or that it is required.
fn default(left_out: &WhenOmitted) -> String {
    match left_out {
        WhenOmitted::Required => "**required**".to_owned(),
        WhenOmitted::OneRequired | WhenOmitted::ExactlyOneRequired => "optional".to_owned(),
        WhenOmitted::Text(text) => format!("`{text}`"),
        WhenOmitted::Number(number) => format!("`{number}`"),
        WhenOmitted::Means(words) => (*words).to_owned(),
    }
}

/// The sentence that names the keys of which a table needs one.
fn required_alternatives(shape: &Shape) -> Option<String> {
    let keys = shape.keys.iter().filter(|key| key.is_one_required());
    let names: Vec<String> = keys.map(|key| format!("`{}`", key.name)).collect();
    let (last, others) = names.split_last()?;
    let is_exact =
        shape.keys.iter().any(|key| matches!(key.left_out, WhenOmitted::ExactlyOneRequired));
    let count = if is_exact { "Exactly" } else { "At least" };
    Some(format!("{count} one of {} and {last} is required.", others.join(", ")))
}

/// The table of a form, if it has one, and the separator between its key and the keys in it.
fn table(form: &Form) -> Option<(&'static Shape, &'static str)> {
    match form {
        Form::Table(shape) | Form::WordOrTable(_, shape) | Form::OneOrMore(Form::Table(shape)) => {
            Some((shape, ""))
        }
        Form::List(Form::Table(shape)) | Form::AtLeastOne(Form::Table(shape)) => {
            Some((shape, "[]"))
        }
        _ => None,
    }
}

/// The type of a form's values, in a few words.
fn type_of(form: &Form) -> String {
    match form {
        Form::Name => "name".to_owned(),
        Form::Word(words) => {
            let words: Vec<String> = words().iter().map(|word| format!("`{word}`")).collect();
            words.join(", ")
        }
        Form::Text { what, .. } => (*what).to_owned(),
        Form::Integer(range) if *range.end() == u32::MAX => {
            format!("integer, {} or more", range.start())
        }
        Form::Integer(range) => format!("integer, {} to {}", range.start(), range.end()),
        Form::PortRange => "port, or range such as `\"20000-32000\"`".to_owned(),
        Form::PortOrName => "integer, 1 to 65535, or name".to_owned(),
        Form::StatusRange => "status, or range such as `\"200-399\"`".to_owned(),
        Form::Percent => "number, 0 to 100".to_owned(),
        Form::Boolean => "boolean".to_owned(),
        Form::Table(_) => "table".to_owned(),
        Form::Map { key, value, .. } => format!("table: {key} = {}", type_of(value)),
        Form::List(item) => list_of(item),
        Form::AtLeastOne(item) => format!("non-empty {}", list_of(item)),
        Form::WordOrTable(words, _) => {
            format!("{}, or table", type_of(&Form::Word(*words)))
        }
        Form::OneOrMore(one) => format!("{}; or a non-empty list of these", type_of(one)),
    }
}

fn list_of(item: &Form) -> String {
    match item {
        Form::Table(_) => "list of tables".to_owned(),
        Form::Name => "list of names".to_owned(),
        _ => format!("list: {}", type_of(item)),
    }
}
