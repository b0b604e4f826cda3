//! `ironmesh explain CODE`: the page about a kind of finding.

mod page;
mod pages;
#[cfg(test)]
mod tests;

use ironmesh_catalog::Code;
use serde_json::json;

use crate::cli::{ExplainArguments, Output};
use crate::stdout::{Unwritten, out, outln};
use pages::PAGES;

/// Prints the page about a code.
pub(crate) fn explain(arguments: &ExplainArguments, output: Output) -> Result<(), Unwritten> {
    let Explained { code, page } = &arguments.code;
    match output {
        Output::Json => {
            let title = page::title(page);
            outln!("{:#}", json!({ "code": code.to_string(), "title": title, "page": page }))
        }
        Output::Text => out!("{}", page::as_text(page)),
    }
}

/// A code with its page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Explained {
    code: Code,
    page: &'static str,
}

/// Reads a code as people write it: `IM0101`, `im101` or `101`.
pub(crate) fn code(text: &str) -> Result<Explained, String> {
    let digits = text.get(..2).filter(|start| start.eq_ignore_ascii_case("im"));
    let digits = digits.map_or(text, |start| &text[start.len()..]);
    let number: u16 =
        digits.parse().map_err(|_| format!("a code is written `IM0101`; {}", all()))?;
    let found = PAGES.iter().find(|(known, _)| *known == number);
    let (number, page) = found.ok_or_else(|| format!("there is no such code; {}", all()))?;
    Ok(Explained { code: Code(*number), page })
}

fn all() -> String {
    let line =
        |(number, page): &(u16, &str)| format!("\n  {} {}", Code(*number), page::title(page));
    let lines: String = PAGES.iter().map(line).collect();
    format!("the codes are:{lines}")
}
