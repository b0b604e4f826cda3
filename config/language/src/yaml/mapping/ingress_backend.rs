//! IngressBackend, of Open Service Mesh.

use super::made::Made;
use super::{Context, FindingReported, Resource};
use crate::table::Value;

pub(super) fn read<'a>(
    made: &mut Made<'a>,
    resource: &Resource<'a>,
    has_spec: bool,
    context: &Context<'_, 'a>,
) -> Result<(), FindingReported> {
    let mut spec = resource.spec("an IngressBackend", has_spec)?;
    let backends = spec.optional("backends", |value| {
        made.put_list("backends", value, |item| backend(item, context).map(Some))
    });
    let sources = spec.optional("sources", |value| {
        made.put_list("sources", value, |item| source(item, context).map(Some))
    });
    let matches = spec.optional("matches", |value| {
        if context.is_of_osm() {
            context.change(
                "Open Service Mesh allowed all requests and ignored `matches`: Ironmesh applies them.",
            );
        }
        made.put_list("matches", value, |item| condition(item).map(Some))
    });
    spec.finish();
    backends.and(sources).and(matches).map(|_| ())
}

fn backend<'a>(item: Value<'a>, context: &Context<'_, 'a>) -> Result<Made<'a>, FindingReported> {
    let mut table = item.table("a backend of an IngressBackend")?;
    let mut made = Made::default();
    made.copy(&mut table, "name", "name");
    let port =
        table.optional("port", |value| made.put_table("port", value, |value| port(value, context)));
    let tls = table.optional("tls", |value| made.put_table("tls", value, tls));
    let is_tls = table.get("port").and_then(|port| port.string_below("protocol")) == Some("https");
    let tls = match tls {
        Ok(None) if is_tls => Err(table.missing("tls")),
        tls => tls,
    };
    table.finish();
    port.and(tls).map(|_| made)
}

fn port<'a>(value: Value<'a>, context: &Context<'_, 'a>) -> Result<Made<'a>, FindingReported> {
    let mut table = value.table("the port of a backend")?;
    let mut made = Made::default();
    made.copy(&mut table, "number", "number");
    made.copy(&mut table, "protocol", "protocol");
    made.copy(&mut table, "ingressPort", "ingress_port");
    table.finish();
    if context.is_of_osm() {
        context.change(
            "The `number` of a port was that of the pods (`targetPort`): here it is the service's.",
        );
    }
    Ok(made)
}

fn tls(value: Value<'_>) -> Result<Made<'_>, FindingReported> {
    let mut table = value.table("the `tls` of a backend")?;
    let mut made = Made::default();
    // Without names, Open Service Mesh allowed any name.
    let hosts = table.required("sniHosts", |_| Ok(()));
    made.copy(&mut table, "sniHosts", "sni_hosts");
    made.copy(&mut table, "skipClientCertValidation", "skip_client_cert_validation");
    table.finish();
    hosts.map(|()| made)
}

fn source<'a>(item: Value<'a>, context: &Context<'_, 'a>) -> Result<Made<'a>, FindingReported> {
    let mut table = item.table("a source of an IngressBackend")?;
    let mut made = Made::default();
    made.copy(&mut table, "kind", "kind");
    made.copy(&mut table, "name", "name");
    made.copy(&mut table, "namespace", "namespace");
    table.finish();
    let name = item.string_below("name").unwrap_or_default();
    let mut labels = name.split('.');
    if let (Some(account), Some(namespace), Some(_)) = (labels.next(), labels.next(), labels.next())
        && item.string_below("kind") == Some("AuthenticatedPrincipal")
        && context.is_of_osm()
    {
        context.change(format!(
            "`{name}` was the identity of an account: here that is `spiffe://mesh.internal/ns/{namespace}/sa/{account}` (with the mesh's trust domain)."
        ));
    }
    Ok(made)
}

fn condition(item: Value<'_>) -> Result<Made<'_>, FindingReported> {
    let mut table = item.table("a match")?;
    let mut made = Made::default();
    made.copy(&mut table, "kind", "kind");
    made.copy(&mut table, "name", "name");
    let group = table.optional("apiGroup", |value| {
        let text = value.string()?;
        // With its version, in the spelling of Open Service Mesh.
        let is_known = text == super::SPECS
            || text.strip_prefix(super::SPECS).is_some_and(|rest| rest.starts_with('/'));
        if is_known { Ok(()) } else { value.equal_to(super::SPECS) }
    });
    table.finish();
    group.map(|_| made)
}
