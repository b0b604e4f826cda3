//! The connection of `status` to the control plane: the admin socket, or the admin port if the socket was removed
//! with the state folder. A remote one is reached by its context only.

use std::io::ErrorKind;

use ironmesh_admin::{Client, ClientError};
use ironmesh_api::Readiness;

use crate::resolved_settings::ResolvedSettings;

/// Opens a client, and returns it with the readiness that it read. The last value is the problem of a missing
/// socket.
pub(super) async fn open(
    resolved: &ResolvedSettings,
) -> anyhow::Result<(Client, Readiness, Option<String>)> {
    let client = resolved.client();
    if resolved.is_remote() {
        let readiness = client.readiness().await?;
        return Ok((client, readiness, None));
    }
    let socket = resolved.socket();
    let client = Client::new(&socket);
    let error = match client.readiness().await {
        Ok(readiness) => return Ok((client, readiness, None)),
        Err(error) => error,
    };
    let is_gone = |error: &ClientError| match error {
        ClientError::Unreachable { source, .. } => source.kind() == ErrorKind::NotFound,
        _ => false,
    };
    if !is_gone(&error) {
        return Err(error.into());
    }
    let port = resolved.settings.listen.admin;
    let client = client.via_port(port);
    // If the port does not answer either, the first error says more.
    let Ok(readiness) = client.readiness().await else { return Err(error.into()) };
    let gone = format!(
        "the admin socket `{}` is missing, but a control plane answers at {port}\n\
         if that control plane uses this state folder, the folder was removed while it was running",
        socket.display()
    );
    Ok((client, readiness, Some(gone)))
}
