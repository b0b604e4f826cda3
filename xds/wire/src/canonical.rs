//! Canonical bytes: the same message has the same bytes in every process.
//!
//! prost writes protobuf fields in the order of their numbers, so only maps vary: `envoy-types`
//! keeps them in `HashMap`s, whose order changes with every process (one RBAC encoded 1,000 times
//! gave 24 byte strings). The entries of a map are fields of their own on the wire, so sorting them
//! by key permutes bytes and changes no length. That is done here in place, guided by the message
//! descriptors, through every nested message and every `Any` (docs/decisions/0001).

use prost_reflect::{Kind, MessageDescriptor};

use crate::descriptors::pool;

/// Bytes that are not a message of the type that they were said to be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a well-formed {0}")]
pub(crate) struct Malformed(String);

/// Sorts the entries of all maps in the encoded message `bytes`.
pub(crate) fn canonicalize(message: &MessageDescriptor, bytes: &mut [u8]) -> Result<(), Malformed> {
    if message.full_name() == "google.protobuf.Any" {
        return canonicalize_any(bytes);
    }
    let malformed = || Malformed(message.full_name().to_owned());
    let mut at = 0;
    while at < bytes.len() {
        let record = Record::read(bytes, at).ok_or_else(malformed)?;
        let descriptor = message.get_field(record.number);
        let Some((field, Kind::Message(inner))) = descriptor.map(|f| (f.clone(), f.kind())) else {
            at = record.end;
            continue;
        };
        let end = if field.is_map() {
            run_end(bytes, &record).ok_or_else(malformed)?
        } else {
            record.end
        };
        let mut entry = at;
        while entry < end {
            let record = Record::read(bytes, entry).ok_or_else(malformed)?;
            let payload = bytes.get_mut(record.payload..record.end).ok_or_else(malformed)?;
            canonicalize(&inner, payload)?;
            entry = record.end;
        }
        if field.is_map() {
            sort_entries(bytes.get_mut(at..end).ok_or_else(malformed)?).ok_or_else(malformed)?;
        }
        at = end;
    }
    Ok(())
}

/// Looks through an `Any` into the message that it holds. One of an unknown type stays as it is.
fn canonicalize_any(bytes: &mut [u8]) -> Result<(), Malformed> {
    let malformed = || Malformed("google.protobuf.Any".to_owned());
    let (mut inner, mut value, mut at) = (None, None, 0);
    while at < bytes.len() {
        let record = Record::read(bytes, at).ok_or_else(malformed)?;
        let payload = record.payload..record.end;
        match record.number {
            1 => {
                let url = bytes.get(payload).and_then(|url| std::str::from_utf8(url).ok());
                let name = url.and_then(|url| url.rsplit('/').next()).ok_or_else(malformed)?;
                inner = pool().get_message_by_name(name);
            }
            2 => value = Some(payload),
            _ => {}
        }
        at = record.end;
    }
    match (inner, value) {
        (Some(inner), Some(value)) => {
            canonicalize(&inner, bytes.get_mut(value).ok_or_else(malformed)?)
        }
        _ => Ok(()),
    }
}

/// Where the run of entries ends that begins with `first`.
fn run_end(bytes: &[u8], first: &Record) -> Option<usize> {
    let mut end = first.end;
    while end < bytes.len() {
        let next = Record::read(bytes, end)?;
        if next.number != first.number {
            break;
        }
        end = next.end;
    }
    Some(end)
}

/// Sorts a run of map entries by key.
fn sort_entries(run: &mut [u8]) -> Option<()> {
    let mut entries = Vec::new();
    let mut at = 0;
    while at < run.len() {
        let record = Record::read(run, at)?;
        let entry = run.get(record.payload..record.end)?;
        // The key is field 1, and is left out where it is empty or zero.
        let key = match Record::read(entry, 0) {
            Some(field) if field.number == 1 => entry.get(field.payload..field.end)?,
            _ => &[],
        };
        entries.push((key.to_vec(), run.get(at..record.end)?.to_vec()));
        at = record.end;
    }
    entries.sort();
    let sorted: Vec<u8> = entries.into_iter().flat_map(|(_, entry)| entry).collect();
    run.copy_from_slice(&sorted);
    Some(())
}

/// One field as it stands on the wire.
struct Record {
    number: u32,
    /// Where its payload begins: behind the tag and, where there is one, the length.
    payload: usize,
    /// Where the next field begins.
    end: usize,
}

impl Record {
    fn read(bytes: &[u8], at: usize) -> Option<Self> {
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use envoy_types::pb::envoy::config::rbac::v3::{
        Permission, Policy, Principal, Rbac, permission, principal,
    };
    use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
    use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::{
        Rbac as RbacFilter, RbacPerRoute,
    };
    use prost::{Message, Name};

    use super::*;
    use crate::resource::any;

    fn rbac(policies: usize) -> Rbac {
        let policy = Policy {
            permissions: vec![Permission { rule: Some(permission::Rule::Any(true)) }],
            principals: vec![Principal { identifier: Some(principal::Identifier::Any(true)) }],
            ..Policy::default()
        };
        // A map made anew has an order of its own, also within one process.
        let policies: HashMap<_, _> =
            (0..policies).map(|n| (format!("default/target-{n}"), policy.clone())).collect();
        Rbac { policies, ..Rbac::default() }
    }

    fn route(policies: usize) -> RouteConfiguration {
        let filter = any(&RbacPerRoute {
            rbac: Some(RbacFilter { rules: Some(rbac(policies)), ..RbacFilter::default() }),
        });
        let filters = (0..policies).map(|n| (format!("filter-{n}"), filter.clone()));
        let host =
            VirtualHost { typed_per_filter_config: filters.collect(), ..VirtualHost::default() };
        RouteConfiguration { virtual_hosts: vec![host], ..RouteConfiguration::default() }
    }

    fn canonical<M: Message + Name>(message: &M) -> Vec<u8> {
        let mut bytes = message.encode_to_vec();
        let descriptor = pool().get_message_by_name(&M::full_name()).unwrap();
        canonicalize(&descriptor, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_message_with_maps_in_maps_in_anys_has_one_encoding() {
        let plain: BTreeSet<_> = (0..50).map(|_| route(8).encode_to_vec()).collect();
        assert!(plain.len() > 1, "the maps were in one order anyway: the test shows nothing");
        let canonical: BTreeSet<_> = (0..50).map(|_| canonical(&route(8))).collect();
        assert_eq!(canonical.len(), 1);
    }

    #[test]
    fn canonical_bytes_mean_the_same_message() {
        assert_eq!(RouteConfiguration::decode(&*canonical(&route(1))).unwrap(), route(1));
        assert_eq!(Rbac::decode(&*canonical(&rbac(8))).unwrap(), rbac(8));
    }

    #[test]
    fn entries_stand_in_the_order_of_their_keys() {
        let bytes = canonical(&rbac(3));
        let at = |name: &str| bytes.windows(name.len()).position(|w| w == name.as_bytes()).unwrap();
        assert!(at("default/target-0") < at("default/target-1"));
        assert!(at("default/target-1") < at("default/target-2"));
    }

    #[test]
    fn bytes_that_are_no_message_are_refused_not_followed() {
        let descriptor = pool().get_message_by_name("envoy.config.rbac.v3.RBAC").unwrap();
        for bytes in [&[0x0a, 0xff][..], &[0xff; 12], &[0x12, 0x02, 0x0a, 0x09], &[0x0b]] {
            assert!(canonicalize(&descriptor, &mut bytes.to_vec()).is_err(), "{bytes:?}");
        }
    }
}
