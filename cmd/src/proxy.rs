//! `ironmesh proxy …`

mod bootstrap;
mod folder;

use ironmesh_admin::{Client, NackView, ProxyView};
use jiff::Timestamp;

pub(crate) use self::bootstrap::bootstrap;
use crate::cli::{ListArguments, Output};
use crate::places::Places;

/// Lists the proxies that have joined.
#[expect(clippy::print_stdout, reason = "the list is this command's result")]
pub(crate) async fn list(arguments: &ListArguments, output: Output) -> anyhow::Result<()> {
    let places = Places::find(&arguments.config)?;
    let proxies = Client::new(&places.admin_socket()).proxies().await?;
    match output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&proxies)?),
        Output::Text => {
            println!("{:<36}  {:<21}  {:<9}  SERVICES", "PROXY", "ADDRESS", "STATE");
            for proxy in &proxies {
                print_proxy(proxy);
            }
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the list is this command's result")]
fn print_proxy(proxy: &ProxyView) {
    let record = &proxy.record;
    let state = match (proxy.streams, record.claimed_at) {
        (0, _) if record.certificate_expires_at < Timestamp::now() => "expired",
        (0, None) => "unclaimed",
        (0, Some(_)) => "away",
        _ => "connected",
    };
    let services: Vec<_> = record.services.iter().map(ToString::to_string).collect();
    println!("{:<36}  {:<21}  {state:<9}  {}", record.id, record.mesh_address, services.join(", "));
    for nack in &proxy.nacks {
        println!("  refuses {} `{}`: {}", nack.resource_type, nack.name, nack.message);
        print_instead(nack);
    }
    for nack in &proxy.withheld {
        println!("  was not asked to take {} `{}`,", nack.resource_type, nack.name);
        println!("    which others refuse and nobody has taken: {}", nack.message);
        print_instead(nack);
    }
    for finding in &proxy.findings {
        println!("  {}[{}]: {}", finding.severity, finding.code, finding.message);
    }
}

#[expect(clippy::print_stdout, reason = "the list is this command's result")]
fn print_instead(nack: &NackView) {
    match &*nack.instead {
        "closed" => println!("    until policy changes, it lets nobody in there"),
        "narrowed" => {
            println!("    until policy changes, it allows what was allowed before as well");
        }
        _ => println!("    it goes on with what it had before, if anything"),
    }
    for origin in &nack.policy {
        println!("    from {} ({}:{}:{})", origin.object, origin.file, origin.line, origin.column);
    }
}
