//! A guide of docs/guides, whose blocks a test runs as they are printed.
//!
//! A block that begins with `sh PLACE` is a step. The place names its host; `variables` are set on all hosts.

use std::path::Path;

use fs_err as fs;

/// A block of a guide.
#[derive(Debug, Clone)]
pub struct GuideBlock {
    /// The host that runs it.
    pub place: String,
    /// Its text.
    pub text: String,
}

/// Reads the blocks with a place, in order. `name` is that of the file, without its ending.
pub fn guide_blocks(name: &str) -> Vec<GuideBlock> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let guide = fs::read_to_string(root.join(format!("docs/guides/{name}.md"))).unwrap();
    let mut blocks = Vec::new();
    let mut parts = guide.split("\n```");
    parts.next();
    // A block and the text after it alternate.
    while let Some(block) = parts.next() {
        let (header, text) = block.split_once('\n').unwrap();
        if let Some(place) = header.strip_prefix("sh ") {
            blocks.push(GuideBlock { place: place.to_owned(), text: text.to_owned() });
        }
        parts.next();
    }
    blocks
}

/// Splits the blocks into the names of the variables that the guide defines, and its steps.
pub fn variables_and_steps(blocks: Vec<GuideBlock>) -> (Vec<String>, Vec<GuideBlock>) {
    let (variables, steps): (Vec<_>, _) =
        blocks.into_iter().partition(|block| block.place == "variables");
    let lines = variables.iter().flat_map(|block| block.text.lines());
    let names = lines.filter_map(|line| Some(line.split_once('=')?.0.to_owned())).collect();
    (names, steps)
}
