//! A real Envoy and its admin interface.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Command;

use crate::client::{Response, get_once};
use crate::eventually::eventually;
use crate::process::Child;

/// A running Envoy. Dropping this value ends it.
#[derive(Debug)]
pub struct Envoy {
    name: String,
    address: IpAddr,
    child: Child,
}

impl Envoy {
    /// Starts Envoy with the bootstrap in `folder`, and waits until it is ready.
    pub async fn start(
        program: &Path,
        name: &str,
        folder: &Path,
        address: IpAddr,
        drain_seconds: u32,
    ) -> Self {
        let mut command = Command::new(program);
        command.arg("-c").arg(folder.join("envoy.yaml"));
        // Several Envoys run on one machine, so none may take part in hot restarts.
        command.args(["--disable-hot-restart", "--drain-time-s", &drain_seconds.to_string()]);
        command.args(["--concurrency", "1", "-l", "warning"]);
        let log = folder.join("envoy.log");
        let child = Child::start(&format!("envoy {name}"), &mut command, &log);
        let mut envoy = Self { name: name.to_owned(), address, child };
        let admin = envoy.admin();
        let child = &mut envoy.child;
        eventually(&format!("envoy {name} to be ready"), async || {
            child.assert_running();
            let response = get_once(admin, "/ready", &[]).await?;
            anyhow::ensure!(response.text().trim() == "LIVE", "{}", response.text());
            Ok(())
        })
        .await;
        envoy
    }

    /// The address of this Envoy, both in the mesh and for its application.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Port `port` at this Envoy's address.
    pub fn socket(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, port)
    }

    /// Sends `GET path` to the admin port.
    pub async fn admin_get(&self, path: &str) -> Response {
        let response = get_once(self.admin(), path, &[]).await.unwrap();
        assert!(response.status.is_success(), "{}: {path}: {}", self.name, response.text());
        response
    }

    /// The counters and gauges whose names match the regular expression.
    pub async fn stats(&self, filter: &str) -> BTreeMap<String, u64> {
        let path = format!("/stats?filter={}", percent_encoded(filter));
        let text = self.admin_get(&path).await.text();
        // Histograms and text values are no numbers, and are left out.
        text.lines()
            .filter_map(|line| line.rsplit_once(": "))
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
            .collect()
    }

    /// The value of one counter or gauge.
    ///
    /// # Panics
    ///
    /// If the name is unknown: a 0 for a misspelt name would let a test pass.
    pub async fn stat(&self, name: &str) -> u64 {
        let filter = format!("^{}$", regex_escaped(name));
        let found = self.stats(&filter).await;
        *found.get(name).unwrap_or_else(|| panic!("{} has no stat `{name}`", self.name))
    }

    /// The sum of the counters and gauges whose names match the regular expression. It is 0 without
    /// a match, since some stats appear with their first event.
    pub async fn sum(&self, filter: &str) -> u64 {
        self.stats(filter).await.values().sum()
    }

    /// The whole configuration, with endpoints.
    pub async fn config_dump(&self) -> Value {
        self.admin_get("/config_dump?include_eds").await.json()
    }

    /// The loaded certificates.
    pub async fn certs(&self) -> Value {
        self.admin_get("/certs").await.json()
    }

    /// The serial numbers of Envoy's own certificates.
    pub async fn serials(&self) -> BTreeSet<String> {
        let certs = self.certs().await;
        own_certificates(&certs)
            .filter_map(|own| own["serial_number"].as_str())
            .map(Into::into)
            .collect()
    }

    /// The URI SANs of Envoy's own certificates.
    pub async fn uri_sans(&self) -> BTreeSet<String> {
        let certs = self.certs().await;
        own_certificates(&certs)
            .filter_map(|own| own["subject_alt_names"].as_array())
            .flatten()
            .filter_map(|name| name["uri"].as_str())
            .map(Into::into)
            .collect()
    }

    /// Fails the test if Envoy NACKed an update, or timed out while it waited for a resource. Both
    /// are mistakes of the control plane that traffic may not show.
    pub async fn assert_no_update_errors(&self) {
        let mut upset = self.stats(r"(init_fetch_timeout|update_rejected)$").await;
        assert!(!upset.is_empty(), "{} has no such stats: is the filter right?", self.name);
        upset.retain(|_, count| *count > 0);
        assert!(upset.is_empty(), "{} has rejected updates or timeouts: {upset:#?}", self.name);
    }

    /// Fails the test if Envoy has ended by itself.
    pub fn assert_running(&mut self) {
        self.child.assert_running();
    }

    /// Kills Envoy with SIGKILL, as a power failure would, and waits for its end.
    pub async fn kill(&mut self) {
        self.child.kill_hard().await;
    }

    /// Stops Envoy with SIGSTOP: connections stay open and nothing answers, as on a machine that
    /// hangs.
    pub fn freeze(&self) {
        self.child.signal(Signal::STOP);
    }

    /// Continues Envoy with SIGCONT after [`Self::freeze`].
    pub fn thaw(&self) {
        self.child.signal(Signal::CONT);
    }

    /// Terminates Envoy and waits for its end.
    pub async fn stop(mut self) {
        self.child.terminate().await;
    }

    fn admin(&self) -> SocketAddr {
        self.socket(15000)
    }
}

/// The certificate chains of `/certs`, without the trusted authorities.
fn own_certificates(certs: &Value) -> impl Iterator<Item = &Value> {
    let certificates = certs["certificates"].as_array().expect("`/certs` has a list");
    certificates.iter().filter_map(|one| one["cert_chain"].as_array()).flatten()
}

fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() {
            encoded.push(byte.into());
        } else {
            write!(encoded, "%{byte:02X}").unwrap();
        }
        encoded
    })
}

fn regex_escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, character| {
        if !character.is_alphanumeric() && character != '_' {
            escaped.push('\\');
        }
        escaped.push(character);
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_name_is_escaped_in_a_filter() {
        assert_eq!(regex_escaped("cluster.a/b-v1|80"), r"cluster\.a\/b\-v1\|80");
        assert_eq!(percent_encoded("^a|b$"), "%5Ea%7Cb%24");
    }
}
