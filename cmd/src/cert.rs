//! `ironmesh cert`: the certificates of the mesh, as a list and as a summary.

mod summary;
mod table;
#[cfg(test)]
mod tests;

use ironmesh_admin::CertificateList;
use jiff::Timestamp;

use crate::cli::{CertCommand, CertListArguments, CertStatusArguments, Output, OutputFormat};
use crate::exit::InvalidInput;
use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};

/// Runs a command of `ironmesh cert`.
pub(crate) async fn run(command: CertCommand, format: OutputFormat) -> anyhow::Result<()> {
    let (CertCommand::List(CertListArguments { config, .. })
    | CertCommand::Status(CertStatusArguments { config })) = &command;
    let mut list = ResolvedSettings::load(config)?.client().certificates().await?;
    let CertCommand::List(CertListArguments { kind, .. }) = command else {
        return status(&list, format.into());
    };
    list.certificates.retain(|one| kind.is_none_or(|kind| kind == one.kind));
    let now = Timestamp::now();
    match format {
        OutputFormat::Json => outln!("{}", serde_json::to_string_pretty(&list)?)?,
        OutputFormat::Text => out!("{}", table::narrow(&list.certificates, now))?,
        OutputFormat::Wide => out!("{}", table::wide(&list.certificates, now))?,
    }
    Ok(())
}

/// Prints the summary. Fails if a certificate in use has expired, or should have been renewed.
fn status(list: &CertificateList, output: Output) -> anyhow::Result<()> {
    let summary = list.summary();
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&summary)?)?,
        Output::Text => out!("{}", summary::text(&summary, Timestamp::now()))?,
    }
    let problem = match summary.failures() {
        0 => return Ok(()),
        1 => "1 certificate in use has expired or is overdue for renewal".to_owned(),
        several => format!("{several} certificates in use have expired or are overdue for renewal"),
    };
    Err(InvalidInput(problem).into())
}
