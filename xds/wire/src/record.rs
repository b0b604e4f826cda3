//! The fields of an encoded message, read without knowledge of its type.

use std::ops::Range;

/// One field on the wire.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) number: u32,
    /// The start of its payload: after the tag and, if there is one, the length.
    pub(crate) payload: usize,
    /// The start of the next field.
    pub(crate) end: usize,
}

impl Record {
    /// Reads the field at `at`; `None` if there is no well-formed one.
    pub(crate) fn read(bytes: &[u8], at: usize) -> Option<Self> {
        let (tag, at) = varint(bytes, at)?;
        let number = u32::try_from(tag >> 3).ok()?;
        let (payload, end) = match tag & 7 {
            0 => (at, varint(bytes, at)?.1),
            1 => (at, at.checked_add(8)?),
            2 => {
                let (length, payload) = varint(bytes, at)?;
                (payload, payload.checked_add(usize::try_from(length).ok()?)?)
            }
            5 => (at, at.checked_add(4)?),
            _ => return None,
        };
        (end <= bytes.len()).then_some(Self { number, payload, end })
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.payload..self.end
    }
}

/// The two parts of an encoded `Any`, as far as it has them.
#[derive(Debug, Default)]
pub(crate) struct AnyParts<'a> {
    /// The full name of the message inside.
    pub(crate) type_name: Option<&'a str>,
    /// Where that message is.
    pub(crate) value: Option<Range<usize>>,
}

impl<'a> AnyParts<'a> {
    /// Reads an `Any`; `None` if the bytes are none.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (mut parts, mut at) = (Self::default(), 0);
        while at < bytes.len() {
            let record = Record::read(bytes, at)?;
            match record.number {
                1 => {
                    let url = std::str::from_utf8(bytes.get(record.range())?).ok()?;
                    parts.type_name = url.rsplit('/').next();
                }
                2 => parts.value = Some(record.range()),
                _ => {}
            }
            at = record.end;
        }
        Some(parts)
    }
}

fn varint(bytes: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(at)?;
        at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, at));
        }
    }
    None
}
