//! The protobuf of a delta request, decoded without a string for each name and version.

use std::str;

use envoy_types::pb::envoy::service::discovery::v3 as discovery;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType};
use prost::{DecodeError, Message, decode_length_delimiter, length_delimiter_len};

use crate::names::{InitialVersions, NameList};

/// The numbers of the fields that [`DeltaMessage`] decodes itself.
const SUBSCRIBE: u32 = 3;
const UNSUBSCRIBE: u32 = 4;
const INITIAL_VERSIONS: u32 = 5;

/// The key of a field with a length and a number below 16.
const fn key(number: u8) -> u8 {
    (number << 3) | 2
}

/// A `DeltaDiscoveryRequest`, with its names and versions in buffers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeltaMessage {
    /// All other fields.
    pub(super) others: discovery::DeltaDiscoveryRequest,
    pub(super) subscribe: NameList,
    pub(super) unsubscribe: NameList,
    pub(super) initial_versions: InitialVersions,
}

impl DeltaMessage {
    /// The field with this number, if it is a list of names.
    fn names_mut(&mut self, number: u32) -> Option<&mut NameList> {
        match number {
            SUBSCRIBE => Some(&mut self.subscribe),
            UNSUBSCRIBE => Some(&mut self.unsubscribe),
            _ => None,
        }
    }

    /// Decodes a name or an entry at the beginning of `bytes`, if they are as every encoder writes
    /// them, and completely there. Returns the length that was decoded. The text of a list is never
    /// longer than the rest of the message at its first name.
    fn decode_usual(&mut self, number: u32, bytes: &[u8]) -> Option<usize> {
        if number == INITIAL_VERSIONS {
            let (entry, length) = delimited(bytes)?;
            let (name, name_length) = text(entry.strip_prefix(&[key(1)])?)?;
            let version = entry.get(1 + name_length..)?.strip_prefix(&[key(2)])?;
            let (version, version_length) = text(version)?;
            if entry.len() != 2 + name_length + version_length {
                return None;
            }
            self.initial_versions.reserve(bytes.len());
            self.initial_versions.push(name, version);
            return Some(length);
        }
        let names = self.names_mut(number)?;
        let (name, length) = text(bytes)?;
        names.reserve(bytes.len());
        names.push(name);
        Some(length)
    }

    /// The same message with a string for each name and version.
    fn with_strings(&self) -> discovery::DeltaDiscoveryRequest {
        let entries = self.initial_versions.iter();
        discovery::DeltaDiscoveryRequest {
            resource_names_subscribe: self.subscribe.iter().map(str::to_owned).collect(),
            resource_names_unsubscribe: self.unsubscribe.iter().map(str::to_owned).collect(),
            initial_resource_versions: entries
                .map(|(name, version)| (name.to_owned(), version.to_owned()))
                .collect(),
            ..self.others.clone()
        }
    }
}

