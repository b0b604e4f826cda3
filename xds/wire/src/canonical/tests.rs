use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

use envoy_types::pb::envoy::config::rbac::v3::{
    Permission, Policy, Principal, Rbac, permission, principal,
};
use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::{
    Rbac as RbacFilter, RbacPerRoute,
};
use proptest::prelude::*;
use proptest::test_runner::TestRng;
use prost::encoding::encode_varint;
use prost::{Message, Name};
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use super::*;
use crate::descriptors::pool;
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
    let host = VirtualHost { typed_per_filter_config: filters.collect(), ..VirtualHost::default() };
    RouteConfiguration { virtual_hosts: vec![host], ..RouteConfiguration::default() }
}

fn canonical<M: Message + Name>(message: &M) -> Vec<u8> {
    let mut bytes = message.encode_to_vec();
    canonicalize(&M::full_name(), &mut bytes).unwrap();
    bytes
}

#[test]
fn nested_maps_and_anys_have_one_canonical_encoding() {
    let plain: BTreeSet<_> = (0..50).map(|_| route(8).encode_to_vec()).collect();
    assert!(plain.len() > 1, "the maps were in one order anyway: the test shows nothing");
    let canonical: BTreeSet<_> = (0..50).map(|_| canonical(&route(8))).collect();
    assert_eq!(canonical.len(), 1);
}

#[test]
fn canonical_bytes_decode_to_the_same_message() {
    assert_eq!(RouteConfiguration::decode(&*canonical(&route(1))).unwrap(), route(1));
    assert_eq!(Rbac::decode(&*canonical(&rbac(8))).unwrap(), rbac(8));
}

#[test]
fn map_entries_are_sorted_by_key() {
    let bytes = canonical(&rbac(3));
    let at = |name: &str| bytes.windows(name.len()).position(|w| w == name.as_bytes()).unwrap();
    assert!(at("default/target-0") < at("default/target-1"));
    assert!(at("default/target-1") < at("default/target-2"));
}

#[test]
fn malformed_bytes_are_rejected() {
    for bytes in [&[0x0a, 0xff][..], &[0xff; 12], &[0x12, 0x02, 0x0a, 0x09], &[0x0b]] {
        assert!(
            canonicalize("envoy.config.rbac.v3.RBAC", &mut bytes.to_vec()).is_err(),
            "{bytes:?}"
        );
    }
}

/// The same by asking the descriptors for every field, as slow and plain as can be.
fn by_descriptor(message: &MessageDescriptor, bytes: &[u8]) -> Vec<u8> {
    let mut records: Vec<(u32, Vec<u8>, Vec<u8>)> = Vec::new();
    let (mut at, mut type_name) = (0, None);
    while at < bytes.len() {
        let record = Record::read(bytes, at).unwrap();
        let (head, payload) = (&bytes[at..record.payload], &bytes[record.payload..record.end]);
        let is_any = message.full_name() == "google.protobuf.Any";
        if is_any && record.number == 1 {
            type_name = std::str::from_utf8(payload).unwrap().rsplit('/').next();
        }
        let field = message.get_field(record.number);
        let inner = match field.as_ref().map(FieldDescriptor::kind) {
            Some(Kind::Message(inner)) => Some(inner),
            _ if is_any && record.number == 2 => {
                type_name.and_then(|name| pool().get_message_by_name(name))
            }
            _ => None,
        };
        let payload =
            inner.map_or_else(|| payload.to_vec(), |inner| by_descriptor(&inner, payload));
        let is_map = field.is_some_and(|field| field.is_map());
        // The key is field 1, and is left out where it is empty.
        let key = Record::read(&payload, 0).filter(|key| is_map && key.number == 1);
        let key = key.map_or(Vec::new(), |key| payload[key.payload..key.end].to_vec());
        records.push((record.number, key, [head, &payload[..]].concat()));
        at = record.end;
    }
    // Prost writes fields by their numbers: so what stands out of order are entries of maps.
    records.sort_by(|one, other| {
        let field = message.get_field(one.0).filter(FieldDescriptor::is_map);
        one.0.cmp(&other.0).then(if field.is_some() {
            one.1.cmp(&other.1)
        } else {
            Ordering::Equal
        })
    });
    records.into_iter().flat_map(|(_, _, record)| record).collect()
}

