//! Policy folders that commands read without asking a control plane.

use std::path::Path;
use std::sync::Arc;

use ironmesh_catalog::MeshSpecification;
use ironmesh_config_language::Loaded;
use ironmesh_config_settings::Settings;
use ironmesh_config_sources::load_folder;

use super::check;
use crate::cli::Output;
use crate::exit::Found;
use crate::places::Places;
use crate::stdout::{Unwritten, outln};

/// Reads a policy folder that must pass the check. If it does not, what is wrong is told as by
/// `policy check`, and which folder it is.
pub(crate) fn load(
    folder: &Path,
    output: Output,
) -> anyhow::Result<(Loaded, Arc<MeshSpecification>)> {
    let loaded = load_folder(folder)?;
    if let Some(specification) = loaded.specification.clone() {
        return Ok((loaded, specification));
    }
    Err(tell_refused(&loaded, folder, output)?.into())
}

/// Tells what is wrong with a policy folder as `policy check` does, and returns that it is refused.
pub(super) fn tell_refused(
    loaded: &Loaded,
    folder: &Path,
    output: Output,
) -> Result<Found, Unwritten> {
    if output == Output::Text {
        outln!("`{}` is rejected:\n", folder.display())?;
    }
    check::tell(loaded, output)?;
    Ok(check::refusal(loaded, &format!("`{}`", folder.display())))
}

/// What is taken for granted of a mesh that is not asked, and who says so.
pub(crate) fn assumed(places: &Places) -> String {
    let Settings { mode, domain, trust_domain, .. } = &places.settings;
    let file = places.file.display();
    let by =
        if places.is_read { format!("by `{file}`") } else { format!("as `{file}` is not there") };
    format!("of policy alone: mode {mode}, domain {domain}, trust domain {trust_domain}, {by}")
}
