//! TLS to Consul agents: their CA certificates, and the client certificate.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use reqwest::Url;
use rustls::{ClientConfig, RootCertStore};

use super::error::ConsulError;
use super::options::ConsulOptions;
use crate::http::{self, PemFileError};

/// Creates the TLS configuration of all connections to agents.
///
/// It reads the system's certificates only if an agent uses HTTPS: a machine may have none.
pub(super) fn client_config(options: &ConsulOptions) -> Result<ClientConfig, ConsulError> {
    let is_used = options.agents.iter().any(|agent| is_https(agent));
    let roots = match &options.ca {
        Some(path) => {
            let roots = http::certificates(path).map_err(|error| failed("ca", path, error))?;
            Some(http::root_store(roots).map_err(ConsulError::Tls)?)
        }
        None if !is_used => Some(RootCertStore::empty()),
        None => None,
    };
    let identity = match (&options.certificate, &options.key) {
        (Some(certificate), Some(key)) => {
            let chain = http::certificates(certificate);
            let chain = chain.map_err(|error| failed("certificate", certificate, error))?;
            let key = http::private_key(key).map_err(|error| failed("key", key, error))?;
            Some((chain, key))
        }
        (None, None) => None,
        (Some(_), None) => return Err(ConsulError::Half { given: "certificate", missing: "key" }),
        (None, Some(_)) => return Err(ConsulError::Half { given: "key", missing: "certificate" }),
    };
    http::client_config(roots, identity).map_err(ConsulError::Tls)
}

/// Returns a hash of the certificate files. It also changes if a file becomes unreadable.
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

/// The error about the file at `path`, which the option `key` names.
fn failed(key: &'static str, path: &Path, error: PemFileError) -> ConsulError {
    match error {
        PemFileError::Unreadable(source) => ConsulError::File { key, source },
        PemFileError::Malformed(source) => ConsulError::Pem { key, path: path.to_owned(), source },
    }
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
        // The same test again, in a process that finds no certificates of the system.
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
