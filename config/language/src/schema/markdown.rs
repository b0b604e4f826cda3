//! The schema as tables of the reference, docs/reference/policy.md.

use super::{Form, KINDS, Key, LeftOut, Shape};

/// What the reference says of a kind: its table of keys and its example; `None` where there is no such
/// kind.
pub fn reference(kind: &str) -> Option<String> {
    let kind = KINDS.iter().find(|one| one.kind.key() == kind)?;
    let mut lines =
        vec!["| key | value | left out | meaning |".to_owned(), "|---|---|---|---|".to_owned()];
    rows(&kind.shape, "", &mut lines);
    Some(format!("{}\n\n```toml\n{}```\n", lines.join("\n"), kind.example))
}

/// How many other keys are named of which one must be given. Of more it is said that there are others.
const MOST_OTHERS: usize = 5;

/// The rows of a table whose keys stand behind `before`, and of the tables in it.
fn rows(shape: &Shape, before: &str, lines: &mut Vec<String>) {
    for Key { name, about, form, left_out } in shape.keys {
        let key = format!("{before}{name}");
        let left_out = match left_out {
            LeftOut::Refused => "**required**".to_owned(),
            LeftOut::RefusedWithTheOthers => {
                let others = shape.keys.iter().filter(|key| key.is_refused_with_the_others());
                let others = others.filter(|key| key.name != *name);
                let others: Vec<_> = others.map(|key| format!("`{}`", key.name)).collect();
                if others.len() > MOST_OTHERS {
                    "**required**, or another one".to_owned()
                } else {
                    format!("**required**, or {}", others.join(" or "))
                }
            }
            LeftOut::Text(text) => format!("`{text}`"),
            LeftOut::Number(number) => format!("`{number}`"),
            LeftOut::Means(words) => (*words).to_owned(),
        };
        let row = [format!("`{key}`"), in_words(form), left_out, (*about).to_owned()];
        // A bar would end the cell.
        let row = row.map(|cell| cell.replace('|', "\\|"));
        lines.push(format!("| {} |", row.join(" | ")));
        if let Some((shape, below)) = table(form) {
            rows(shape, &format!("{key}{below}."), lines);
        }
    }
}

/// The table of a form, if it is of one, and what stands between the key and those in it.
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

/// A form in a few words.
fn in_words(form: &Form) -> String {
    match form {
        Form::Name => "a name".to_owned(),
        Form::Word(words) => {
            let words: Vec<String> = words().iter().map(|word| format!("`{word}`")).collect();
            words.join(", ")
        }
        Form::Text { what, .. } => (*what).to_owned(),
        Form::Integer(range) if *range.end() == u32::MAX => {
            format!("an integer from {}", range.start())
        }
        Form::Integer(range) => format!("{} to {}", range.start(), range.end()),
        Form::PortRange => "a port, or a range as in `\"20000-32000\"`".to_owned(),
        Form::Percent => "a number from 0 to 100".to_owned(),
        Form::Boolean => "`true` or `false`".to_owned(),
        Form::Table(_) => "a table".to_owned(),
        Form::Map { key, value, .. } => format!("`{{ {key} = … }}`, {}", in_words(value)),
        Form::List(item) => format!("[{}, …]", in_words(item)),
        Form::AtLeastOne(item) => format!("[{}, …], at least one", in_words(item)),
        Form::WordOrTable(words, _) => {
            format!("{}, or a table", in_words(&Form::Word(*words)))
        }
        Form::OneOrMore(one) => format!("{}; or a list of them", in_words(one)),
    }
}
