//! `ironmesh provider`: lists the endpoints providers of a mesh, and tests them without a control plane.

mod report;

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use ironmesh_catalog::{AzureQuery, MeshSpecification, ServiceName};
use ironmesh_command_line::{AzureTestArguments, Output, ProviderListArguments};
use ironmesh_config_language::{Loaded, load_documents};
use ironmesh_config_settings::PolicyLocation;
use ironmesh_config_sources::{EtcdPolicy, load_folder};
use ironmesh_control_plane::{azure_options, current_release};
use ironmesh_providers::azure::survey;
use ironmesh_views::configuration::providers_text;
use jiff::Timestamp;

use crate::exit::{ExitWith, UsageError};
use crate::policy;
use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};
use report::AzureTestReport;

/// Lists the endpoints providers of the mesh.
pub(crate) async fn list(arguments: &ProviderListArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let list = client.providers().await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&list)?)?,
        Output::Text => out!("{}", providers_text(&list, Timestamp::now()))?,
    }
    Ok(())
}

/// Queries Azure once for the services of the policy, and prints the answers.
pub(crate) async fn test_azure(
    arguments: &AzureTestArguments,
    output: Output,
) -> anyhow::Result<()> {
    let resolved = ResolvedSettings::load(&arguments.config)?;
    let loaded = match (&arguments.policy, &resolved.policy) {
        (Some(path), _) | (None, PolicyLocation::Folder(path)) => load_folder(path)?,
        (None, PolicyLocation::Etcd(etcd)) => {
            let pushed = EtcdPolicy::open(etcd.clone())?.current().await?;
            load_documents(pushed.documents)
        }
        (None, PolicyLocation::Releases) => load_folder(&current_release(&resolved.state))?,
    };
    let Loaded { specification: Some(specification), .. } = &loaded else {
        policy::print_loaded(&loaded, output)?;
        bail!(policy::rejection(&loaded, "the policy"));
    };
    let queries = azure_queries(specification, &arguments.services)?;
    let options = azure_options(&resolved.settings.azure);
    let found = survey(options, queries.clone(), Timestamp::now).await;
    let found = found.context("cannot query Azure: fix `[azure]` in the settings")?;
    let report = AzureTestReport::new(&queries, &found);
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&report)?)?,
        Output::Text => out!("{}", report.text())?,
    }
    if report.is_good { Ok(()) } else { Err(ExitWith(1).into()) }
}

/// The Azure queries of these services; of all services that use Azure, if `services` is empty.
fn azure_queries(
    specification: &MeshSpecification,
    services: &[ServiceName],
) -> anyhow::Result<BTreeMap<ServiceName, Vec<AzureQuery>>> {
    let of = |name: &ServiceName| {
        let providers = specification.services.get(name)?.endpoints.providers()?;
        (!providers.azure.is_empty()).then(|| providers.azure.clone())
    };
    if services.is_empty() {
        let all = specification.services.keys();
        let all: BTreeMap<_, _> = all.filter_map(|name| Some((name.clone(), of(name)?))).collect();
        if all.is_empty() {
            let advice = "add `[service.endpoints.azure_scale_set]` to a service";
            bail!(UsageError(format!("no service of the policy uses Azure: {advice}")));
        }
        return Ok(all);
    }
    let one = |name: &ServiceName| match of(name) {
        Some(queries) => Ok((name.clone(), queries)),
        None if specification.services.contains_key(name) => {
            Err(UsageError(format!("the service `{name}` does not use Azure")).into())
        }
        None => Err(UsageError(format!("policy defines no service `{name}`")).into()),
    };
    services.iter().map(one).collect()
}
