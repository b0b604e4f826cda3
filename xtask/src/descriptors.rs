//! Generates `xds/wire/src/envoy.fds.gz`: Envoy's protobuf descriptors without comments.
//!
//! `envoy-types` ships the descriptors (3.4 MB) but does not export them, and a build script cannot find the sources of a
//! dependency. So the repository keeps the stripped set. The test below fails if it differs from the locked
//! `envoy-types`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use flate2::{Compression, write::GzEncoder};
use prost::Message;
use prost_reflect::prost_types::FileDescriptorSet;

/// Writes the stripped descriptors.
pub(crate) fn write() -> anyhow::Result<()> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&stripped()?)?;
    fs_err::write(kept(), gzip.finish()?)?;
    Ok(())
}

/// The path of the kept descriptors.
fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../xds/wire/src/envoy.fds.gz")
}

/// The descriptors of the locked `envoy-types`, without source information.
fn stripped() -> anyhow::Result<Vec<u8>> {
    let metadata =
        cargo_metadata::MetadataCommand::new().other_options(vec!["--locked".to_owned()]).exec()?;
    let package = metadata.packages.iter().find(|package| package.name == "envoy-types");
    let folder = package
        .and_then(|package| package.manifest_path.parent())
        .context("envoy-types is not locked")?;
    let whole = fs_err::read(folder.join("src/generated/types.bin"))?;
    let mut set = FileDescriptorSet::decode(&*whole)?;
    for file in &mut set.file {
        file.source_code_info = None;
    }
    Ok(set.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn stored_descriptors_match_the_locked_envoy_types() {
        let mut kept_bytes = Vec::new();
        GzDecoder::new(fs_err::File::open(kept()).unwrap()).read_to_end(&mut kept_bytes).unwrap();
        assert!(kept_bytes == stripped().unwrap(), "run `cargo xtask descriptors`");
    }
}
