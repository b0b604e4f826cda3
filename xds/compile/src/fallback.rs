//! Fallbacks of NACKed resources that carry authorization.
//!
//! A proxy that NACKs a resource keeps the earlier one with its authorization: a withdrawn caller
//! would keep its access forever. So it is sent another: the last good one, reduced to what is
//! allowed now. If the proxy NACKs that too, it is sent one that allows nothing (invariant 7: last
//! good never restores access).

use ironmesh_xds_wire::pb::envoy::config::route::v3::RouteConfiguration;
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::rbac::v3::RbacPerRoute;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, secret,
};
use ironmesh_xds_wire::pb::google::protobuf::Any;
use ironmesh_xds_wire::{Resource, ResourceType, any};
use prost::Message as _;

use crate::rbac::RBAC_FILTER;
use crate::revoked::REVOKED_FILTER;
use crate::role::ResourceRole;
use crate::secret::no_caller;

/// The last good resource, with only what both it and the NACKed one allow. `None` for a resource
/// without authorization.
pub fn narrowed(nacked: &Resource, last_good: &Resource) -> Option<Resource> {
    ResourceRole::authorized_port(nacked)?;
    if nacked.resource_type() == ResourceType::Secret {
        return narrowed_secret(nacked, last_good);
    }
    let nacked_routes: RouteConfiguration = nacked.message()?;
    let now = per_route(&nacked_routes)?;
    let mut routes: RouteConfiguration = last_good.message()?;
    let mut rbac = per_route(&routes)?;
    let allowed = now.rbac?.rules?.policies;
    let rules = rbac.rbac.as_mut()?.rules.as_mut()?;
    rules.policies.retain(|name, policy| allowed.get(name) == Some(policy));
    put(&mut routes, &rbac)?;
    // The last good version may be older than a revocation.
    let refused = nacked_routes.virtual_hosts.first()?.typed_per_filter_config.get(REVOKED_FILTER);
    let configs = &mut routes.virtual_hosts.first_mut()?.typed_per_filter_config;
    match refused {
        Some(refused) => configs.insert(REVOKED_FILTER.to_owned(), refused.clone()),
        None => configs.remove(REVOKED_FILTER),
    };
    Some(Resource::new(&routes).urgent().with_role_of(nacked))
}

fn narrowed_secret(nacked: &Resource, last_good: &Resource) -> Option<Resource> {
    let (mut now, mut secret): (Secret, Secret) = (nacked.message()?, last_good.message()?);
    let now = context(&mut now)?;
    let old = context(&mut secret)?;
    let allowed = &now.match_typed_subject_alt_names;
    old.match_typed_subject_alt_names.retain(|name| allowed.contains(name));
    if old.match_typed_subject_alt_names.is_empty() {
        old.match_typed_subject_alt_names.push(no_caller());
    }
    old.trusted_ca.clone_from(&now.trusted_ca);
    // The last good version may be older than a revocation.
    old.crl.clone_from(&now.crl);
    old.only_verify_leaf_cert_crl = now.only_verify_leaf_cert_crl;
    Some(Resource::new(&secret).with_role_of(nacked))
}

/// The NACKed resource, reduced to allow nothing. `None` for a resource without authorization.
pub fn closed(nacked: &Resource) -> Option<Resource> {
    ResourceRole::authorized_port(nacked)?;
    if nacked.resource_type() == ResourceType::Secret {
        let mut secret: Secret = nacked.message()?;
        let context = context(&mut secret)?;
        context.match_typed_subject_alt_names = vec![no_caller()];
        // The reason for the NACK may be in the revocation lists, which do not matter if nobody is allowed.
        (context.crl, context.only_verify_leaf_cert_crl) = (None, false);
        return Some(Resource::new(&secret).with_role_of(nacked));
    }
    let mut routes: RouteConfiguration = nacked.message()?;
    let mut rbac = per_route(&routes)?;
    let rules = rbac.rbac.as_mut()?;
    // The reason for the NACK may be in the shadow rules.
    rules.shadow_rules = None;
    rules.rules.as_mut()?.policies.clear();
    // Or in the other routes and filters, such as the refusal of revoked callers, which do not matter
    // if nothing is allowed.
    let host = routes.virtual_hosts.first_mut()?;
    host.typed_per_filter_config.retain(|filter, _| filter == RBAC_FILTER);
    let of_all_requests = host.routes.len().saturating_sub(1);
    host.routes.drain(..of_all_requests);
    put(&mut routes, &rbac)?;
    Some(Resource::new(&routes).urgent().with_role_of(nacked))
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
