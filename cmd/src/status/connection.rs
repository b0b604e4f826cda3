//! The connection of `status` to the control plane: the admin socket, or the admin port where the socket was
//! removed with the state folder.

use std::io::ErrorKind;

use ironmesh_admin::{Client, ClientError, Readiness};

use crate::places::Places;

/// A client with the readiness that it read; and what is wrong, where the socket is gone.
pub(super) async fn open(places: &Places) -> anyhow::Result<(Client, Readiness, Option<String>)> {
    let socket = places.admin_socket();
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
    let port = places.settings.listen.admin;
    let client = client.via_port(port);
    // That nothing answers there either says less than the first error.
    let Ok(readiness) = client.readiness().await else { return Err(error.into()) };
    let gone = format!(
        "there is no admin socket `{}`, though a control plane answers at {port}\n\
         if that is the control plane of this state folder, the folder was removed while it runs",
        socket.display()
    );
    Ok((client, readiness, Some(gone)))
}
