//! All texts in an encoded message, found without knowing its type: the check that no name of a resource is
//! overlooked by the recorded references.

use std::collections::BTreeSet;

use ironmesh_xds_wire::Resource;

/// The maximum depth of nested messages; protobuf's own limit.
const MAX_DEPTH: u8 = 100;

/// Those of the `names` that occur as a text of their own in `resource`, at any depth.
pub(super) fn occurring<'a>(resource: &Resource, names: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    scan(resource.sotw_entry(), MAX_DEPTH, &mut |text| {
        found.extend(names.get(text));
    });
    found
}

/// Calls `visit` with everything that could be a text, including other bytes.
fn scan(message: &[u8], depth: u8, visit: &mut impl FnMut(&str)) {
    let mut rest = message;
    while let Some((content, after)) = next_field(rest) {
        rest = after;
        let Some(content) = content else { continue };
        if let Ok(text) = std::str::from_utf8(content) {
            visit(text);
        }
        // It may also be a message. If it is not, parsing ends soon, or yields texts that are no names.
        if depth > 0 {
            scan(content, depth - 1, visit);
        }
    }
}

/// A field: its content, if it has a length, and the rest. `None` at the end, and if this is no message.
fn next_field(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (key, rest) = varint(bytes)?;
    match key & 7 {
        0 => Some((None, varint(rest)?.1)),
        1 => Some((None, rest.get(8..)?)),
        2 => {
            let (length, rest) = varint(rest)?;
            let (content, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            Some((Some(content), rest))
        }
        5 => Some((None, rest.get(4..)?)),
        _ => None,
    }
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at).min(63);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(at + 1..)?));
        }
    }
    None
}
