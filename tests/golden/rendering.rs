//! What a proxy is told as one bootstrap that needs no control plane, with real certificates in place of
//! placeholders: `envoy --mode validate` reads it.

use ironmesh_xds_compile::Compiled;
use ironmesh_xds_compile::rendering::{Rendering, StandIn};
use serde_json::Value;

use crate::certificates::RealCertificates;

/// The resources of a proxy as a bootstrap.
pub(crate) fn bootstrap(compiled: &Compiled, certificates: &RealCertificates) -> Value {
    bootstrap_of([compiled], certificates)
}

/// The resources of several proxies as one bootstrap.
pub(crate) fn bootstrap_of<'a>(
    compiled: impl IntoIterator<Item = &'a Compiled>,
    certificates: &RealCertificates,
) -> Value {
    let certificate = certificates.of_account(&"stand-in".parse().unwrap());
    let roots = certificates.roots();
    let mut rendering =
        Rendering::new(StandIn { roots, chain: certificate.chain, key: certificate.key });
    for one in compiled {
        rendering.add(&one.resources);
    }
    rendering.bootstrap(&rendering.parts())
}
