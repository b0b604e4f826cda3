//! The risk findings: risks that valid settings accept, shown as long as the settings are active.

use ironmesh_catalog::Finding;
use ironmesh_catalog::codes::PLAINTEXT_PROVIDER;

use super::servers::is_plaintext_over_network;
use super::{PolicyLocation, Settings};

impl Settings {
    /// The risks that these settings accept, with policy from `policy`.
    pub fn risk_findings(&self, policy: &PolicyLocation) -> Vec<Finding> {
        let etcd = match policy {
            PolicyLocation::Etcd(etcd) => etcd.endpoints.as_slice(),
            PolicyLocation::Folder(_) | PolicyLocation::Releases => &[],
        };
        let connections = [
            ("etcd", "endpoints", "[policy.etcd]", etcd),
            ("Consul", "agents", "[consul]", &self.consul.agents),
        ];
        let plaintext =
            connections.into_iter().filter(|(.., urls)| is_plaintext_over_network(urls));
        let finding = |(who, key, section, _)| {
            let message = format!(
                "the control plane queries {who} in plaintext over the network (`insecure = true` in `{section}`)"
            );
            let help = format!(
                "let {who} listen with TLS, and write the {key} as `https://…`: in the clear everyone on \
                 the network can read and change what {who} answers"
            );
            Finding::warning(PLAINTEXT_PROVIDER, None, message).help(help)
        };
        plaintext.map(finding).collect()
    }
}
