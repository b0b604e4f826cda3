//! `ironmesh proxy token`: creates, lists and revokes the one-time tokens by which machines enroll.

mod list;
mod revoke;

use std::net::IpAddr;

use ironmesh_api::{CreatedTokens, TokenRequest};
use ironmesh_command_line::{Output, OutputFormat, TokenArguments, TokenCommand};
use ironmesh_enrollment::ControlPlaneAddress;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{StdoutError, outln};

/// Creates tokens, or runs a command about existing ones.
pub(crate) async fn token(arguments: TokenArguments, format: OutputFormat) -> anyhow::Result<()> {
    match arguments.command {
        Some(TokenCommand::List(arguments)) => list::list(&arguments, format).await,
        Some(TokenCommand::Revoke(arguments)) => revoke::revoke(arguments, format.into()).await,
        None => create(arguments, format.into()).await,
    }
}

async fn create(arguments: TokenArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let request = TokenRequest {
        new_authority: arguments.new_authority,
        services: arguments.services,
        labels: arguments.labels.iter().map(|(name, word)| (&**name, &**word)).collect(),
        locality: arguments.locality.unwrap_or_default(),
        known_as: arguments.known_as,
        machine: arguments.azure_vm_id,
        driver: arguments.sidecar,
        addresses: arguments.address,
        ttl: arguments.ttl.as_secs(),
        count: usize::try_from(arguments.count)?,
    };
    let created = client.create_tokens(&request).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&created)?)?,
        // Only tokens, one per line, so that scripts can read them.
        Output::Text => print(&created)?,
    }
    Ok(())
}

/// Prints the tokens on stdout, and on stderr how machines use them.
#[expect(clippy::print_stderr, reason = "a notice beside the result")]
fn print(created: &CreatedTokens) -> Result<(), StdoutError> {
    for one in &created.tokens {
        outln!("{}", one.token.expose())?;
    }
    let plural = if created.tokens.len() == 1 { "the token" } else { "each token" };
    eprintln!(
        "{plural} enrolls one machine before {:.0}; write it to a file that only root can read, and run there:\n\n  {}\n",
        created.expires_at,
        join_command(created)
    );
    let is_local =
        |(host, _): &(String, u16)| host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    if created.enrollment.iter().all(is_local) {
        eprintln!(
            "note: the command names the control plane by an address of this machine; for other machines set `advertise` in the settings"
        );
    }
    Ok(())
}

/// The command that enrolls a machine.
fn join_command(created: &CreatedTokens) -> String {
    let address = |(host, port): &(String, u16)| {
        format!("https://{}", ControlPlaneAddress { host: host.clone(), port: *port })
    };
    let addresses: Vec<_> = created.enrollment.iter().map(address).collect();
    let hashes: Vec<_> = created.ca_hashes.iter().map(|hash| format!("--ca-hash {hash}")).collect();
    format!(
        "ironmesh agent join {} --token-file FILE {} --out DIR",
        addresses.join(" "),
        hashes.join(" ")
    )
}
