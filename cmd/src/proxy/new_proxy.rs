//! What `proxy bootstrap` and `agent join` share: the settings of the machine's own listeners, and the report of a
//! new proxy.

use std::path::Path;

use ironmesh_catalog::{NodeMetadata, ProxyId, ProxyName, ServiceName};
use ironmesh_command_line::{ListenerArguments, Output};
use ironmesh_sidecar::Admin;
use ironmesh_sidecar_folder::quoted;
use jiff::Timestamp;
use serde_json::json;

use crate::exit::UsageError;
use ironmesh_terminal::stdout::{StdoutError, outln};

/// The node metadata of a proxy with these listeners.
pub(crate) fn node_metadata(listeners: &ListenerArguments) -> Result<NodeMetadata, UsageError> {
    listeners.settings().node_metadata().map_err(|error| UsageError(error.to_string()))
}

/// The access to Envoy's admin interface.
pub(crate) fn admin(listeners: &ListenerArguments) -> Admin {
    if listeners.admin_tcp { Admin::Tcp } else { Admin::Socket }
}

/// The advice for root, who would run the printed command as root; none for other users. Envoy opens the files that its
/// configuration names, and accepts connections from the network.
pub(crate) fn note_to_root(folder: &Path) -> Option<String> {
    let folder = quoted(folder);
    rustix::process::geteuid().is_root().then(|| {
        format!(
            "running as root: start Envoy as an unprivileged user that can read {folder}, for example \
             `chown -R envoy: {folder}` and `User=envoy` in its systemd unit"
        )
    })
}

/// The report of one new proxy.
#[derive(Debug)]
pub(crate) struct NewProxyReport<'a> {
    pub(crate) id: ProxyId,
    pub(crate) name: &'a ProxyName,
    /// Its first service.
    pub(crate) service: &'a ServiceName,
    pub(crate) expires_at: Timestamp,
    pub(crate) folder: &'a Path,
    /// The command that starts its sidecar.
    pub(crate) command: &'a str,
    pub(crate) notes: &'a [String],
}

impl NewProxyReport<'_> {
    /// Prints it.
    pub(crate) fn print(&self, output: Output) -> Result<(), StdoutError> {
        let Self { id, name, service, expires_at, folder, command, notes } = *self;
        match output {
            Output::Json => outln!(
                "{:#}",
                json!({
                    "id": id,
                    "name": name,
                    "folder": folder,
                    "expires_at": expires_at,
                    "command": command,
                    "notes": notes,
                })
            )?,
            Output::Text => {
                outln!(
                    "proxy {name} ({id}) is enrolled as {service}; its certificate expires at {expires_at}"
                )?;
                outln!("its private key was generated in {} and stays there", folder.display())?;
                for note in notes {
                    outln!("note: {note}")?;
                }
                outln!("start it with:\n\n  {command}\n")?;
            }
        }
        Ok(())
    }
}
