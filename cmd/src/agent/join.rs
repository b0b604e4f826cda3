//! `ironmesh agent join`: enrolls this machine by a one-time token.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use ironmesh_agent::MachineJoin;
use ironmesh_catalog::Secret;
use ironmesh_catalog::text::escape_line;
use ironmesh_enrollment::EnrollmentClientError;

use crate::cli::{JoinArguments, Output};
use crate::proxy::{NewProxyReport, admin, node_metadata, note_to_root};

/// The most bytes that are read of a token file: more than any token has.
const MAX_TOKEN_FILE: u64 = 4096;

/// Enrolls this machine by a token, and prints the command that starts its Envoy.
pub(crate) async fn join(arguments: JoinArguments, output: Output) -> anyhow::Result<()> {
    let metadata = node_metadata(&arguments.listeners)?;
    let join = MachineJoin {
        addresses: arguments.control_plane,
        ca_hashes: arguments.ca_hashes,
        token: read_token(&arguments.token_file)?,
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

/// The token in a file, or on stdin.
fn read_token(file: &Path) -> anyhow::Result<Secret> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().take(MAX_TOKEN_FILE).read_to_string(&mut text)
    } else {
        fs_err::File::open(file)
            .and_then(|file| file.take(MAX_TOKEN_FILE).read_to_string(&mut text))
    };
    let secret = Secret::new(text);
    read.context("cannot read the token")?;
    Ok(secret)
}
