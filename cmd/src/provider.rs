//! `ironmesh provider`: endpoints providers, tried without a control plane.

mod told;

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use ironmesh_catalog::{AzureQuery, MeshSpecification, ServiceName};
use ironmesh_config_language::{Loaded, load_documents};
use ironmesh_config_settings::PolicyPlace;
use ironmesh_config_sources::{EtcdPolicy, load_folder};
use ironmesh_control_plane::azure_options;
use ironmesh_providers::azure::survey;
use jiff::Timestamp;

use crate::cli::{AzureTestArguments, Output};
use crate::exit::{Answered, Usage};
use crate::places::Places;
use crate::policy;
use crate::stdout::{out, outln};
use told::Told;

/// Asks Azure once what policy asks it, and tells what is answered.
pub(crate) async fn test_azure(
    arguments: &AzureTestArguments,
    output: Output,
) -> anyhow::Result<()> {
    let places = Places::find(&arguments.config)?;
    let loaded = match (&arguments.policy, &places.policy) {
        (Some(path), _) | (None, PolicyPlace::Folder(path)) => load_folder(path)?,
        (None, PolicyPlace::Etcd(etcd)) => {
            let pushed = EtcdPolicy::open(etcd.clone())?.current().await?;
            load_documents(pushed.documents)
        }
    };
    let Loaded { specification: Some(specification), .. } = &loaded else {
        policy::tell(&loaded, output)?;
        bail!(policy::refusal(&loaded, "the policy"));
    };
    let asked = asked(specification, &arguments.services)?;
    let options = azure_options(&places.settings.azure);
    let found = survey(options, asked.clone(), Timestamp::now).await;
    let found = found.context("cannot ask Azure: mend `[azure]` in the settings")?;
    let told = Told::new(&asked, &found);
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&told)?)?,
        Output::Text => out!("{}", told.text())?,
    }
    if told.is_good { Ok(()) } else { Err(Answered(1).into()) }
}

/// What services ask of Azure: these, or all that ask something.
fn asked(
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
            let advice = "give one of them `[service.endpoints.azure_scale_set]`";
            bail!(Usage(format!("no service of the policy asks Azure: {advice}")));
        }
        return Ok(all);
    }
    let one = |name: &ServiceName| match of(name) {
        Some(queries) => Ok((name.clone(), queries)),
        None if specification.services.contains_key(name) => {
            Err(Usage(format!("the service `{name}` asks nothing of Azure")).into())
        }
        None => Err(Usage(format!("policy defines no service `{name}`")).into()),
    };
    services.iter().map(one).collect()
}
