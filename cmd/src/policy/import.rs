//! `ironmesh policy import`: reads YAML, writes TOML, and reports what could not be converted.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use fs_err as fs;
use ironmesh_api::FindingView;
use ironmesh_catalog::Finding;
use ironmesh_catalog::text::escape_output;
use ironmesh_command_line::{ImportArguments, Output, SourceMesh};
use ironmesh_config_language::{Document, ImportDialect, ImportError, Imported, Remark, render};
use ironmesh_config_sources::read_input;
use serde_json::{Value, json};

use super::check::counted;
use crate::exit::{InvalidInput, UsageError};
use ironmesh_terminal::color;
use ironmesh_terminal::stdout::{out, outln};

/// Converts resources in YAML to policy in TOML.
pub(crate) fn import(arguments: &ImportArguments, output: Output) -> anyhow::Result<()> {
    let documents = arguments.files.iter().map(|path| read_input(path));
    let documents = documents.collect::<Result<Vec<_>, _>>()?;
    let dialect = arguments.from.map(|from| match from {
        SourceMesh::Smi => ImportDialect::Smi,
        SourceMesh::Osm => ImportDialect::Osm,
    });
    let path = match &arguments.out {
        Some(out) => out.display().to_string(),
        None => "stdout".to_owned(),
    };
    match ironmesh_config_language::import(&documents, dialect, &path) {
        Ok(imported) => write_imported(&imported, &path, arguments.out.as_deref(), output),
        Err(ImportError::Broken(findings)) => report_broken(&findings, &documents, output),
        Err(ImportError::Unclear(spots)) => Err(ambiguous(&spots)),
    }
}

#[expect(clippy::print_stderr, reason = "stdout is the policy")]
fn write_imported(
    imported: &Imported,
    path: &str,
    out: Option<&Path>,
    output: Output,
) -> anyhow::Result<()> {
    let Imported { toml, carried, left_out, changed, missing, findings } = imported;
    // A file without policy would only block the next attempt.
    if let Some(out) = out.filter(|_| *carried > 0) {
        let file = fs::OpenOptions::new().write(true).create_new(true).open(out);
        let file = file.context(
            "existing files are not overwritten: remove the file, or choose a different path",
        );
        file?.write_all(toml.as_bytes())?;
    }
    match output {
        Output::Json => {
            let remarks = |list: &[Remark]| list.iter().map(view).collect::<Vec<_>>();
            let findings: Vec<_> = findings.iter().map(FindingView::from).collect();
            let all = json!({
                "toml": toml,
                "carried": carried,
                "left_out": remarks(left_out),
                "changed": remarks(changed),
                "missing": missing,
                "findings": findings,
            });
            outln!("{all:#}")?;
        }
        Output::Text => {
            if out.is_none() {
                out!("{toml}")?;
            }
            print_findings(findings, &[Document::new(path, toml.as_str())]);
            for Remark { spot, resource, text } in left_out {
                let place = format!("{}:{}", spot.file, spot.line);
                let remark = format!("left out: {resource} ({place}): {text}");
                eprintln!("{}", escape_output(&remark));
            }
            for one in missing {
                eprintln!("missing in the input: {}", escape_output(one));
            }
            eprintln!(
                "{} converted; left out: {}, changed: {}, missing: {}",
                counted(*carried, "resource"),
                left_out.len(),
                changed.len(),
                missing.len(),
            );
        }
    }
    let errors = findings.iter().filter(|finding| finding.is_error()).count();
    if errors > 0 {
        let errors = counted(errors, "error");
        anyhow::bail!(InvalidInput(format!("the converted policy is rejected: {errors}")));
    }
    if *carried == 0 {
        let what = match left_out.len() {
            0 => "the input has no mesh resources".to_owned(),
            count => format!("{} left out, with the reasons above", counted(count, "resource")),
        };
        anyhow::bail!("nothing was converted: {what}");
    }
    Ok(())
}

fn view(remark: &Remark) -> Value {
    let Remark { spot, resource, text } = remark;
    json!({ "file": &*spot.file, "line": spot.line, "resource": resource, "text": text })
}

/// Prints the findings of invalid input, and fails.
fn report_broken(
    findings: &[Finding],
    documents: &[Document],
    output: Output,
) -> anyhow::Result<()> {
    match output {
        Output::Json => {
            let findings: Vec<_> = findings.iter().map(FindingView::from).collect();
            outln!("{:#}", json!({ "toml": null, "findings": findings }))?;
        }
        Output::Text => print_findings(findings, documents),
    }
    let errors = counted(findings.len(), "error");
    anyhow::bail!(InvalidInput(format!("nothing was converted: {errors} in the input")))
}

/// Prints findings on stderr.
#[expect(clippy::print_stderr, reason = "stdout is the policy")]
fn print_findings(findings: &[Finding], documents: &[Document]) {
    if !findings.is_empty() {
        let color = color::is_enabled(&std::io::stderr());
        eprintln!("{}\n", render(findings, documents, color).trim_end());
    }
}

/// The error for resources that SMI and Open Service Mesh enforce differently.
fn ambiguous(spots: &[(ironmesh_catalog::Spot, String)]) -> anyhow::Error {
    let first = spots.first().map_or(String::new(), |(spot, what)| format!("{what} in {spot}"));
    let more = match spots.len() {
        0 | 1 => String::new(),
        2 => " and 1 more place".to_owned(),
        count => format!(" and {} more places", count - 1),
    };
    UsageError(format!(
        "{first}{more}: Open Service Mesh allows less by this than the SMI specification. Add `--from osm` if Open \
         Service Mesh enforced the policy, otherwise `--from smi`"
    ))
    .into()
}
