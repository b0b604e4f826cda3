//! Random regular expressions, the same in every run.

/// A random number generator with a seed (SplitMix64).
pub(crate) struct SeededRandom(pub(crate) u64);

impl SeededRandom {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }

    pub(crate) fn choose<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    pub(crate) fn some(
        &mut self,
        max: usize,
        mut one: impl FnMut(&mut Self) -> String,
    ) -> Vec<String> {
        (0..=self.below(max)).map(|_| one(self)).collect()
    }

    /// A well-formed expression in the common language of RE2 and Rust, with this maximum nesting.
    pub(crate) fn expression(&mut self, depth: usize) -> String {
        let deeper = depth.saturating_sub(1);
        match if depth == 0 { 0 } else { self.below(10) } {
            0 | 1 => self.atom(),
            2..=4 => self.some(4, |generator| generator.expression(deeper)).concat(),
            5 | 6 => {
                format!("(?:{})", self.some(4, |generator| generator.expression(deeper)).join("|"))
            }
            7 => format!("{}{})", self.choose(GROUPS), self.expression(deeper)),
            _ => format!("(?:{}){}", self.expression(deeper), self.choose(COUNTS)),
        }
    }

    fn atom(&mut self) -> String {
        match self.below(20) {
            0..=6 => self.choose(LETTERS).to_owned(),
            7..=9 => self.choose(CLASSES).to_owned(),
            10..=16 => {
                let opening = self.choose(&["[", "[^"]);
                format!("{opening}{}]", self.some(4, |c| c.choose(MEMBERS).to_owned()).concat())
            }
            17 => self.choose(ANCHORS).to_owned(),
            18 => self.choose(FLAGS).to_owned(),
            _ => String::new(),
        }
    }

    /// Pieces of expressions in any order. Most of these texts are invalid.
    pub(super) fn scribble(&mut self) -> String {
        self.some(5, |generator| match generator.below(4) {
            0 => generator.choose(PIECES).to_owned(),
            1 => generator.choose(COUNTS).to_owned(),
            2 => format!("\\{}", char::from(u8::try_from(generator.below(128)).unwrap())),
            _ => generator.atom(),
        })
        .concat()
    }
}

const LETTERS: &[&str] = &["a", "b", "c", "k", "s", "z", "A", "K", "S", "0", "9", "/", "_", "-"];
const CLASSES: &[&str] = &[".", ".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S"];
const ANCHORS: &[&str] = &["^", "$", r"\A", r"\z", r"\b", r"\B"];
const FLAGS: &[&str] = &["(?i)", "(?-i)", "(?s)", "(?m)", "(?U)"];
const GROUPS: &[&str] = &["(", "(", "(?i:", "(?-i:", "(?s:"];
const COUNTS: &[&str] = &[
    "*", "+", "?", "*?", "+?", "??", "{0}", "{1}", "{2}", "{0,}", "{1,}", "{2,}", "{0,1}", "{0,3}",
    "{1,3}", "{3,4}?",
];
const MEMBERS: &[&str] = &[
    "a",
    "k",
    "S",
    "_",
    ".",
    "/",
    "a-z",
    "A-Z",
    "0-9",
    "b-e",
    "A-C",
    r"\-",
    r"\]",
    r"\d",
    r"\W",
    r"\s",
    r"\x41",
    "[:alpha:]",
    "[:^upper:]",
    "[:punct:]",
    "[:^digit:]",
    "[:space:]",
];
/// Pieces that the two languages may read differently, or only one accepts.
const PIECES: &[&str] = &[
    "(?P<a>b)",
    "(?<c>d)",
    "(?P<_1>a)",
    "(?P<\u{e9}>a)",
    "(?i-s:a)",
    "(?i)",
    "(?x)",
    "(?-u)",
    "(?R)",
    "(?ms-iU:a|b)",
    "(?-:a)",
    "(?:)",
    "()",
    "(|a)",
    "(?#a)",
    "(?=a)",
    "(?!a)",
    "(?>a)",
    "a{,3}",
    "a{2,1}",
    "a{ 2}",
    "a{02}",
    "a{1001}",
    "a{1000}",
    "{",
    "}",
    "]",
    "[",
    "(",
    ")",
    "|",
    "[]a]",
    "[^]a]",
    "[a-]",
    "[-a]",
    "[a-\\d]",
    "[\\d-z]",
    "[a&&b]",
    "[a--b]",
    "[a~~b]",
    "[[a]]",
    "[[:foo:]]",
    "[[:word:]]",
    "[[:ascii:]]",
    "[[.a.]]",
    "[[=a=]]",
    "[^\\s\\S]",
    "[\\b]",
    "[ -~]",
    r"\Q*\E",
    r"\pL",
    r"\p{Lu}",
    r"\PN",
    r"\p{Greek}",
    r"\x{1F600}",
    r"\x{7F}",
    r"\xe9",
    r"\x00",
    r"\u0041",
    r"\U00000041",
    r"\u{41}",
    r"\b{start}",
    r"\<",
    r"\>",
    r"\Z",
    r"\G",
    r"\C",
    r"\K",
    r"\R",
    r"\X",
    r"\h",
    r"\1",
    r"\07",
    r"\a\f\t\n\r\v",
    "\u{e9}",
    "[\u{3b1}-\u{3c9}]",
    "\t",
    " ",
    "#",
    "&",
    "~",
    "@",
    "\u{7f}",
    "^*",
    "$+",
    "\\b{2}",
    "(?i)*",
    "|*",
    "(?:a{100}){11}",
];