impl Message for DeltaMessage {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        self.with_strings().encode_raw(buffer);
    }

    /// Decodes a field. What is not as every encoder writes it is left to the generated code, which
    /// knows all that protobuf allows, and what is an error.
    fn merge_field(
        &mut self,
        number: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        if wire_type == WireType::LengthDelimited
            && let Some(length) = self.decode_usual(number, buffer.chunk())
        {
            buffer.advance(length);
            return Ok(());
        }
        self.others.merge_field(number, wire_type, buffer, context)?;
        self.subscribe.extend(self.others.resource_names_subscribe.drain(..));
        self.unsubscribe.extend(self.others.resource_names_unsubscribe.drain(..));
        self.initial_versions.extend(self.others.initial_resource_versions.drain());
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        let field = |length: usize| 1 + length_delimiter_len(length) + length;
        // An entry has no field for an empty text.
        let text = |text: &str| if text.is_empty() { 0 } else { field(text.len()) };
        let names = self.subscribe.iter().chain(self.unsubscribe.iter());
        let entries = self.initial_versions.iter();
        let entries = entries.map(|(name, version)| field(text(name) + text(version)));
        let names = names.map(|name| field(name.len()));
        self.others.encoded_len() + names.sum::<usize>() + entries.sum::<usize>()
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The content of a field with a length at the beginning of `bytes`, and the length of both.
fn delimited(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let mut rest = bytes;
    let length = decode_length_delimiter(&mut rest).ok()?;
    Some((rest.get(..length)?, bytes.len() - rest.len() + length))
}

/// The same as text.
fn text(bytes: &[u8]) -> Option<(&str, usize)> {
    let (text, length) = delimited(bytes)?;
    Some((str::from_utf8(text).ok()?, length))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use prost::encoding::encode_varint;

    use super::*;

    /// A field with a length.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![key(number)];
        encode_varint(content.len() as u64, &mut bytes);
        bytes.extend_from_slice(content);
        bytes
    }

    /// Text, some of which is empty, long or not UTF-8.
    fn content() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            8 => "[a-c]{0,2}".prop_map(String::into_bytes),
            1 => "[ä-ö]{60,130}".prop_map(String::into_bytes),
            1 => prop::collection::vec(any::<u8>(), 0..3),
        ]
    }

    /// A name, an entry with any fields in any order, another field, or any bytes.
    fn part() -> impl Strategy<Value = Vec<u8>> {
        let fields = prop::collection::vec((1..4_u8, content()), 0..4);
        let odd = fields.prop_map(|fields| {
            fields.iter().flat_map(|(number, content)| field(*number, content)).collect()
        });
        let usual = (content(), content())
            .prop_map(|(name, version)| [field(1, &name), field(2, &version)].concat());
        let entry = prop_oneof![4 => usual, 1 => odd, 1 => content()];
        prop_oneof![
            4 => (3..5_u8, content()).prop_map(|(number, content)| field(number, &content)),
            4 => entry.prop_map(|entry: Vec<u8>| field(5, &entry)),
            1 => (1..11_u8, content()).prop_map(|(number, content)| field(number, &content)),
            1 => content(),
        ]
    }

    proptest! {
        /// Any bytes decode to the same message as with the generated code, or to the same error.
        #[test]
        fn message_equals_that_of_the_generated_code(
            parts in prop::collection::vec(part(), 0..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes = parts.concat();
            let expected = discovery::DeltaDiscoveryRequest::decode(&*bytes);
            let decoded = DeltaMessage::decode(&*bytes);
            let (begin, end) = bytes.split_at(cut.index(bytes.len() + 1));
            let in_pieces = DeltaMessage::decode(begin.chain(end));
            let error = |result: &Result<_, DecodeError>| result.as_ref().err().map(ToString::to_string);
            let expected_error = expected.as_ref().err().map(ToString::to_string);
            prop_assert_eq!(error(&decoded), error(&in_pieces));
            prop_assert_eq!(error(&decoded), expected_error);
            let (Ok(expected), Ok(decoded), Ok(in_pieces)) = (expected, decoded, in_pieces) else {
                return Ok(());
            };
            prop_assert_eq!(&in_pieces, &decoded);
            let versions: HashMap<_, _> = decoded.initial_versions.iter().collect();
            prop_assert_eq!(versions.len(), expected.initial_resource_versions.len());
            prop_assert_eq!(decoded.with_strings(), expected);
            if versions.len() == decoded.initial_versions.len() {
                let again = DeltaMessage::decode(&*decoded.encode_to_vec()).unwrap();
                prop_assert_eq!(again.with_strings(), decoded.with_strings());
            }
        }
    }

    #[test]
    fn encoded_length_equals_that_of_an_encoder() {
        let long = "x".repeat(200);
        let message = DeltaMessage {
            others: discovery::DeltaDiscoveryRequest {
                type_url: "a".to_owned(),
                ..discovery::DeltaDiscoveryRequest::default()
            },
            subscribe: ["a", "", &long].into_iter().collect(),
            unsubscribe: ["b"].into_iter().collect(),
            initial_versions: [("a", "1"), (&long, &long)].into_iter().collect(),
        };
        assert_eq!(message.encoded_len(), message.encode_to_vec().len());
    }
}