/// A message of this type at random, fields by their numbers as prost writes them.
pub(crate) fn random(message: &MessageDescriptor, chance: &mut TestRng, depth: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    if message.full_name() == "google.protobuf.Any" {
        let inside = ANYS[chance.random_range(0..ANYS.len())];
        let value = random(&pool().get_message_by_name(inside).unwrap(), chance, depth);
        let url = format!("type.googleapis.com/{inside}");
        length_delimited(&mut bytes, 1, url.as_bytes());
        length_delimited(&mut bytes, 2, &value);
        return bytes;
    }
    let mut fields: Vec<_> = message.fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    for field in fields {
        let is_key = message.is_map_entry() && field.number() == 1;
        // Big messages have many fields: some of them will do.
        if !is_key && (depth == 0 || chance.random_range(0..4) != 0) {
            continue;
        }
        let times = if field.is_map() { chance.random_range(0..4) } else { 1 };
        let mut keys = BTreeSet::new();
        for _ in 0..times {
            match field.kind() {
                Kind::Message(inner) => {
                    let value = random(&inner, chance, depth - 1);
                    let key =
                        Record::read(&value, 0).map(|key| value[key.payload..key.end].to_vec());
                    if !field.is_map() || keys.insert(key) {
                        length_delimited(&mut bytes, field.number(), &value);
                    }
                }
                Kind::String | Kind::Bytes => {
                    let text = chance.random_range(0_u32..1000).to_string();
                    length_delimited(&mut bytes, field.number(), text.as_bytes());
                }
                _ => {
                    encode_varint(u64::from(field.number()) << 3, &mut bytes);
                    encode_varint(chance.random_range(0..1000), &mut bytes);
                }
            }
        }
    }
    bytes
}

fn length_delimited(bytes: &mut Vec<u8>, number: u32, payload: &[u8]) {
    encode_varint(u64::from(number) << 3 | 2, bytes);
    encode_varint(payload.len() as u64, bytes);
    bytes.extend_from_slice(payload);
}

/// Messages that stand in an `Any`: with maps, with more of them, and with neither.
const ANYS: [&str; 5] = [
    "envoy.extensions.filters.http.rbac.v3.RBACPerRoute",
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
    "google.protobuf.Struct",
];

proptest! {
    #[test]
    fn canonical_form_equals_descriptor_based_form(mut chance in Just(()).prop_perturb(|(), chance| chance)) {
        for name in [
            "envoy.config.route.v3.RouteConfiguration",
            "envoy.config.listener.v3.Listener",
            "envoy.config.cluster.v3.Cluster",
            "envoy.config.endpoint.v3.ClusterLoadAssignment",
            "envoy.extensions.transport_sockets.tls.v3.Secret",
        ] {
            let message = pool().get_message_by_name(name).unwrap();
            let mut bytes = random(&message, &mut chance, 6);
            let expected = by_descriptor(&message, &bytes);
            canonicalize(name, &mut bytes).unwrap();
            prop_assert_eq!(&bytes, &expected, "{}", name);
        }
    }
}

#[test]
fn plan_exists_only_for_messages_with_maps_or_anys() {
    assert!(PLANS.of("envoy.config.core.v3.SocketAddress").is_none());
    assert!(PLANS.of("envoy.config.core.v3.CidrRange").is_none());
    let Some(Plan::Message(rbac)) = PLANS.of("envoy.config.rbac.v3.RBAC") else {
        panic!("no plan")
    };
    assert!(matches!(rbac.step(2), Some(Step::Map(Some(_)))), "its policies");
    assert!(rbac.step(1).is_none(), "its action");
}
