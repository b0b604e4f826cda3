//! The texts in an encoded message, found without knowing its type.
//!
//! A resource refers to others, such as clusters, by texts that may be deep within unknown
//! extensions. The encoding contains every text as a whole, after its length.

/// The maximum depth of nested messages; protobuf's own limit.
const MAX_DEPTH: u8 = 100;

/// Whether any text in `message` is `wanted`. It tries everything that could be a text, including
/// other bytes.
pub(crate) fn any_text(message: &[u8], wanted: &mut impl FnMut(&str) -> bool) -> bool {
    any_within(message, MAX_DEPTH, wanted)
}

fn any_within(message: &[u8], depth: u8, wanted: &mut impl FnMut(&str) -> bool) -> bool {
    let mut rest = message;
    while let Some((content, after)) = next_field(rest) {
        rest = after;
        let Some(content) = content else { continue };
        if std::str::from_utf8(content).is_ok_and(&mut *wanted) {
            return true;
        }
        // It may also be a message. If it is not, parsing ends soon, or yields texts that nothing
        // refers to.
        if depth > 0 && any_within(content, depth - 1, wanted) {
            return true;
        }
    }
    false
}

/// A field: its content, if it has a length, and the rest. `None` at the end, and if this is no
/// message.
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

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::{Node, node};
    use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
    use envoy_types::pb::google::protobuf::Any;
    use prost::Message;

    use super::*;

    fn has(message: &[u8], text: &str) -> bool {
        any_text(message, &mut |one| one == text)
    }

    #[test]
    fn search_finds_whole_texts_at_every_depth_and_field_kind() {
        let host = VirtualHost { name: "default/a|80".to_owned(), ..VirtualHost::default() };
        let routes = RouteConfiguration {
            name: "routes".to_owned(),
            ignore_port_in_host_matching: true,
            virtual_hosts: vec![host],
            ..RouteConfiguration::default()
        };
        let within =
            Any { type_url: "type.example/inner".to_owned(), value: routes.encode_to_vec() };
        let node = Node {
            id: "outer".to_owned(),
            user_agent_version_type: Some(node::UserAgentVersionType::UserAgentVersion(
                String::new(),
            )),
            ..Node::default()
        };
        let bytes = [node.encode_to_vec(), within.encode_to_vec()].concat();
        for text in ["outer", "routes", "type.example/inner", "default/a|80"] {
            assert!(has(&bytes, text), "{text}");
        }
        for text in ["default/a|8", "efault/a|80", "default/a|800", "a"] {
            assert!(!has(&bytes, text), "{text}");
        }
    }

    #[test]
    fn search_of_malformed_or_deeply_nested_bytes_terminates() {
        for bytes in [&[0x0a, 0xff][..], &[0xff; 40], &[0x0a, 0x02, 0x61], &[0x09, 1], &[0x0f]] {
            assert!(!has(bytes, "text"), "{bytes:?}");
        }
        // Messages within messages, deeper than any real one.
        let mut nested = Vec::new();
        for _ in 0..1000 {
            nested = Any { value: nested, ..Any::default() }.encode_to_vec();
        }
        assert!(!has(&nested, "text"));
    }
}
