//! The positions of characters in bytes: the parser counts characters, and spans count bytes.

/// The number of characters between two recorded positions.
#[derive(Debug)]
pub(super) struct Positions<'a> {
    text: &'a str,
    /// The bytes at which the characters 0, [`STRIDE`], 2 × [`STRIDE`] and so on begin; none if all
    /// characters are one byte.
    marks: Vec<usize>,
}

const STRIDE: usize = 128;

impl<'a> Positions<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let marks = if text.is_ascii() {
            Vec::new()
        } else {
            text.char_indices().step_by(STRIDE).map(|(at, _)| at).collect()
        };
        Self { text, marks }
    }

    /// The byte at which `character` begins; the end of the text, if it has fewer characters.
    pub(super) fn byte(&self, character: usize) -> usize {
        if self.marks.is_empty() {
            return character.min(self.text.len());
        }
        let Some(mark) = self.marks.get(character / STRIDE) else { return self.text.len() };
        let rest = self.text.get(*mark..).unwrap_or("");
        let found = rest.char_indices().nth(character % STRIDE);
        found.map_or(self.text.len(), |(at, _)| mark + at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn character_index_maps_to_its_byte_offset() {
        for text in ["", "plain", &"ü€-".repeat(100), &format!("{}ü", "a".repeat(127))] {
            let positions = Positions::new(text);
            let expected: Vec<_> = text.char_indices().map(|(at, _)| at).collect();
            let found: Vec<_> = (0..expected.len()).map(|n| positions.byte(n)).collect();
            assert_eq!(found, expected);
            assert_eq!(positions.byte(expected.len()), text.len());
            assert_eq!(positions.byte(expected.len() + STRIDE), text.len());
        }
    }
}
