//! What stands in for a resource that carries authorization and that a proxy refuses.
//!
//! A proxy that refuses a resource goes on with the one before, and so with the authorization of
//! before: a caller who was withdrawn would be let in for ever. So it is sent another: of the last one
//! that was taken, what is allowed now as well; and if it refuses that too, one that allows nothing
//! (invariant 7: last good never restores access).

use ironmesh_xds_wire::pb::envoy::config::route::v3::RouteConfiguration;
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::rbac::v3::RbacPerRoute;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, secret,
};
use ironmesh_xds_wire::pb::google::protobuf::Any;
use ironmesh_xds_wire::{Resource, ResourceType, any};
use prost::Message as _;

use crate::authorization::RBAC_FILTER;
use crate::names;
use crate::secret::nobody;

/// Whether a resource says who may call: then the one before must not stay in force instead of it.
pub fn carries_authorization(resource: &Resource) -> bool {
    match resource.resource_type() {
        ResourceType::Route => resource.name().starts_with(names::INBOUND),
        ResourceType::Secret => resource.name().starts_with(names::CALLERS),
        ResourceType::Cluster | ResourceType::Endpoint | ResourceType::Listener => false,
    }
}

/// The last good one, with what both it and the refused one allow. `None` where a resource carries no
/// authorization.
pub fn narrowed(refused: &Resource, last_good: &Resource) -> Option<Resource> {
    if !carries_authorization(refused) {
        return None;
    }
    if refused.resource_type() == ResourceType::Secret {
        return narrowed_secret(refused, last_good);
    }
    let now = per_route(&refused.message()?)?;
    let mut routes: RouteConfiguration = last_good.message()?;
    let mut rbac = per_route(&routes)?;
    let allowed = now.rbac?.rules?.policies;
    let rules = rbac.rbac.as_mut()?.rules.as_mut()?;
    rules.policies.retain(|name, policy| allowed.get(name) == Some(policy));
    put(&mut routes, &rbac)?;
    Some(Resource::new(&routes).urgent())
}

fn narrowed_secret(refused: &Resource, last_good: &Resource) -> Option<Resource> {
    let (mut now, mut secret): (Secret, Secret) = (refused.message()?, last_good.message()?);
    let now = context(&mut now)?;
    let old = context(&mut secret)?;
    let allowed = &now.match_typed_subject_alt_names;
    old.match_typed_subject_alt_names.retain(|name| allowed.contains(name));
    if old.match_typed_subject_alt_names.is_empty() {
        old.match_typed_subject_alt_names.push(nobody());
    }
    old.trusted_ca.clone_from(&now.trusted_ca);
    Some(Resource::new(&secret))
}

/// The refused one, allowing nothing to anybody. `None` where a resource carries no authorization.
pub fn closed(refused: &Resource) -> Option<Resource> {
    if !carries_authorization(refused) {
        return None;
    }
    if refused.resource_type() == ResourceType::Secret {
        let mut secret: Secret = refused.message()?;
        context(&mut secret)?.match_typed_subject_alt_names = vec![nobody()];
        return Some(Resource::new(&secret));
    }
    let mut routes: RouteConfiguration = refused.message()?;
    let mut rbac = per_route(&routes)?;
    let rules = rbac.rbac.as_mut()?;
    // What is refused may be in the rules that would only judge.
    rules.shadow_rules = None;
    rules.rules.as_mut()?.policies.clear();
    // Or in what else the routes say, which is no matter where nothing is allowed.
    let host = routes.virtual_hosts.first_mut()?;
    host.typed_per_filter_config.retain(|filter, _| filter == RBAC_FILTER);
    let of_all_requests = host.routes.len().saturating_sub(1);
    host.routes.drain(..of_all_requests);
    put(&mut routes, &rbac)?;
    Some(Resource::new(&routes).urgent())
}

fn context(secret: &mut Secret) -> Option<&mut CertificateValidationContext> {
    match &mut secret.r#type {
        Some(secret::Type::ValidationContext(context)) => Some(context),
        _ => None,
    }
}

fn per_route(routes: &RouteConfiguration) -> Option<RbacPerRoute> {
    let host = routes.virtual_hosts.first()?;
    let config: &Any = host.typed_per_filter_config.get(RBAC_FILTER)?;
    RbacPerRoute::decode(&*config.value).ok()
}

fn put(routes: &mut RouteConfiguration, rbac: &RbacPerRoute) -> Option<()> {
    let host = routes.virtual_hosts.first_mut()?;
    *host.typed_per_filter_config.get_mut(RBAC_FILTER)? = any(rbac);
    Some(())
}
