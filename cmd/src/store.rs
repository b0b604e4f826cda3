//! `ironmesh store`: the state folder, while no control plane runs.

use ironmesh_store::{KeyEncryptionKey, KeyOrigin, Store};
use serde_json::json;

use crate::cli::{Output, StoreCommand};
use crate::resolved_settings::ResolvedSettings;
use crate::stdout::outln;

/// Runs a command of `ironmesh store`.
pub(crate) fn run(command: StoreCommand, output: Output) -> anyhow::Result<()> {
    let StoreCommand::Init(arguments) = command;
    let resolved = ResolvedSettings::load(&arguments.config)?;
    let (file, earlier) = (&arguments.key_file, resolved.state.join("kek"));
    let has_database = Store::database_exists(&resolved.state);
    let origin = KeyEncryptionKey::initialize(file, &earlier, has_database)?;
    let (file, earlier) = (file.display(), earlier.display());
    let (word, text) = match origin {
        KeyOrigin::Present => ("present", format!("{file} has a key-encryption key already")),
        KeyOrigin::Adopted => {
            ("adopted", format!("copied the key to {file}; remove {earlier} after the next start"))
        }
        KeyOrigin::Created => ("created", format!("created the key {file}: back it up")),
    };
    match output {
        Output::Json => outln!("{}", json!({ "key_file": file.to_string(), "key": word }))?,
        Output::Text => outln!("{text}")?,
    }
    Ok(())
}
