//! The control plane's own certificates: the intermediate of its authority, and the certificate of the xDS listener.
//!
//! It never issues to proxies or accounts.

use std::net::IpAddr;
use std::sync::Arc;

use ironmesh_cert::tls::{TlsError, server_config};
use ironmesh_cert::{Authority, ClockReading, Renewal, ServerNames};
use ironmesh_config_settings::Settings;
use jiff::Timestamp;
use rustls::ServerConfig;

use super::Reconciler;
use ironmesh_catalog::text::chain;

/// The certificate of the xDS listener, and when to renew it.
#[derive(Debug)]
pub(super) struct OwnCertificate {
    names: ServerNames,
    renewal: Renewal,
}

impl OwnCertificate {
    /// Issues the first certificate, and builds the TLS configuration with it.
    pub(super) fn issue(
        authority: &Authority,
        settings: &Settings,
        now: Timestamp,
    ) -> anyhow::Result<(Self, Arc<ServerConfig>)> {
        let names = server_names(settings);
        let (config, renewal) = xds_tls(authority, &names, now)?;
        Ok((Self { names, renewal }, config))
    }
}

impl Reconciler {
    /// Renews the intermediate of the authority and the certificate of the xDS listener, when due.
    pub(super) fn renew_own_certificates(&mut self, clock: ClockReading) {
        let mut authority = self.authority.lock();
        let has_new_intermediate = authority
            .renew_intermediate(&*self.certificate_store, clock.now)
            .inspect_err(|error| {
                tracing::error!(error = chain(error), "cannot renew the intermediate certificate");
            })
            .unwrap_or_default();
        if !has_new_intermediate && !self.own_certificate.renewal.is_due(&authority, clock) {
            return;
        }
        match xds_tls(&authority, &self.own_certificate.names, clock.now) {
            Ok((config, renewal)) => {
                self.tls.send_replace(config);
                self.own_certificate.renewal = renewal;
            }
            Err(error) => {
                tracing::error!(error = %format!("{error:#}"), "cannot renew the control plane's certificate");
            }
        }
    }
}

/// The TLS configuration of the xDS listener with a new certificate, and when to renew that.
fn xds_tls(
    authority: &Authority,
    names: &ServerNames,
    now: Timestamp,
) -> anyhow::Result<(Arc<ServerConfig>, Renewal)> {
    let certificate = authority.issue_control_plane_certificate(names, now)?;
    let config: Result<_, TlsError> = server_config(&certificate, &authority.trust_bundle());
    Ok((config?, certificate.renewal))
}

/// The names by which clients reach the xDS listener: its address, and the hosts of `advertise`. For a listener on all
/// addresses, these are the host name and loopback.
fn server_names(settings: &Settings) -> ServerNames {
    let mut names = ServerNames::default();
    let listens_at = settings.listen.xds.ip();
    if listens_at.is_unspecified() {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        add(&mut names, &host);
        for local in ["localhost", "127.0.0.1", "::1"] {
            add(&mut names, local);
        }
    } else {
        names.addresses.insert(listens_at.to_canonical());
    }
    for (host, _) in &settings.advertise {
        add(&mut names, host);
    }
    names
}

fn add(names: &mut ServerNames, host: &str) {
    let in_a_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if let Ok(address) = host.parse::<IpAddr>() {
        names.addresses.insert(address.to_canonical());
    } else if !host.is_empty() && host.bytes().all(in_a_name) {
        names.hosts.insert(host.to_ascii_lowercase());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(xds: &str, advertise: &[&str]) -> (Vec<String>, Vec<String>) {
        let mut settings = Settings::default();
        settings.listen.xds = xds.parse().unwrap();
        settings.advertise = advertise.iter().map(|host| ((*host).to_owned(), 15128)).collect();
        let names = server_names(&settings);
        let addresses = names.addresses.iter().map(ToString::to_string).collect();
        (names.hosts.into_iter().collect(), addresses)
    }

    #[test]
    fn certificate_names_follow_listen_and_advertise() {
        let (hosts, addresses) = names("10.0.0.1:15128", &["CP.example", "fd00::1"]);
        assert_eq!(
            (hosts, addresses),
            (vec!["cp.example".to_owned()], vec!["10.0.0.1".to_owned(), "fd00::1".to_owned()])
        );
    }

    #[test]
    fn wildcard_listener_is_named_by_host_name_and_loopback() {
        for any in ["0.0.0.0:15128", "[::]:15128"] {
            let (hosts, addresses) = names(any, &["192.0.2.1"]);
            let host = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
            assert!(hosts.contains(&host) && hosts.contains(&"localhost".to_owned()), "{hosts:?}");
            assert_eq!(addresses, ["127.0.0.1", "192.0.2.1", "::1"]);
        }
    }
}
