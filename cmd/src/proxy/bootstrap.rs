//! `ironmesh proxy bootstrap`: enrolls proxies, and writes their keys, certificates and Envoy bootstraps.
//!
//! Private keys are generated here and never leave this machine.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ironmesh_admin::Client;
use ironmesh_api::{BootstrapRequest, EnrolledProxy, EnrollmentRequest, MAX_ENROLLMENTS};
use ironmesh_catalog::{NodeMetadata, TrustDomain};
use ironmesh_command_line::{BootstrapArguments, Output};
use ironmesh_sidecar::{Admin, Workload, envoy};
use ironmesh_sidecar_folder::{
    CommonFiles, EnrollmentState, NewFolder, NewProxy, create_keys, write_bootstraps,
};
use serde_json::json;
use tokio::task::block_in_place;

use super::new_proxy::{NewProxyReport, admin, node_metadata, note_to_root};
use super::renew::renew;
use crate::exit::UsageError;
use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{StdoutError, outln};

/// Enrolls one proxy, whose folder is `--out`; or several, each in its own folder below `--out`.
pub(crate) async fn bootstrap(arguments: BootstrapArguments, output: Output) -> anyhow::Result<()> {
    if let Some(folder) = &arguments.renew {
        return renew(folder, arguments.force, output).await;
    }
    // (Clap requires both.)
    let (Some(address), Some(out)) = (arguments.address, &arguments.out) else {
        return Err(UsageError("give `--address` and `--out`".to_owned()).into());
    };
    let metadata = node_metadata(&arguments.listeners)?;
    let resolved = ResolvedSettings::connect(&arguments.config)?;
    let client = resolved.client();
    let proxies = NewProxy::consecutive(address, arguments.count)?;
    let folder = NewFolder::create(out, 0o700)?;
    if admin(&arguments.listeners) == Admin::Socket {
        for proxy in &proxies {
            envoy::check_admin_socket_path(&proxy.folder(&folder))?;
        }
    }
    let mut all = Vec::new();
    let mut notes = Vec::new();
    // Enrolled proxies are kept even if a later batch fails.
    let mut end = Ok(());
    for batch in proxies.chunks(MAX_ENROLLMENTS) {
        match enroll_batch(&client, &arguments, &metadata, &folder, batch).await {
            Ok((enrolled, more_notes)) => {
                all.extend(enrolled);
                notes.extend(more_notes);
            }
            Err(error) => {
                for proxy in batch.iter().filter(|proxy| !proxy.name.is_empty()) {
                    drop(folder.remove(&proxy.name));
                }
                end = Err(error);
                break;
            }
        }
    }
    let path = folder.path().to_owned();
    if all.is_empty() {
        return end;
    }
    folder.finish()?;
    end.with_context(|| {
        let (enrolled, requested) = (all.len(), proxies.len());
        format!("{enrolled} of {requested} proxies are enrolled, in `{}`", path.display())
    })?;
    notes.sort();
    notes.dedup();
    notes.splice(0..0, note_to_root(&path));
    let print = if arguments.count.is_some() { print_batch } else { print_one };
    Ok(print(&arguments, &path, &all, &notes, output)?)
}

/// An enrolled proxy, with its folder.
struct WrittenProxy {
    enrollment: EnrolledProxy,
    address: IpAddr,
    folder: PathBuf,
    /// The command that starts it.
    command: String,
}

