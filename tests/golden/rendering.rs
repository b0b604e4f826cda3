//! A proxy's resources as one static bootstrap with real certificates, for `envoy --mode validate`.

use ironmesh_catalog::ServiceAccount;
use ironmesh_xds_compile::Compiled;
use ironmesh_xds_compile::rendering::{PlaceholderSecrets, Rendering};
use serde_json::{Value, json};

use crate::certificates::RealCertificates;

/// The resources of a proxy as a bootstrap.
pub(crate) fn bootstrap(compiled: &Compiled, certificates: &RealCertificates) -> Value {
    bootstrap_of([compiled], certificates)
}

/// The resources of a proxy that calls as `caller`, as the bootstrap of a running Envoy: each account
/// has its own certificate, by which peers know it.
pub(crate) fn running_bootstrap(
    compiled: &Compiled,
    caller: &ServiceAccount,
    certificates: &RealCertificates,
) -> Value {
    let mut bootstrap = bootstrap(compiled, certificates);
    for secret in bootstrap["static_resources"]["secrets"].as_array_mut().unwrap() {
        let name = secret["name"].as_str().unwrap();
        let account = match name.strip_prefix("service-cert:") {
            Some(account) => &account.parse().unwrap(),
            None if name == "service-cert" => caller,
            None => continue,
        };
        let certificate = certificates.of_account(account);
        secret["tlsCertificate"] = json!({
            "certificateChain": { "inlineString": certificate.chain },
            "privateKey": { "inlineString": certificate.key.expose() },
        });
    }
    bootstrap
}

/// The resources of several proxies as one bootstrap.
pub(crate) fn bootstrap_of<'a>(
    compiled: impl IntoIterator<Item = &'a Compiled>,
    certificates: &RealCertificates,
) -> Value {
    let certificate = certificates.of_account(&"stand-in".parse().unwrap());
    let roots = certificates.roots();
    let mut rendering = Rendering::new(PlaceholderSecrets {
        roots,
        chain: certificate.chain,
        key: certificate.key,
    });
    for one in compiled {
        rendering.add(&one.resources);
    }
    rendering.bootstrap(&rendering.parts())
}
