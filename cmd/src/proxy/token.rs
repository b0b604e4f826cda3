//! `ironmesh proxy token`: creates, lists and revokes the one-time tokens by which machines enroll.

mod revoke;

use std::net::IpAddr;

use ironmesh_admin::{CreatedTokens, TokenList, TokenRequest, TokenView};
use ironmesh_enrollment::ControlPlaneAddress;
use jiff::Timestamp;

use crate::cli::{Output, TokenArguments, TokenCommand, TokenListArguments};
use crate::resolved_settings::ResolvedSettings;
use crate::stdout::{StdoutError, outln};
use crate::table::{CutAt, TERMINAL_WIDTH, age, aligned, fit};

const HEADINGS: [&str; 5] = ["ID", "STATE", "SERVICES", "CREATED", "PROXY"];

/// The columns that are cut in turn so that a row fits, with their least widths: services and proxy.
const CUT: [(usize, usize, CutAt); 2] = [(2, 10, CutAt::End), (4, 12, CutAt::End)];

/// Creates tokens, or runs a command about existing ones.
pub(crate) async fn token(arguments: TokenArguments, output: Output) -> anyhow::Result<()> {
    match arguments.command {
        Some(TokenCommand::List(arguments)) => list(&arguments, output).await,
        Some(TokenCommand::Revoke(arguments)) => revoke::revoke(arguments, output).await,
        None => create(arguments, output).await,
    }
}

async fn create(arguments: TokenArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::load(&arguments.config)?.client();
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

async fn list(arguments: &TokenListArguments, output: Output) -> anyhow::Result<()> {
    let list = ResolvedSettings::load(&arguments.config)?.client().tokens().await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&list)?)?,
        Output::Text => {
            for line in table(&list, Timestamp::now()) {
                outln!("{line}")?;
            }
        }
    }
    Ok(())
}

/// The table. Below the row of a token are its revocation and its misuse.
fn table(list: &TokenList, now: Timestamp) -> Vec<String> {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(list.tokens.iter().map(|token| cells(token, now)));
    fit(&mut rows, TERMINAL_WIDTH, &CUT);
    let mut rows = aligned(&rows).into_iter();
    let mut lines: Vec<_> = rows.next().into_iter().collect();
    for (row, token) in rows.zip(&list.tokens) {
        lines.push(row);
        lines.extend(token.revoked.as_ref().map(|revocation| format!("  {revocation}")));
        lines.extend(token.misused.as_ref().map(|misused| {
            let (from, at) = (misused.from, misused.at);
            format!("  presented again, with another key, by {from} on {at:.0}")
        }));
    }
    lines
}

fn cells(token: &TokenView, now: Timestamp) -> [String; 5] {
    let services: Vec<_> = token.services.iter().map(ToString::to_string).collect();
    let proxy = token.used.as_ref().map_or_else(
        || "-".to_owned(),
        |used| used.name.as_ref().map_or_else(|| used.proxy.to_string(), ToString::to_string),
    );
    [
        token.id.to_string(),
        token.state.clone(),
        services.join(","),
        age(token.created_at, now),
        proxy,
    ]
}
