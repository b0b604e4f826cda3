//! The pages of docs/errors: found by a code in any spelling, and rendered for a terminal.

mod page;
mod pages;
#[cfg(test)]
mod tests;

use ironmesh_catalog::Code;
use pages::PAGES;

/// A code with its page.
#[derive(Debug, Clone, Copy)]
pub struct Explained {
    /// The code.
    pub code: Code,
    /// Its page, as Markdown.
    pub page: &'static str,
}

impl Explained {
    /// The title of the page, without the code.
    pub fn title(&self) -> &'static str {
        page::title(self.page)
    }

    /// The page as plain text.
    pub fn text(&self) -> String {
        page::as_text(self.page)
    }
}

/// Parses a code in any common spelling: `IM0101`, `im101` or `101`.
///
/// # Errors
///
/// Fails for a code without a page, with the most similar ones.
pub fn code(text: &str) -> Result<Explained, String> {
    let digits = text.get(..2).filter(|start| start.eq_ignore_ascii_case("im"));
    let digits = digits.map_or(text, |start| &text[start.len()..]);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let number: u16 = digits
        .parse()
        .ok()
        .filter(|_| is_number)
        .ok_or("a code is written `IM0101`, as findings and `ironmesh policy check` show it")?;
    let found = PAGES.iter().find(|(known, _)| *known == number);
    let (number, page) = found.ok_or_else(|| near(number))?;
    Ok(Explained { code: Code(*number), page })
}

/// The number of similar codes that the error for an unknown code names.
const NEAR: usize = 3;

/// The error for an unknown code, with the most similar codes: first those that a single typing error turns into it,
/// then those with the nearest numbers.
fn near(number: u16) -> String {
    let mut pages: Vec<_> = PAGES.iter().collect();
    pages.sort_by_key(|(known, _)| (!is_slip(*known, number), known.abs_diff(number)));
    let line = |(known, page): &(u16, &str)| format!("\n  {} {}", Code(*known), page::title(page));
    let lines: String = pages.into_iter().take(NEAR).map(line).collect();
    format!("there is no code {}; the nearest are:{lines}", Code(number))
}

/// Whether two codes differ in one digit, or in the order of two adjacent digits.
fn is_slip(one: u16, other: u16) -> bool {
    let (one, other) = (format!("{one:04}"), format!("{other:04}"));
    let pairs = || one.bytes().zip(other.bytes());
    let different: Vec<_> = pairs().enumerate().filter(|(_, (a, b))| a != b).collect();
    match different[..] {
        [_] => true,
        [(first, (a, b)), (second, (c, d))] => second == first + 1 && (a, b) == (d, c),
        _ => false,
    }
}
