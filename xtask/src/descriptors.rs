//! Makes what `ironmesh-xds-wire` keeps of Envoy's protobuf descriptors: `xds/wire/src/envoy.fds.gz`, all of
//! them without their comments, and the tables of fields by which it walks over encoded messages.
//!
//! `envoy-types` ships them (3.4 MB) but does not export them, and a build script cannot know where
//! another crate's sources are. So all are kept in the tree, and the tests below fail when they are no longer
//! those of the locked `envoy-types`.

mod canonical_fields;
mod fields;
mod reference_fields;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use flate2::{Compression, write::GzEncoder};
use prost::Message;
use prost_reflect::DescriptorPool;
use prost_reflect::prost_types::FileDescriptorSet;

/// Writes the stripped descriptors.
pub(crate) fn write() -> anyhow::Result<()> {
    let stripped = stripped()?;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&stripped)?;
    fs_err::write(kept("envoy.fds.gz"), gzip.finish()?)?;
    for (file, table) in tables(&stripped)? {
        fs_err::write(kept(file), table)?;
    }
    Ok(())
}

/// The tables of fields, by file.
fn tables(stripped: &[u8]) -> anyhow::Result<[(&'static str, String); 2]> {
    let pool = DescriptorPool::decode(stripped)?;
    Ok([
        ("canonical/fields.txt", canonical_fields::table(&pool)),
        ("references/fields.txt", reference_fields::table(&pool)?),
    ])
}

fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../xds/wire/src").join(name)
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
    fn stored_descriptors_and_fields_match_the_locked_envoy_types() {
        let stripped = stripped().unwrap();
        let mut descriptors = Vec::new();
        let file = fs_err::File::open(kept("envoy.fds.gz")).unwrap();
        GzDecoder::new(file).read_to_end(&mut descriptors).unwrap();
        assert!(descriptors == stripped, "run `cargo xtask descriptors`");
        for (file, table) in tables(&stripped).unwrap() {
            let kept = fs_err::read_to_string(kept(file)).unwrap();
            assert!(kept == table, "run `cargo xtask descriptors`: {file}");
        }
    }
}