/// Enrolls a batch: all proxies, or none.
async fn enroll_batch(
    client: &Client,
    arguments: &BootstrapArguments,
    metadata: &NodeMetadata,
    folder: &NewFolder,
    batch: &[NewProxy],
) -> anyhow::Result<(Vec<WrittenProxy>, Vec<String>)> {
    let requests = block_in_place(|| create_keys(folder, batch))?;
    let proxies = batch.iter().zip(requests).map(|(proxy, certificate_request)| {
        EnrollmentRequest { address: proxy.address, certificate_request }
    });
    let request = BootstrapRequest {
        services: arguments.services.clone(),
        labels: arguments.labels.iter().map(|(name, word)| (&**name, &**word)).collect(),
        locality: arguments.locality.clone().unwrap_or_default(),
        known_as: arguments.known_as.clone(),
        machine: arguments.azure_vm_id,
        upstreams: metadata.upstreams.clone(),
        name: arguments.name.clone(),
        driver: arguments.sidecar.clone(),
        new_authority: arguments.new_authority,
        proxies: proxies.collect(),
    };
    let response = client.bootstrap(&request).await?;
    anyhow::ensure!(
        response.proxies.len() == batch.len(),
        "the control plane enrolled {} of {} proxies",
        response.proxies.len(),
        batch.len()
    );
    let trust_domain = TrustDomain::of(&response.control_plane_id);
    let trust_domain = trust_domain.context("the control plane has no SPIFFE ID")?;
    let common = CommonFiles {
        roots: &response.roots,
        enrollment: &EnrollmentState::new(&response.enrollment, response.issued_at),
    };
    let (service, more_services) =
        arguments.services.split_first().context("a proxy serves at least one service")?;
    let workload = |new: &NewProxy, enrolled: &EnrolledProxy| Workload {
        driver: response.driver.clone(),
        id: enrolled.id,
        name: enrolled.name.clone(),
        service: service.clone(),
        more_services: more_services.to_vec(),
        address: new.address,
        metadata: metadata.clone(),
        admin: admin(&arguments.listeners),
        control_plane: response.control_plane.clone(),
        control_plane_id: trust_domain.control_plane().0,
        folder: new.folder(folder),
    };
    let enrolled = batch.iter().zip(&response.proxies);
    let enrolled: Vec<_> =
        enrolled.map(|(new, one)| (new, workload(new, one), &*one.certificate)).collect();
    let commands = block_in_place(|| write_bootstraps(folder, &enrolled, &common))?;
    let written = batch.iter().zip(response.proxies).zip(commands);
    let written = written.map(|((proxy, enrollment), command)| WrittenProxy {
        enrollment,
        address: proxy.address,
        folder: proxy.folder(folder),
        command,
    });
    Ok((written.collect(), response.notes))
}

/// Prints the result for one proxy.
fn print_one(
    arguments: &BootstrapArguments,
    out: &Path,
    all: &[WrittenProxy],
    notes: &[String],
    output: Output,
) -> Result<(), StdoutError> {
    let (Some(service), Some(WrittenProxy { enrollment, command, .. })) =
        (arguments.services.first(), all.first())
    else {
        return Ok(());
    };
    NewProxyReport {
        id: enrollment.id,
        name: &enrollment.name,
        service,
        expires_at: enrollment.expires_at,
        folder: out,
        command,
        notes,
    }
    .print(output)
}

/// Prints the result for a batch.
fn print_batch(
    arguments: &BootstrapArguments,
    out: &Path,
    all: &[WrittenProxy],
    notes: &[String],
    output: Output,
) -> Result<(), StdoutError> {
    let (Some(service), Some(first), Some(last)) =
        (arguments.services.first(), all.first(), all.last())
    else {
        return Ok(());
    };
    match output {
        Output::Json => {
            let proxy = |enrolled: &WrittenProxy| {
                json!({
                    "id": enrolled.enrollment.id,
                    "name": enrolled.enrollment.name,
                    "address": enrolled.address,
                    "folder": enrolled.folder,
                    "expires_at": enrolled.enrollment.expires_at,
                    "command": enrolled.command,
                })
            };
            let proxies: Vec<_> = all.iter().map(proxy).collect();
            outln!("{:#}", json!({ "folder": out, "proxies": proxies, "notes": notes }))?;
        }
        Output::Text => {
            outln!(
                "{} proxies are enrolled as {service}, {} to {} at {} to {}; their certificates expire at {}",
                all.len(),
                first.enrollment.name,
                last.enrollment.name,
                first.address,
                last.address,
                first.enrollment.expires_at
            )?;
            outln!("their private keys were generated in {} and stay there", out.display())?;
            for note in notes.iter().take(SHOWN_NOTES) {
                outln!("note: {note}")?;
            }
            if let Some(more @ 1..) = notes.len().checked_sub(SHOWN_NOTES) {
                outln!("note: {more} more like this; --output json shows all")?;
            }
            outln!("start the first with:\n\n  {}\n", first.command)?;
        }
    }
    Ok(())
}

/// The most notes in the text output.
const SHOWN_NOTES: usize = 5;
