//! `ironmesh agent join`: enrolls this machine by a one-time token, or by an attested document of Azure.

use std::time::Duration;

use anyhow::Context;
use ironmesh_agent::{JoinProof, MachineJoin};
use ironmesh_catalog::text::escape_line;
use ironmesh_command_line::{JoinArguments, Output};
use ironmesh_enrollment::EnrollmentClientError;

use crate::proxy::{NewProxyReport, admin, node_metadata, note_to_root};

/// Enrolls this machine, and prints the command that starts its Envoy.
pub(crate) async fn join(arguments: JoinArguments, output: Output) -> anyhow::Result<()> {
    let metadata = node_metadata(&arguments.listeners)?;
    let proof = match &arguments.token_file {
        Some(file) => JoinProof::read_token(file).context("cannot read the token")?,
        None => JoinProof::Azure(arguments.azure_metadata.unwrap_or_default()),
    };
    let join = MachineJoin {
        addresses: arguments.control_plane,
        ca_hashes: arguments.ca_hashes,
        proof,
        address: arguments.address,
        name: arguments.name,
        metadata: &metadata,
        admin: admin(&arguments.listeners),
        out: &arguments.out,
        retry_notice: print_retry,
    };
    let machine = Box::pin(ironmesh_agent::join(join)).await?;
    let mut notes = machine.notes;
    notes.splice(0..0, note_to_root(&machine.folder));
    let report = NewProxyReport {
        id: machine.id,
        name: &machine.name,
        service: &machine.service,
        expires_at: machine.expires_at,
        folder: &machine.folder,
        command: &machine.command,
        notes: &notes,
    };
    Ok(report.print(output)?)
}

/// Prints why the first attempt failed: further ones may take a minute.
#[expect(clippy::print_stderr, reason = "a notice beside the result")]
pub(crate) fn print_retry(error: &EnrollmentClientError, left: Duration) {
    let (problem, left) = (error.brief(), left.as_secs_f64().round());
    eprintln!("ironmesh: {}; trying again for up to {left} s", escape_line(&problem));
}
