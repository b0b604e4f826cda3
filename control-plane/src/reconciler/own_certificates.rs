//! The control plane's own certificates: the intermediate of its authority, and the certificate of its listeners.
//!
//! It never issues to proxies or accounts.

use std::net::IpAddr;
use std::sync::Arc;

use ironmesh_cert::tls::{TlsError, server_config};
use ironmesh_cert::{
    Authority, CertificateFacts, ClockReading, ControlPlaneCertificate, Renewal, ServerNames,
};
use ironmesh_config_settings::Settings;
use ironmesh_enrollment::EnrollmentCredentials;
use jiff::Timestamp;
use rustls::ServerConfig;
use tokio::sync::watch;

use super::Reconciler;
use super::endpoints::current_time;
use ironmesh_catalog::text::chain;

/// The certificate of the listeners for machines, and when to renew it.
#[derive(Debug)]
pub(super) struct OwnCertificate {
    names: ServerNames,
    renewal: Renewal,
    /// What operators see of it.
    facts: watch::Sender<CertificateFacts>,
}

/// What the listeners present and trust, from one certificate.
pub(super) struct ListenerCredentials {
    /// Of the xDS listener.
    pub(super) xds: Arc<ServerConfig>,
    /// Of the enrollment listener.
    pub(super) enrollment: Arc<EnrollmentCredentials>,
}

impl OwnCertificate {
    /// Issues the first certificate, and the credentials of the listeners with it.
    pub(super) fn issue(
        authority: &Authority,
        settings: &Settings,
        now: Timestamp,
    ) -> anyhow::Result<(Self, ListenerCredentials)> {
        let names = server_names(settings);
        let (credentials, certificate) = listener_credentials(authority, &names, now)?;
        let ControlPlaneCertificate { renewal, facts, .. } = certificate;
        Ok((Self { names, renewal, facts: watch::Sender::new(facts) }, credentials))
    }

    /// What operators see of it, renewal by renewal.
    pub(super) fn facts(&self) -> watch::Receiver<CertificateFacts> {
        self.facts.subscribe()
    }
}

impl Reconciler {
    /// Reads again what other control planes have stored, and renews the control plane's own certificates at a tick.
    pub(super) fn update_shared(&mut self, is_tick: bool, clock: ClockReading) {
        let changes = self.shared.take();
        if is_tick || changes.authority {
            self.renew_own_certificates(changes.authority, clock);
        }
        self.snapshot_builder.reread(&changes);
        if changes.accepted_removals {
            self.endpoints.reread_accepted(current_time(clock.now));
        }
    }

    /// Renews the intermediate of the authority and the certificate of the xDS listener, when due. `is_replaced`: another
    /// control plane may have renewed the intermediate.
    fn renew_own_certificates(&mut self, is_replaced: bool, clock: ClockReading) {
        let mut authority = self.authority.lock();
        let store = &*self.certificate_store;
        let followed = if is_replaced { authority.follow(store, clock.now) } else { Ok(false) };
        let renewed = followed
            .and_then(|followed| Ok(authority.renew_intermediate(store, clock.now)? || followed));
        let has_new_intermediate = renewed
            .inspect_err(|error| {
                tracing::error!(error = chain(error), "cannot renew the intermediate certificate");
            })
            .unwrap_or_default();
        if !has_new_intermediate && !self.own_certificate.renewal.is_due(&authority, clock) {
            return;
        }
        match listener_credentials(&authority, &self.own_certificate.names, clock.now) {
            Ok((credentials, certificate)) => {
                self.tls.send_replace(credentials.xds);
                self.enrollment_credentials.send_replace(credentials.enrollment);
                self.own_certificate.renewal = certificate.renewal;
                self.own_certificate.facts.send_replace(certificate.facts);
            }
            Err(error) => {
                tracing::error!(error = %format!("{error:#}"), "cannot renew the control plane's certificate");
            }
        }
    }
}

/// The credentials of the listeners with a new certificate, and that certificate.
fn listener_credentials(
    authority: &Authority,
    names: &ServerNames,
    now: Timestamp,
) -> anyhow::Result<(ListenerCredentials, ControlPlaneCertificate)> {
    let certificate = authority.issue_control_plane_certificate(names, now)?;
    let bundle = authority.trust_bundle();
    let xds: Result<_, TlsError> = server_config(&certificate, &bundle);
    let enrollment = EnrollmentCredentials::new(&certificate, &bundle, authority.trust_domain());
    let credentials = ListenerCredentials { xds: xds?, enrollment: Arc::new(enrollment?) };
    Ok((credentials, certificate))
}

/// The names by which clients reach the listeners: their addresses, and the hosts of `advertise`. For a listener on all
/// addresses, these are the host name and loopback.
fn server_names(settings: &Settings) -> ServerNames {
    let mut names = ServerNames::default();
    for listens_at in [settings.listen.xds.ip(), settings.listen.enrollment.ip()] {
        if listens_at.is_unspecified() {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            add(&mut names, &host);
            for local in ["localhost", "127.0.0.1", "::1"] {
                add(&mut names, local);
            }
        } else {
            names.addresses.insert(listens_at.to_canonical());
        }
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
        settings.listen.enrollment.set_ip(settings.listen.xds.ip());
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
