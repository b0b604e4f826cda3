//! `ironmesh proxy …`

mod bootstrap;
mod revoke;
mod show;

use std::fmt::Write as _;

use ironmesh_admin::{Client, NackView, OriginView, ProxyView};
use ironmesh_catalog::JoinRecord;

pub(crate) use self::bootstrap::bootstrap;
pub(crate) use self::revoke::revoke;
pub(crate) use self::show::show;
use crate::cli::{ListArguments, Output};
use crate::places::Places;
use crate::stdout::{out, outln};

/// Lists the proxies that have joined.
pub(crate) async fn list(arguments: &ListArguments, output: Output) -> anyhow::Result<()> {
    let places = Places::find(&arguments.config)?;
    let proxies = Client::new(&places.admin_socket()).proxies().await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&proxies)?)?,
        Output::Text => {
            outln!("{:<36}  {:<21}  {:<9}  SERVICES", "PROXY", "ADDRESS", "STATE")?;
            for proxy in &proxies {
                out!("{}", row(proxy))?;
            }
        }
    }
    Ok(())
}

/// A proxy in a row of the list, and what is to be known of it below.
fn row(proxy: &ProxyView) -> String {
    let record = &proxy.record;
    let services: Vec<_> = record.services.iter().map(ToString::to_string).collect();
    let (id, address, state) = (record.id, record.mesh_address, &proxy.state);
    let mut text = format!("{id:<36}  {address:<21}  {state:<9}  {}\n", services.join(", "));
    write_revocation(&mut text, record);
    write_problems(&mut text, proxy);
    text
}

fn write_revocation(text: &mut String, record: &JoinRecord) {
    if let Some(revocation) = &record.revoked {
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "  {revocation}");
    }
}

/// What a proxy refuses, what is withheld from it, and what is wrong with what it asks for.
fn write_problems(text: &mut String, proxy: &ProxyView) {
    let mut write = |words: String| text.push_str(&words);
    for nack in &proxy.nacks {
        write(format!("  refuses {} `{}`: {}\n", nack.resource_type, nack.name, nack.message));
        write(instead(nack));
    }
    for nack in &proxy.withheld {
        write(format!("  was not asked to take {} `{}`,\n", nack.resource_type, nack.name));
        write(format!("    which others refuse and nobody has taken: {}\n", nack.message));
        write(instead(nack));
    }
    for finding in &proxy.findings {
        write(format!("  {}[{}]: {}\n", finding.severity, finding.code, finding.message));
    }
}

fn instead(nack: &NackView) -> String {
    let mut text = match &*nack.instead {
        "closed" => "    until policy changes, it lets nobody in there\n",
        "narrowed" => "    until policy changes, it allows what was allowed before as well\n",
        _ => "    it goes on with what it had before, if anything\n",
    }
    .to_owned();
    for origin in &nack.policy {
        let OriginView { object, file, line, column } = origin;
        let _ = writeln!(text, "    from {object} ({file}:{line}:{column})");
    }
    text
}
