//! Classes of characters, as the bytes that RE2 compares: Envoy has it read bytes, not characters.

use regex_syntax::ast::{
    Ast, ClassAsciiKind, ClassBracketed, ClassPerl, ClassPerlKind, ClassSet, ClassSetItem,
};

/// The number of instructions for the class `ast`: one for each of its ranges of bytes. With `may_fold`,
/// letters in both cases count once, as in RE2.
pub(super) fn ranges(ast: &Ast, ignores_case: bool, may_fold: bool) -> u64 {
    let mut class = Bytes([false; 256]);
    match ast {
        Ast::ClassPerl(perl) => class.add_perl(perl, ignores_case),
        Ast::ClassBracketed(bracketed) => {
            if let ClassSet::Item(item) = &bracketed.kind {
                class.add(item, ignores_case);
            }
            if bracketed.negated {
                class.negate();
            }
        }
        _ => {}
    }
    // "Any byte" has one more: RE2 marks loops of it after which everything matches.
    let is_anything = class.0.iter().all(|own| *own);
    class.ranges(may_fold).max(1) + u64::from(is_anything)
}

/// The bytes between the brackets, in the case in which they are written, even if the class is negated.
pub(super) fn written(bracketed: &ClassBracketed) -> [bool; 256] {
    let mut class = Bytes([false; 256]);
    if let ClassSet::Item(item) = &bracketed.kind {
        class.add(item, false);
    }
    class.0
}

struct Bytes([bool; 256]);

impl Bytes {
    fn add(&mut self, item: &ClassSetItem, ignores_case: bool) {
        match item {
            ClassSetItem::Literal(one) => {
                self.add_group(ignores_case, false, |byte| char::from(byte) == one.c);
            }
            ClassSetItem::Range(range) => {
                let range = range.start.c..=range.end.c;
                self.add_group(ignores_case, false, |byte| range.contains(&byte.into()));
            }
            ClassSetItem::Ascii(ascii) => {
                self.add_group(ignores_case, ascii.negated, |byte| is_in(&ascii.kind, byte));
            }
            ClassSetItem::Perl(perl) => self.add_perl(perl, ignores_case),
            ClassSetItem::Union(union) => {
                union.items.iter().for_each(|item| self.add(item, ignores_case));
            }
            // The dialect rejects all of these except for the empty class.
            ClassSetItem::Empty(_) | ClassSetItem::Unicode(_) | ClassSetItem::Bracketed(_) => {}
        }
    }

    fn add_perl(&mut self, perl: &ClassPerl, ignores_case: bool) {
        self.add_group(ignores_case, perl.negated, |byte| match perl.kind {
            ClassPerlKind::Digit => byte.is_ascii_digit(),
            ClassPerlKind::Space => b"\t\n\x0c\r ".contains(&byte),
            ClassPerlKind::Word => byte.is_ascii_alphanumeric() || byte == b'_',
        });
    }

    /// Adds the bytes for which `is_member` holds, in both cases if case is ignored; or else all others.
    fn add_group(&mut self, ignores_case: bool, negated: bool, is_member: impl Fn(u8) -> bool) {
        for (byte, own) in (0..=u8::MAX).zip(&mut self.0) {
            let other_case = byte.is_ascii_alphabetic().then_some(byte ^ 0x20);
            let other_case = other_case.filter(|_| ignores_case);
            let is_in = is_member(byte) || other_case.is_some_and(&is_member);
            *own |= is_in != negated;
        }
    }

    fn negate(&mut self) {
        self.0.iter_mut().for_each(|own| *own = !*own);
    }

    fn has(&self, byte: u8) -> bool {
        self.0.get(usize::from(byte)).is_some_and(|own| *own)
    }

    fn ranges(&self, may_fold: bool) -> u64 {
        let folds = may_fold && (b'a'..=b'z').all(|b| self.has(b) == self.has(b - 0x20));
        let (mut ranges, mut start) = (0, None);
        for byte in 0..=u8::MAX {
            if !self.has(byte) {
                start = None;
                continue;
            }
            let start = *start.get_or_insert(byte);
            if byte < u8::MAX && self.has(byte + 1) {
                continue;
            }
            // Upper case alone: the range of the lower case covers it.
            ranges += u64::from(!(folds && start >= b'A' && byte <= b'Z'));
        }
        ranges
    }
}

/// The classes of POSIX.
fn is_in(kind: &ClassAsciiKind, byte: u8) -> bool {
    match kind {
        ClassAsciiKind::Alnum => byte.is_ascii_alphanumeric(),
        ClassAsciiKind::Alpha => byte.is_ascii_alphabetic(),
        ClassAsciiKind::Ascii => byte.is_ascii(),
        ClassAsciiKind::Blank => matches!(byte, b'\t' | b' '),
        ClassAsciiKind::Cntrl => byte.is_ascii_control(),
        ClassAsciiKind::Digit => byte.is_ascii_digit(),
        ClassAsciiKind::Graph => byte.is_ascii_graphic(),
        ClassAsciiKind::Lower => byte.is_ascii_lowercase(),
        ClassAsciiKind::Print => byte.is_ascii_graphic() || byte == b' ',
        ClassAsciiKind::Punct => byte.is_ascii_punctuation(),
        ClassAsciiKind::Space => matches!(byte, b'\t'..=b'\r' | b' '),
        ClassAsciiKind::Upper => byte.is_ascii_uppercase(),
        ClassAsciiKind::Word => byte.is_ascii_alphanumeric() || byte == b'_',
        ClassAsciiKind::Xdigit => byte.is_ascii_hexdigit(),
    }
}
