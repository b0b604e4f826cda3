//! `ironmesh cert`: the certificates of the mesh, as a list and as a summary.

use ironmesh_api::CertificateList;
use ironmesh_command_line::{
    CertCommand, CertListArguments, CertStatusArguments, Output, OutputFormat,
};
use ironmesh_views::certificates::{narrow, summary_text, wide};
use jiff::Timestamp;

use crate::exit::InvalidInput;
use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};

/// Runs a command of `ironmesh cert`.
pub(crate) async fn run(command: CertCommand, format: OutputFormat) -> anyhow::Result<()> {
    let (CertCommand::List(CertListArguments { config, .. })
    | CertCommand::Status(CertStatusArguments { config })) = &command;
    let mut list = ResolvedSettings::connect(config)?.client().certificates().await?;
    let CertCommand::List(CertListArguments { kind, .. }) = command else {
        return status(&list, format.into());
    };
    list.certificates.retain(|one| kind.is_none_or(|kind| kind == one.kind));
    let now = Timestamp::now();
    match format {
        OutputFormat::Json => outln!("{}", serde_json::to_string_pretty(&list)?)?,
        OutputFormat::Text => out!("{}", narrow(&list.certificates, now))?,
        OutputFormat::Wide => out!("{}", wide(&list.certificates, now))?,
    }
    Ok(())
}

/// Prints the summary. Fails if a certificate in use has expired, or should have been renewed.
fn status(list: &CertificateList, output: Output) -> anyhow::Result<()> {
    let summary = list.summary();
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&summary)?)?,
        Output::Text => out!("{}", summary_text(&summary, Timestamp::now()))?,
    }
    let problem = match summary.failures() {
        0 => return Ok(()),
        1 => "1 certificate in use has expired or is overdue for renewal".to_owned(),
        several => format!("{several} certificates in use have expired or are overdue for renewal"),
    };
    Err(InvalidInput(problem).into())
}

#[cfg(test)]
mod tests {
    use ironmesh_api::{CertificateKind, CertificateProblem, CertificateUse, CertificateView};

    use super::*;
    use crate::exit;

    #[test]
    fn status_exits_with_3_only_if_a_certificate_in_use_failed() {
        let view = |problem| CertificateView {
            kind: CertificateKind::Service,
            subject: "spiffe://mesh.internal/sa/shop/web".to_owned(),
            name: "shop/web".to_owned(),
            serial: None,
            state: "valid".to_owned(),
            issued_at: None,
            age_seconds: None,
            not_after: Timestamp::UNIX_EPOCH,
            renew_at: None,
            used_by: CertificateUse::Proxies(1),
            problem,
        };
        let list = |problems: [Option<CertificateProblem>; 2]| CertificateList {
            certificates: problems.map(view).to_vec(),
        };
        assert!(status(&list([None, None]), Output::Json).is_ok());
        let problems = [CertificateProblem::Expired, CertificateProblem::Overdue].map(Some);
        let error = status(&list(problems), Output::Json).unwrap_err();
        assert_eq!(exit::number(&error), 3);
        assert!(error.to_string().starts_with("2 certificates in use have expired"), "{error}");
    }
}
