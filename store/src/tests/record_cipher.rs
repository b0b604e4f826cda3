//! Sealed records: what they are bound to, and the digest of a set of them.

use proptest::prelude::*;

use super::State;
use crate::{KeyEncryptionKey, KeyId, MeshId, RecordCipher, RecordVersion, SealedFault, SetDigest};

const MESH: MeshId = MeshId::from_bytes([7; 16]);
const KEY: &str = "/ironmesh/default/state/records/join_records/1";
const VERSION: RecordVersion = RecordVersion(3);

fn kek() -> KeyEncryptionKey {
    State::new().key().unwrap()
}

fn cipher() -> RecordCipher {
    RecordCipher::new(&kek(), MESH).unwrap()
}

#[test]
fn value_opens_at_its_key_with_its_version_alone() {
    let kek = kek();
    let cipher = RecordCipher::new(&kek, MESH).unwrap();
    let sealed = cipher.seal(KEY, VERSION, b"value").unwrap();
    let (version, value) = cipher.open(KEY, &sealed).unwrap();
    assert_eq!((version, value.as_slice()), (VERSION, b"value".as_slice()));
    assert_eq!(cipher.open("/elsewhere", &sealed).unwrap_err(), SealedFault::NotAuthentic);
    let mut newer = sealed.clone();
    newer[16] += 1;
    assert_eq!(cipher.open(KEY, &newer).unwrap_err(), SealedFault::NotAuthentic);
    let other = RecordCipher::new(&kek, MeshId::from_bytes([8; 16])).unwrap();
    assert_eq!(other.open(KEY, &sealed).unwrap_err(), SealedFault::NotAuthentic);
}

#[test]
fn other_key_and_newer_format_are_named() {
    let (kek, cipher) = (kek(), cipher());
    let sealed = cipher.seal(KEY, VERSION, b"value").unwrap();
    let other = RecordCipher::new(&kek, MESH).unwrap();
    let fault = other.open(KEY, &sealed).unwrap_err();
    let SealedFault::OtherKey(id) = fault else { panic!("{fault}") };
    assert_ne!(id, KeyId::of(&kek).unwrap());
    // An edited key id hides nothing and opens nothing.
    let mut edited = sealed.clone();
    edited[1..9].copy_from_slice(KeyId::of(&kek).unwrap().as_bytes());
    assert_eq!(other.open(KEY, &edited).unwrap_err(), SealedFault::NotAuthentic);
    for (format, fault) in [(0, SealedFault::NotAuthentic), (2, SealedFault::NewerFormat(2))] {
        let mut other = sealed.clone();
        other[0] = format;
        assert_eq!(cipher.open(KEY, &other).unwrap_err(), fault);
    }
}

#[test]
fn sealed_value_shows_no_plain_text_and_is_never_the_same() {
    let cipher = cipher();
    let plain = b"-----BEGIN PRIVATE KEY-----";
    let sealed = cipher.seal(KEY, VERSION, plain).unwrap();
    assert!(!sealed.windows(7).any(|window| window == b"PRIVATE"));
    let again = cipher.seal(KEY, VERSION, plain).unwrap();
    assert_ne!(sealed, again);
    let element = |sealed: &[u8]| cipher.element(KEY, VERSION, sealed);
    assert_ne!(element(&sealed), element(&again));
    assert_eq!(element(&sealed), element(&sealed));
    assert_ne!(element(&sealed), cipher.element("/elsewhere", VERSION, &sealed));
    assert_ne!(element(&sealed), cipher.element(KEY, RecordVersion(4), &sealed));
    let other = RecordCipher::new(&kek(), MESH).unwrap();
    assert_ne!(element(&sealed), other.element(KEY, VERSION, &sealed));
}

proptest! {
    #[test]
    fn truncated_or_edited_values_never_open(
        plain in prop::collection::vec(any::<u8>(), 0..64),
        at in any::<prop::sample::Index>(),
        bit in 0..8,
        length in any::<prop::sample::Index>(),
    ) {
        let cipher = cipher();
        let sealed = cipher.seal(KEY, VERSION, &plain).unwrap();
        let mut edited = sealed.clone();
        edited[at.index(sealed.len())] ^= 1_u8 << bit;
        prop_assert!(cipher.open(KEY, &edited).is_err());
        prop_assert!(cipher.open(KEY, &sealed[..length.index(sealed.len())]).is_err());
        prop_assert!(cipher.open(KEY, &plain).is_err());
    }

    #[test]
    fn digest_depends_on_the_set_and_not_on_its_history(
        numbers in prop::collection::btree_set(any::<u64>(), 1..20),
        removed in any::<u64>(),
    ) {
        let cipher = cipher();
        let element = |number: &u64| cipher.element(&number.to_string(), VERSION, b"");
        let (mut forwards, mut backwards) = <(SetDigest, SetDigest)>::default();
        for number in &numbers {
            forwards.add(element(number));
        }
        backwards.add(element(&removed));
        for number in numbers.iter().rev() {
            backwards.add(element(number));
        }
        prop_assert_ne!(forwards, backwards);
        backwards.remove(element(&removed));
        prop_assert_eq!(forwards, backwards);
        let json = serde_json::to_string(&forwards).unwrap();
        prop_assert_eq!(serde_json::from_str::<SetDigest>(&json).unwrap(), forwards);
    }
}
