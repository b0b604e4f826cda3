//! `ironmesh proxy bootstrap`: enrolls proxies, and writes their keys, certificates and Envoy bootstraps.
//!
//! Private keys are generated here and never leave this machine.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ironmesh_admin::{BootstrapRequest, Client, EnrolledProxy, EnrollmentRequest, MAX_ENROLLMENTS};
use ironmesh_catalog::{HostUpstream, NodeMetadata, TrustDomain, Upstream};
use ironmesh_sidecar::envoy::{self, Admin};
use ironmesh_sidecar_folder::{
    CommonFiles, EnrollmentState, NewFolder, NewProxy, create_keys, quoted, start_command,
    write_bootstraps,
};
use serde_json::json;
use tokio::task::block_in_place;

use crate::cli::{BootstrapArguments, Output, UpstreamArgument};
use crate::exit::UsageError;
use crate::resolved_settings::ResolvedSettings;
use crate::stdout::{StdoutError, outln};

/// Enrolls one proxy, whose folder is `--out`; or several, each in its own folder below `--out`.
pub(crate) async fn bootstrap(arguments: BootstrapArguments, output: Output) -> anyhow::Result<()> {
    check_local_ports(&arguments.upstreams)?;
    let resolved = ResolvedSettings::load(&arguments.config)?;
    let client = resolved.client();
    let proxies = NewProxy::consecutive(arguments.address, arguments.count)?;
    let folder = NewFolder::create(&arguments.out, 0o700)?;
    if admin(&arguments) == Admin::Socket {
        for proxy in &proxies {
            envoy::check_admin_socket_path(&proxy.folder(&folder))?;
        }
    }
    let mut all = Vec::new();
    let mut notes = Vec::new();
    // Enrolled proxies are kept even if a later batch fails.
    let mut end = Ok(());
    for batch in proxies.chunks(MAX_ENROLLMENTS) {
        match enroll_batch(&client, &arguments, &folder, batch).await {
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
    if rustix::process::geteuid().is_root() {
        notes.insert(0, run_by_root(&path));
    }
    let print = if arguments.count.is_some() { print_batch } else { print_one };
    Ok(print(&arguments, &path, &all, &notes, output)?)
}

/// Fails if two upstreams have the same local port: Envoy would reject one of the listeners.
fn check_local_ports(upstreams: &[UpstreamArgument]) -> Result<(), UsageError> {
    let mut ports = BTreeMap::new();
    for upstream in upstreams {
        if let Some(other) = ports.insert(upstream.local_port(), upstream) {
            return Err(UsageError(format!(
                "two upstreams have the local port {}: `{other}` and `{upstream}`; give each upstream its own port",
                upstream.local_port()
            )));
        }
    }
    Ok(())
}

/// An enrolled proxy, with its folder.
struct WrittenProxy {
    enrollment: EnrolledProxy,
    address: IpAddr,
    folder: PathBuf,
}

/// Enrolls a batch: all proxies, or none.
async fn enroll_batch(
    client: &Client,
    arguments: &BootstrapArguments,
    folder: &NewFolder,
    batch: &[NewProxy],
) -> anyhow::Result<(Vec<WrittenProxy>, Vec<String>)> {
    let requests = block_in_place(|| create_keys(folder, batch))?;
    let proxies = batch.iter().zip(requests).map(|(proxy, certificate_request)| {
        EnrollmentRequest { address: proxy.address, certificate_request }
    });
    let (upstreams, hosts) = split_upstreams(arguments);
    let request = BootstrapRequest {
        services: arguments.services.clone(),
        labels: arguments.labels.iter().map(|(name, word)| (&**name, &**word)).collect(),
        locality: arguments.locality.clone().unwrap_or_default(),
        known_as: arguments.known_as.clone(),
        machine: arguments.azure_vm_id,
        upstreams: upstreams.clone(),
        name: arguments.name.clone(),
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
    let metadata = NodeMetadata {
        bind: arguments.bind,
        app_address: arguments.app_address,
        upstreams,
        hosts,
        access_log_dir: arguments.access_log_dir.clone(),
        unknown: Vec::new(),
    };
    let common = CommonFiles {
        service: arguments.services.first().context("a proxy serves at least one service")?,
        metadata: &metadata,
        admin: admin(arguments),
        control_plane: &response.control_plane,
        control_plane_id: &trust_domain.control_plane().0,
        roots: &response.roots,
        enrollment: &EnrollmentState::new(&response.enrollment, response.issued_at),
    };
    let enrolled = batch.iter().zip(&response.proxies);
    let enrolled: Vec<_> = enrolled.map(|(new, one)| (new, one.id, &*one.certificate)).collect();
    block_in_place(|| write_bootstraps(folder, &enrolled, &common))?;
    let written = batch.iter().zip(response.proxies).map(|(proxy, enrollment)| WrittenProxy {
        enrollment,
        address: proxy.address,
        folder: proxy.folder(folder),
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
    let (Some(service), Some(WrittenProxy { enrollment, .. })) =
        (arguments.services.first(), all.first())
    else {
        return Ok(());
    };
    let command = start_command(out);
    match output {
        Output::Json => outln!(
            "{:#}",
            json!({
                "id": enrollment.id,
                "name": enrollment.name,
                "folder": out,
                "expires_at": enrollment.expires_at,
                "command": command,
                "notes": notes,
            })
        )?,
        Output::Text => {
            outln!(
                "proxy {} ({}) is enrolled as {service}; its certificate expires at {}",
                enrollment.name,
                enrollment.id,
                enrollment.expires_at
            )?;
            outln!("its private key was generated in {} and stays there", out.display())?;
            for note in notes {
                outln!("note: {note}")?;
            }
            outln!("start it with:\n\n  {command}\n")?;
        }
    }
    Ok(())
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
                    "command": start_command(&enrolled.folder),
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
            outln!("start the first with:\n\n  {}\n", start_command(&first.folder))?;
        }
    }
    Ok(())
}

/// The advice for root, who would run the printed command as root. Envoy opens the files that its configuration
/// names, and accepts connections from the network.
fn run_by_root(folder: &Path) -> String {
    let folder = quoted(folder);
    format!(
        "running as root: start Envoy as an unprivileged user that can read {folder}, for example \
         `chown -R envoy: {folder}` and `User=envoy` in its systemd unit"
    )
}

/// The most notes in the text output.
const SHOWN_NOTES: usize = 5;

fn admin(arguments: &BootstrapArguments) -> Admin {
    if arguments.admin_tcp { Admin::Tcp } else { Admin::Socket }
}

/// The upstream services and the upstream hosts.
fn split_upstreams(arguments: &BootstrapArguments) -> (Vec<Upstream>, Vec<HostUpstream>) {
    let (mut upstreams, mut hosts) = (Vec::new(), Vec::new());
    for upstream in &arguments.upstreams {
        match upstream {
            UpstreamArgument::Service(upstream) => upstreams.push(upstream.clone()),
            UpstreamArgument::Host(host) => hosts.push(host.clone()),
        }
    }
    (upstreams, hosts)
}
