//! Descriptors of all messages that Envoy knows, made by `cargo xtask descriptors`. Only JSON needs them: what
//! serves Envoys must not, for they take 17 MB of memory once they are unpacked.

use std::io::Read;
use std::sync::OnceLock;

use flate2::read::GzDecoder;
use prost_reflect::DescriptorPool;

const DESCRIPTORS: &[u8] = include_bytes!("envoy.fds.gz");

/// The descriptors, unpacked at first use (some tens of milliseconds).
pub(crate) fn pool() -> &'static DescriptorPool {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    POOL.get_or_init(|| {
        let mut bytes = Vec::new();
        let unpacked = GzDecoder::new(DESCRIPTORS).read_to_end(&mut bytes).is_ok();
        // The bytes are part of the binary; that they are whole is tested below.
        let pool = unpacked.then(|| DescriptorPool::decode(&*bytes).ok()).flatten();
        pool.unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn built_in_descriptors_are_complete() {
        assert!(super::pool().all_messages().len() > 1000);
    }
}
