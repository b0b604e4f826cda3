//! Rendering of a page as plain text for a terminal. It supports the Markdown that docs/errors uses: a title, headings,
//! paragraphs with one sentence per line, lists, code and links.

use std::fmt::Write as _;

/// The width of paragraphs in characters. Code keeps its width.
const WIDTH: usize = 80;

/// The title of a page, without the code.
pub(super) fn title(page: &str) -> &str {
    let first = page.lines().next().unwrap_or("");
    first.split_once(": ").map_or(first, |(_, title)| title)
}

/// The page as text.
pub(super) fn as_text(page: &str) -> String {
    let mut text = String::new();
    let mut in_code = false;
    for line in page.lines() {
        if line.starts_with("```") {
            in_code = !in_code;
        } else if in_code && !line.is_empty() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "    {line}");
        } else if in_code {
            text.push('\n');
        } else if let Some(heading) = line.strip_prefix("## ") {
            let _ = writeln!(text, "{heading}\n{}", "-".repeat(heading.chars().count()));
        } else {
            let line = line.strip_prefix("# ").unwrap_or(line);
            text.push_str(&wrapped(&without_links(line)));
        }
    }
    text
}

/// The line with each link replaced by its text. External links keep their address.
fn without_links(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, words, address, after)) = link(rest) {
        text.push_str(before);
        text.push_str(words);
        if address.starts_with("http") {
            let _ = write!(text, " ({address})");
        }
        rest = after;
    }
    text + rest
}

/// The first link of a text, `[words](address)`, with the text before and after it.
fn link(text: &str) -> Option<(&str, &str, &str, &str)> {
    let (before_address, rest) = text.split_once("](")?;
    let (before, words) = before_address.rsplit_once('[')?;
    let (address, after) = rest.split_once(')')?;
    Some((before, words, address, after))
}

/// The line wrapped to [`WIDTH`] characters. A longer word keeps its length.
fn wrapped(line: &str) -> String {
    let indent = if line.starts_with("- ") { "  " } else { "" };
    let mut text = String::new();
    let mut width = 0;
    for word in line.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            text.push('\n');
            text.push_str(indent);
            width = indent.len();
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += length;
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explained::pages::PAGES;

    #[test]
    fn page_renders_code_indented_and_links_as_text() {
        let page = "# IM0999: a page\n\nSee [IM0404](../errors/IM0404.md) and [RE2](https://re2.dev).\n\n\
                    ## Bad\n\n```toml\n[[service]]\n\nname = \"a\"\n```\n";
        assert_eq!(title(page), "a page");
        assert_eq!(
            as_text(page),
            "IM0999: a page\n\nSee IM0404 and RE2 (https://re2.dev).\n\nBad\n---\n\n    \
             [[service]]\n\n    name = \"a\"\n"
        );
    }

    #[test]
    fn page_text_fits_the_terminal_width_except_code() {
        for (number, page) in PAGES {
            let text = as_text(page);
            assert!(!text.contains("](") && !text.contains("```"), "{number}:\n{text}");
            for line in text.lines().filter(|line| !line.starts_with("    ")) {
                assert!(line.chars().count() <= WIDTH, "{number}: {line}");
            }
        }
    }
}
