//! How agents are known, and how they know us.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;

use reqwest::Url;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use rustls_platform_verifier::BuilderVerifierExt as _;

use super::error::ConsulError;
use super::options::ConsulOptions;

/// The TLS of all connections to agents. HTTP/2 is offered first: there, queries share a connection.
///
/// What the system trusts is asked for only where an agent is asked by HTTPS: a machine may have nothing of
/// the kind.
pub(super) fn client_config(options: &ConsulOptions) -> Result<ClientConfig, ConsulError> {
    let is_used = options.agents.iter().any(|agent| is_https(agent));
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(ConsulError::Tls)?;
    let verifying = match &options.ca {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("ca", path)? {
                roots.add(certificate).map_err(ConsulError::Tls)?;
            }
            builder.with_root_certificates(roots)
        }
        None if !is_used => builder.with_root_certificates(RootCertStore::empty()),
        None => builder.with_platform_verifier().map_err(ConsulError::Tls)?,
    };
    let mut config = match (&options.certificate, &options.key) {
        (Some(certificate), Some(key)) => {
            let chain = certificates("certificate", certificate)?;
            let pem = read("key", key)?;
            let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|source| ConsulError::Pem {
                key: "key",
                path: key.clone(),
                source,
            })?;
            verifying.with_client_auth_cert(chain, key).map_err(ConsulError::Tls)?
        }
        (None, None) => verifying.with_no_client_auth(),
        (Some(_), None) => return Err(ConsulError::Half { given: "certificate", missing: "key" }),
        (None, Some(_)) => return Err(ConsulError::Half { given: "key", missing: "certificate" }),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Changes when one of the files does, also when it can no longer be read.
pub(super) fn fingerprint(options: &ConsulOptions) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in [&options.ca, &options.certificate, &options.key].into_iter().flatten() {
        fs_err::read(path).ok().hash(&mut hasher);
    }
    hasher.finish()
}

fn is_https(agent: &str) -> bool {
    Url::parse(agent).is_ok_and(|url| url.scheme() == "https")
}

fn certificates(
    key: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, ConsulError> {
    let failed = |source| ConsulError::Pem { key, path: path.to_owned(), source };
    let pem = read(key, path)?;
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(failed)?;
    if found.is_empty() {
        return Err(failed(rustls_pki_types::pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, ConsulError> {
    fs_err::read(path).map_err(|source| ConsulError::File { key, source })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn client_without_https_needs_no_system_certificates() {
        const WITHOUT: &str = "IRONMESH_TEST_TRUSTS_NOBODY";
        if std::env::var_os(WITHOUT).is_some() {
            client_config(&ConsulOptions::default()).unwrap();
            let agents = vec!["https://127.0.0.1:8501".to_owned()];
            client_config(&ConsulOptions { agents, ..ConsulOptions::default() }).unwrap_err();
            return;
        }
        // The same test again, in a process of its own that finds no certificates of the system.
        let folder = tempfile::tempdir().unwrap();
        let nothing = folder.path().join("nothing.pem");
        fs_err::write(&nothing, "").unwrap();
        let name = "consul::tls::tests::client_without_https_needs_no_system_certificates";
        let run = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .envs([(WITHOUT, "1".as_ref()), ("SSL_CERT_FILE", nothing.as_os_str())])
            .env("SSL_CERT_DIR", folder.path())
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
    }
}
