//! A real Envoy, and what it says of itself.

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

/// A running Envoy. It ends when this is dropped.
#[derive(Debug)]
pub struct Envoy {
    name: String,
    address: IpAddr,
    child: Child,
}

impl Envoy {
    /// Starts Envoy on the bootstrap in `folder`, and waits until it has its first configuration.
    pub async fn start(
        program: &Path,
        name: &str,
        folder: &Path,
        address: IpAddr,
        drain_seconds: u32,
    ) -> Self {
        let mut command = Command::new(program);
        command.arg("-c").arg(folder.join("envoy.yaml"));
        // Several run on one machine, so none may be the one that hot restarts are for.
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

    /// Its address, for the mesh and for its own machine alike.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Port `port` at its address.
    pub fn socket(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, port)
    }

    /// `GET path` on its admin port.
    pub async fn admin_get(&self, path: &str) -> Response {
        let response = get_once(self.admin(), path, &[]).await.unwrap();
        assert!(response.status.is_success(), "{}: {path}: {}", self.name, response.text());
        response
    }

    /// The counters and gauges whose names the regular expression finds.
    pub async fn stats(&self, filter: &str) -> BTreeMap<String, u64> {
        let path = format!("/stats?filter={}", percent_encoded(filter));
        let text = self.admin_get(&path).await.text();
        // Histograms and texts are no numbers, and are left out.
        text.lines()
            .filter_map(|line| line.rsplit_once(": "))
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
            .collect()
    }

    /// One counter or gauge.
    ///
    /// # Panics
    ///
    /// If there is none of that name: a 0 for a misspelt name would make a test pass.
    pub async fn stat(&self, name: &str) -> u64 {
        let filter = format!("^{}$", regex_escaped(name));
        let found = self.stats(&filter).await;
        *found.get(name).unwrap_or_else(|| panic!("{} has no stat `{name}`", self.name))
    }

    /// The sum of the counters and gauges whose names the regular expression finds; 0 when there
    /// are none, since some appear with their first event.
    pub async fn sum(&self, filter: &str) -> u64 {
        self.stats(filter).await.values().sum()
    }

    /// All of its configuration, with endpoints.
    pub async fn config_dump(&self) -> Value {
        self.admin_get("/config_dump?include_eds").await.json()
    }

    /// The certificates that it has loaded.
    pub async fn certs(&self) -> Value {
        self.admin_get("/certs").await.json()
    }

    /// The serial numbers of its own certificates.
    pub async fn serials(&self) -> BTreeSet<String> {
        let certs = self.certs().await;
        own_certificates(&certs)
            .filter_map(|own| own["serial_number"].as_str())
            .map(Into::into)
            .collect()
    }

    /// The URIs for which its own certificates stand.
    pub async fn uri_sans(&self) -> BTreeSet<String> {
        let certs = self.certs().await;
        own_certificates(&certs)
            .filter_map(|own| own["subject_alt_names"].as_array())
            .flatten()
            .filter_map(|name| name["uri"].as_str())
            .map(Into::into)
            .collect()
    }

    /// Fails the test if Envoy ever refused something, or gave up waiting for something that it
    /// had been told of: both are mistakes of the control plane that traffic may not show.
    pub async fn assert_no_update_errors(&self) {
        let mut upset = self.stats(r"(init_fetch_timeout|update_rejected)$").await;
        assert!(!upset.is_empty(), "{} has no such stats: is the filter right?", self.name);
        upset.retain(|_, count| *count > 0);
        assert!(upset.is_empty(), "{} is upset: {upset:#?}", self.name);
    }

    /// Fails the test if it has ended by itself.
    pub fn assert_running(&mut self) {
        self.child.assert_running();
    }

    /// SIGKILL, as when its machine loses power. Returns when it is gone.
    pub async fn kill(&mut self) {
        self.child.kill_hard().await;
    }

    /// SIGSTOP: its connections stay open and nothing answers on them, as on a machine that hangs.
    pub fn freeze(&self) {
        self.child.signal(Signal::STOP);
    }

    /// SIGCONT: it goes on after [`Self::freeze`].
    pub fn thaw(&self) {
        self.child.signal(Signal::CONT);
    }

    /// Asks it to end, and waits for that.
    pub async fn stop(mut self) {
        self.child.terminate().await;
    }

    fn admin(&self) -> SocketAddr {
        self.socket(15000)
    }
}

/// The chains of `/certs`, and not the authorities that it trusts.
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
