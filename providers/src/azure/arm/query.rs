//! A query to the Resource Manager: its scope, and the quotas for which it counts.

use serde_json::Value;

/// A query to the Resource Manager.
#[derive(Debug)]
pub(in crate::azure) struct ArmQuery {
    /// The path segments, before they are encoded.
    pub(in crate::azure) path: Vec<String>,
    pub(in crate::azure) parameters: Vec<(&'static str, String)>,
    /// The JSON body, if any.
    pub(in crate::azure) body: Option<Value>,
    /// The action that the query requires.
    pub(in crate::azure) action: &'static str,
}

impl ArmQuery {
    /// Returns the scope of a missing right: the resource group, or the subscription.
    pub(super) fn scope(&self) -> String {
        let end = self.path.iter().position(|part| part == "providers");
        let parts = self.path.get(..end.unwrap_or(0)).unwrap_or_default();
        parts.iter().fold(String::new(), |scope, part| scope + "/" + part)
    }

    fn is_of_graph(&self) -> bool {
        self.parameters.iter().any(|(name, _)| *name == "useResourceGraph")
    }

    /// Returns the keys of throttling: the subscription, and the resource provider in it.
    pub(super) fn gates(&self) -> [String; 2] {
        let provider = self.path.iter().position(|part| part == "providers");
        let provider = provider.and_then(|at| self.path.get(at + 1));
        // Network interfaces of uniform scale sets belong to the network provider, whatever their
        // path.
        let is_network = self.path.iter().any(|part| part == "networkInterfaces");
        let provider = match provider {
            _ if is_network => "network",
            Some(provider) => provider,
            None => "",
        };
        let subscription =
            if self.body.is_some() { "graph" } else { self.path.get(1).map_or("", String::as_str) };
        // Answers of Resource Graph do not count for the quota of the resource provider.
        let provider = if self.is_of_graph() { "graph" } else { provider };
        [subscription.to_owned(), format!("{subscription} {provider}")]
    }
}
