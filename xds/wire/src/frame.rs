//! gRPC frames of shared bytes.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

/// The frame of a message with the fields of `head` and of all `entries`: protobuf merges
/// concatenated messages. The head is this stream's own; no entry is copied.
pub fn frame<'a>(
    head: &impl Message,
    entries: impl Iterator<Item = &'a Bytes> + Clone,
) -> Vec<Bytes> {
    let length = head.encoded_len() + entries.clone().map(Bytes::len).sum::<usize>();
    // gRPC over HTTP/2, "Length-Prefixed-Message": a flag for no compression, then four bytes of
    // length.
    let mut first = BytesMut::with_capacity(5 + head.encoded_len());
    first.put_u8(0);
    first.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    first.put_slice(&head.encode_to_vec());
    std::iter::once(first.freeze()).chain(entries.cloned()).collect()
}

/// The message that a client reads from a frame.
#[cfg(test)]
pub(crate) fn read<M: Message + Default>(frame: &[Bytes]) -> M {
    let frame = frame.concat();
    let (prefix, message) = frame.split_at(5);
    assert_eq!(prefix[0], 0, "it is not compressed");
    assert_eq!(u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize, message.len());
    M::decode(message).unwrap()
}
