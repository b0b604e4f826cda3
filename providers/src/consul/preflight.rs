//! Preflight: finds out what a token may read.
//!
//! Without the right to read, Consul answers 200 with an empty list, as if there were no instances.
//! The provider therefore checks the rights before it uses an answer.
//!
//! Measured on Consul 1.8.7 with `default_policy = "deny"`:
//!
//! | token | health of `consul` | `acl/token/self` | `catalog/nodes` | `catalog/services` |
//! |---|---|---|---|---|
//! | none | `[]` | 403 | `[]` | `{}` |
//! | unknown, revoked | 403 | 403 | 403 | 403 |
//! | reads services, no nodes | `[]` | 200 | `[]` | all |
//! | reads nodes, no services | `[]` | 200 | all | `{}` |
//! | reads nodes and some services | `[]` | 200 | all | those |
//! | reads all | the servers | 200 | all | all |

use std::time::Duration;

use ironmesh_catalog::Secret;
use reqwest::{StatusCode, Url};

use super::client::{Lane, Request};
use super::error::RequestError;
use super::options::ConsulOptions;

/// The timeout of each check. Without a leader, servers answer after 7 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// The required rights, as Consul's ACL rules.
const RULES: &str = r#"service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }"#;

/// The rights of a token, in the configured datacenter and the default namespace and partition: the
/// servers are nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rights {
    /// All services: an empty answer is an answer.
    All,
    /// Some services: an empty answer may be due to missing rights.
    Some,
}

/// The reason why an agent is unusable.
#[derive(Debug)]
pub(super) enum Objection {
    /// The agent does not answer, or its server has no leader: another agent may be usable.
    Agent(RequestError),
    /// The token lacks rights at every agent: the reason, and what to do.
    Token(String),
}

/// Whether a query with these parameters reads where the preflight checks the token.
pub(super) fn is_tried(options: &ConsulOptions, parameters: &[(&str, String)]) -> bool {
    let named = |name| {
        let found = parameters.iter().find(|(of, _)| *of == name);
        found.map(|(_, value)| value.as_str())
    };
    named("dc") == options.datacenter.as_deref()
        && named("ns").is_none()
        && named("partition").is_none()
}

/// A check of one agent with one token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Preflight<'a> {
    pub(super) lane: &'a Lane,
    pub(super) agent: &'a Url,
    pub(super) token: Option<&'a Secret>,
    pub(super) options: &'a ConsulOptions,
}

impl Preflight<'_> {
    /// Finds out the rights of the token.
    pub(super) async fn rights(self) -> Result<Rights, Objection> {
        // Every cluster has its own servers there.
        if !self.is_empty(&["health", "service", "consul"]).await? {
            return Ok(Rights::All);
        }
        match self.get(&["acl", "token", "self"]).await {
            Ok(_) => {}
            Err(RequestError::Status { status: StatusCode::FORBIDDEN, .. }) => {
                return Err(self.unknown_token());
            }
            // Without ACLs (401), or in a server that has just started, missing rights are not the
            // cause.
            Err(error) => return Err(Objection::Agent(error)),
        }
        if self.is_empty(&["catalog", "nodes"]).await? {
            return Err(weak("no node", r#"node_prefix "" { policy = "read" }"#));
        }
        if self.is_empty(&["catalog", "services"]).await? {
            return Err(weak("no service", r#"service_prefix "" { policy = "read" }"#));
        }
        Ok(Rights::Some)
    }

    async fn is_empty(self, path: &[&str]) -> Result<bool, Objection> {
        match self.get(path).await {
            Ok(body) => {
                let text: Vec<_> =
                    body.iter().filter(|byte| !byte.is_ascii_whitespace()).take(3).collect();
                Ok(matches!(text[..], [b'[', b']'] | [b'{', b'}']))
            }
            Err(RequestError::Status { status: StatusCode::FORBIDDEN, .. }) => {
                Err(self.unknown_token())
            }
            Err(error) => Err(Objection::Agent(error)),
        }
    }

    async fn get(self, path: &[&str]) -> Result<Vec<u8>, RequestError> {
        let datacenter =
            self.options.datacenter.as_deref().filter(|_| path.first() != Some(&"acl"));
        let parameters = [("stale", Some("")), ("dc", datacenter)];
        let request = Request {
            agent: self.agent,
            token: self.token,
            path,
            parameters: parameters.into_iter().filter_map(|(k, v)| Some((k, v?))).collect(),
            patience: PATIENCE,
        };
        Ok(self.lane.get(request).await?.recent(self.options.max_staleness)?.body)
    }

    fn unknown_token(self) -> Objection {
        Objection::Token(match &self.options.token_file {
            Some(path) => format!(
                "Consul does not know the token in `{}`, or it was revoked; write one there that may {RULES}",
                path.display()
            ),
            None => format!(
                "Consul asks for a token and none is set; name a file as `token_file` that holds one that may {RULES}"
            ),
        })
    }
}

fn weak(what: &str, missing: &str) -> Objection {
    Objection::Token(format!(
        "the Consul token may read {what}, and then Consul answers as if there were no instances; \
         add to its policy: {missing}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preflight_checks_token_only_in_configured_datacenter() {
        let here = ConsulOptions { datacenter: Some("here".into()), ..ConsulOptions::default() };
        let to = |name, value: &str| [(name, value.to_owned())];
        assert!(is_tried(&here, &to("dc", "here")));
        assert!(!is_tried(&here, &to("dc", "there")));
        assert!(!is_tried(&ConsulOptions::default(), &to("dc", "here")));
        for name in ["ns", "partition"] {
            assert!(!is_tried(&ConsulOptions::default(), &to(name, "default")));
        }
        assert!(is_tried(&ConsulOptions::default(), &to("filter", "x")));
    }
}
