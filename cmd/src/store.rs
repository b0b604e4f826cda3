//! `ironmesh store`: the key-encryption key, the store of a new mesh in etcd, and the move of a mesh to another store.

use std::path::Path;

use anyhow::Context;
use ironmesh_command_line::{
    Output, StoreCommand, StoreExportArguments, StoreImportArguments, StoreInitArguments,
};
use ironmesh_config_settings::StoreLocation;
use ironmesh_control_plane::{InitializedStore, initialize_etcd_store};
use ironmesh_store::{ExportFile, KeyEncryptionKey, KeyOrigin, Store};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};

/// Runs a command of `ironmesh store`.
pub(crate) fn run(command: StoreCommand, output: Output, runtime: &Runtime) -> anyhow::Result<()> {
    match command {
        StoreCommand::Init(arguments) => init(arguments, output),
        StoreCommand::Export(arguments) => export(&arguments, output, runtime),
        StoreCommand::Import(arguments) => import(&arguments, output),
    }
}

/// Writes an export through the control plane, or from its stopped store.
fn export(
    arguments: &StoreExportArguments,
    output: Output,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    let resolved = ResolvedSettings::connect(&arguments.config)?;
    let path = &arguments.file;
    let bytes = if arguments.offline {
        resolved.store_place().export(path)?
    } else {
        let mut file = ExportFile::create(path)?;
        let exported = runtime.block_on(resolved.client().export(&mut file));
        let advice =
            "nothing was exported (`--offline` exports the store of a stopped control plane)";
        exported.context(advice)?;
        file.finish()?
    };
    if resolved.is_remote() {
        let key = "it is sealed with the key-encryption key of that mesh, which an import needs";
        match output {
            Output::Json => outln!("{:#}", json!({ "file": path, "bytes": bytes }))?,
            Output::Text => outln!("wrote `{}`, {bytes} bytes: {key}", path.display())?,
        }
        return Ok(());
    }
    let exported = resolved.store_place().exported(path, bytes, arguments.offline);
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&exported)?)?,
        Output::Text => out!("{exported}")?,
    }
    Ok(())
}

/// Imports a mesh, and prints what to do next.
fn import(arguments: &StoreImportArguments, output: Output) -> anyhow::Result<()> {
    let resolved = ResolvedSettings::load(&arguments.config)?;
    let imported = resolved.store_place().import(&arguments.file)?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&imported)?)?,
        Output::Text => out!("{imported}")?,
    }
    Ok(())
}

fn init(arguments: StoreInitArguments, output: Output) -> anyhow::Result<()> {
    let StoreInitArguments { config, key_file } = arguments;
    let resolved = ResolvedSettings::load(&config)?;
    match &resolved.settings.store {
        StoreLocation::Embedded => {
            let file = key_file.context(
                "`ironmesh store init` needs `--key-file FILE` with an embedded store: `ironmesh serve` creates the rest",
            )?;
            let earlier = resolved.state.join("kek");
            let has_database = Store::database_exists(&resolved.state);
            let origin = KeyEncryptionKey::initialize(&file, &earlier, has_database)?;
            print_key(&file, &earlier, origin, output)
        }
        StoreLocation::Etcd(etcd) => {
            let file = key_file.unwrap_or_else(|| resolved.key_encryption_key.clone());
            let mesh = &resolved.settings.mesh;
            let (origin, store) = initialize_etcd_store(etcd, mesh, &file)?;
            let key = match origin {
                KeyOrigin::Present | KeyOrigin::Adopted => "present",
                KeyOrigin::Created => "created",
            };
            let (store, text) = match store {
                InitializedStore::Created => ("created", "created the store of the mesh"),
                InitializedStore::Present => ("present", "the mesh has a store already"),
            };
            let shown = file.display();
            match output {
                Output::Json => {
                    let file = shown.to_string();
                    outln!("{}", json!({ "key_file": file, "key": key, "store": store }))?;
                }
                Output::Text => {
                    outln!("{text} in etcd below `{}`", etcd.prefix)?;
                    outln!(
                        "its key-encryption key is {shown}: back it up, and copy it to each control plane of the mesh"
                    )?;
                }
            }
            Ok(())
        }
    }
}

fn print_key(file: &Path, earlier: &Path, origin: KeyOrigin, output: Output) -> anyhow::Result<()> {
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
