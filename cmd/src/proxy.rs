//! `ironmesh proxy …`

mod bootstrap;
mod revoke;
mod show;

use std::fmt::Write as _;

use ironmesh_admin::{Client, JoinRecordView, NackView, OriginView, ProxyView};
use ironmesh_catalog::text::escape_line;

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

fn write_revocation(text: &mut String, record: &JoinRecordView) {
    if let Some(revocation) = &record.revoked {
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "  {revocation}");
    }
}

/// What a proxy refuses, what is withheld from it, and what is wrong with what it asks for.
fn write_problems(text: &mut String, proxy: &ProxyView) {
    let mut write = |words: String| text.push_str(&words);
    for nack in &proxy.nacks {
        write(refused(nack));
    }
    for nack in &proxy.withheld {
        write(withheld(nack));
    }
    for finding in &proxy.findings {
        write(format!("  {}[{}]: {}\n", finding.severity, finding.code, finding.message));
    }
}

/// A resource that the proxy refuses, with what Envoy says.
fn refused(nack: &NackView) -> String {
    let (name, message) = (escape_line(&nack.name), escape_line(nack.message.trim_end()));
    format!("  refuses {} `{name}`: {message}\n{}", nack.resource_type, instead(nack))
}

/// A resource that is withheld from the proxy.
fn withheld(nack: &NackView) -> String {
    let (name, message) = (escape_line(&nack.name), escape_line(nack.message.trim_end()));
    format!(
        "  was not asked to take {} `{name}`,\n    which others refuse and nobody has taken: {message}\n{}",
        nack.resource_type,
        instead(nack)
    )
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
        let _ = writeln!(text, "    from {object} ({}:{line}:{column})", escape_line(file));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_nack_text_forges_no_lines_or_terminal_codes() {
        let hostile = "no\u{1b}[2J\n  refuses nothing\u{202e}\n";
        let nack = NackView {
            resource_type: "Listener".to_owned(),
            name: hostile.to_owned(),
            version: "1".to_owned(),
            message: hostile.to_owned(),
            instead: "last_good".to_owned(),
            policy: vec![OriginView {
                object: "service `a`".to_owned(),
                file: hostile.to_owned(),
                line: 1,
                column: 1,
            }],
        };
        for (text, lines) in [(refused(&nack), 3), (withheld(&nack), 4)] {
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
            assert_eq!(text.lines().count(), lines, "{text}");
            assert!(text.contains(": no\\u001b[2J\\u000a  refuses nothing\\u202e\n"), "{text}");
        }
    }
}
