//! Policy folders that commands evaluate without a control plane.

use std::path::Path;
use std::sync::Arc;

use ironmesh_catalog::MeshSpecification;
use ironmesh_command_line::Output;
use ironmesh_config_language::Loaded;
use ironmesh_config_settings::Settings;
use ironmesh_config_sources::load_folder;

use super::check;
use crate::exit::InvalidInput;
use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{StdoutError, outln};

/// Reads a policy folder. If the policy is rejected, prints its path and its findings, and fails.
pub(crate) fn load(
    folder: &Path,
    output: Output,
) -> anyhow::Result<(Loaded, Arc<MeshSpecification>)> {
    let loaded = load_folder(folder)?;
    if let Some(specification) = loaded.specification.clone() {
        return Ok((loaded, specification));
    }
    Err(print_rejected(&loaded, folder, output)?.into())
}

/// Prints the findings of a rejected policy folder as `policy check` does, and returns the error.
pub(super) fn print_rejected(
    loaded: &Loaded,
    folder: &Path,
    output: Output,
) -> Result<InvalidInput, StdoutError> {
    if output == Output::Text {
        outln!("`{}` is rejected:\n", folder.display())?;
    }
    check::print_loaded(loaded, output)?;
    Ok(check::rejection(loaded, &format!("`{}`", folder.display())))
}

/// The assumptions of an evaluation without a control plane, and their source.
pub(crate) fn assumptions(resolved: &ResolvedSettings) -> String {
    let Settings { mode, domain, trust_domain, .. } = &resolved.settings;
    let file = resolved.file.display();
    let source = if resolved.is_read {
        format!("from `{file}`")
    } else {
        format!("the defaults, since `{file}` does not exist")
    };
    format!(
        "evaluated without a control plane: mode {mode}, domain {domain}, trust domain {trust_domain}, {source}"
    )
}
