//! `ironmesh operator`: gives and takes the access of operators.
//!
//! The key of an operator is created on the operator's machine, and no command sends it.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use ironmesh_api::{CredentialRequest, IssuedCredential, RevokeOperatorRequest};
use ironmesh_cert::generate_proxy_key_and_csr;
use ironmesh_command_line::{
    ConnectionArguments, NewCredentialArguments, OperatorCommand, OperatorRequestArguments,
    OperatorRevokeArguments, Output,
};
use ironmesh_terminal::stdout::{out, outln};
use ironmesh_views::operators;
use jiff::Timestamp;
use serde_json::json;

use crate::resolved_settings::ResolvedSettings;

/// Runs a command of `ironmesh operator`.
pub(crate) async fn run(command: OperatorCommand, output: Output) -> anyhow::Result<()> {
    match command {
        OperatorCommand::Request(arguments) => request(&arguments, output),
        OperatorCommand::Issue(arguments) => {
            let csr = fs_err::read_to_string(&arguments.csr).context("cannot read the request")?;
            issue(&arguments.new, Some(csr), &arguments.config, output).await
        }
        OperatorCommand::Token(arguments) => {
            issue(&arguments.new, None, &arguments.config, output).await
        }
        OperatorCommand::List(arguments) => {
            let list = ResolvedSettings::connect(&arguments.config)?.client().operators().await?;
            match output {
                Output::Json => outln!("{}", serde_json::to_string_pretty(&list)?)?,
                Output::Text if list.operators.is_empty() => outln!(
                    "no operators: the owner of the admin socket issues the first credential with `ironmesh operator issue`"
                )?,
                Output::Text => {
                    for line in operators::table(&list, Timestamp::now()) {
                        outln!("{line}")?;
                    }
                }
            }
            Ok(())
        }
        OperatorCommand::Revoke(arguments) => revoke(arguments, output).await,
    }
}

/// Creates a key and a certificate signing request.
fn request(arguments: &OperatorRequestArguments, output: Output) -> anyhow::Result<()> {
    let OperatorRequestArguments { name, out } = arguments;
    let (key, csr) = generate_proxy_key_and_csr()?;
    let (key_file, csr_file) = (out.join(format!("{name}.key")), out.join(format!("{name}.csr")));
    // The request first: a key without one is useless.
    write_new(&csr_file, &csr, 0o644)?;
    write_new(&key_file, key.expose(), 0o600).inspect_err(|_| {
        // The first error says more.
        let _ = fs_err::remove_file(&csr_file);
    })?;
    match output {
        Output::Json => {
            outln!("{:#}", json!({ "key": key_file, "certificate_request": csr_file }))?;
        }
        Output::Text => outln!(
            "wrote the key `{}`, which stays here, and the request `{}`\n\
             an admin of the mesh runs `ironmesh operator issue {name} --role ROLE --csr {name}.csr` and returns {name}.json; then:\n  \
             ironmesh context add NAME --credential {name}.json --key {}",
            key_file.display(),
            csr_file.display(),
            key_file.display(),
        )?,
    }
    Ok(())
}

/// Issues a credential, and writes it into a new file.
async fn issue(
    new: &NewCredentialArguments,
    certificate_request: Option<String>,
    config: &ConnectionArguments,
    output: Output,
) -> anyhow::Result<()> {
    let NewCredentialArguments { name, role, out, .. } = new;
    let out = out.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.json")));
    // Before the credential exists: without a file it would be lost.
    let mut file = new_file(&out, 0o600)?;
    let issued = request_credential(new, certificate_request, config).await;
    let issued = issued.inspect_err(|_| {
        // The error of the request says more.
        let _ = fs_err::remove_file(&out);
    })?;
    let written =
        file.write_all(format!("{}\n", serde_json::to_string_pretty(&issued)?).as_bytes());
    written.with_context(|| {
        format!(
            "credential {} is issued and cannot be written: `ironmesh operator revoke {name} --credential {}`",
            issued.id, issued.id
        )
    })?;
    let IssuedCredential { id, expires_at, token, servers, .. } = &issued;
    let kind = if token.is_some() { "token" } else { "certificate" };
    match output {
        Output::Json => outln!(
            "{:#}",
            json!({ "file": out, "id": id, "kind": kind, "expires_at": expires_at })
        )?,
        Output::Text => {
            outln!(
                "wrote {kind} {id} of operator {name} with role {role} into `{}`; it expires at {expires_at:.0}",
                out.display()
            )?;
            if servers.is_empty() {
                outln!(
                    "note: `listen.api` is not set at this control plane: set it, or name a server with `context add --server`"
                )?;
            }
        }
    }
    Ok(())
}

async fn request_credential(
    new: &NewCredentialArguments,
    certificate_request: Option<String>,
    config: &ConnectionArguments,
) -> anyhow::Result<IssuedCredential> {
    let request = CredentialRequest {
        name: new.name.clone(),
        role: new.role,
        lifetime: new.expires.as_secs(),
        certificate_request,
    };
    Ok(ResolvedSettings::connect(config)?.client().issue_credential(&request).await?)
}

/// Revokes credentials of an operator.
async fn revoke(arguments: OperatorRevokeArguments, output: Output) -> anyhow::Result<()> {
    let OperatorRevokeArguments { name, credential, reason, config } = arguments;
    let client = ResolvedSettings::connect(&config)?.client();
    let request = RevokeOperatorRequest { credential, reason };
    let operator = client.revoke_operator(&name, &request).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&operator)?)?,
        Output::Text => out!("{}", operators::after_revocation(&operator))?,
    }
    Ok(())
}

/// Writes a file that does not exist yet.
fn write_new(path: &Path, content: &str, mode: u32) -> anyhow::Result<()> {
    Ok(new_file(path, mode)?.write_all(content.as_bytes())?)
}

/// Creates a file that does not exist yet.
fn new_file(path: &Path, mode: u32) -> anyhow::Result<fs_err::File> {
    let file = fs_err::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.context("nothing was made: choose a different place")
}
