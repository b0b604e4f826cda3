//! The command that starts a proxy.

use std::path::Path;

use ironmesh_sidecar::envoy;

/// The complete command that starts the Envoy of a proxy's folder.
pub fn start_command(folder: &Path) -> String {
    let configuration = folder.join(envoy::CONFIGURATION);
    format!("envoy -c {} --disable-hot-restart --drain-time-s 30", quoted(&configuration))
}

/// A path quoted for a shell.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@%:,".contains(c));
    if is_plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
