//! The errors of etcd, with the action to take.

use std::io;

use crate::options::EtcdOptions;

/// The reason why etcd cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// This build has no etcd client.
    #[error(
        "this ironmesh is built without etcd: build it with its default features, or take etcd out of the settings"
    )]
    NotBuiltIn,
    /// A file that the settings name cannot be read.
    #[error("cannot read the file of `{key}` in `{section}`")]
    File {
        /// The setting that names it.
        key: &'static str,
        /// Its section of the settings.
        section: &'static str,
        /// The error of the system, with the file.
        #[source]
        source: io::Error,
    },
    /// An endpoint does not answer, or cannot serve.
    #[error("etcd at {endpoint} cannot be used: {problem}")]
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// The reason.
        problem: String,
    },
    /// None of several endpoints can be used.
    #[error("none of the etcd endpoints can be used: {0}")]
    NoEndpoint(String),
    /// etcd rejects the login of this user.
    #[error("etcd at {endpoint} rejects {user}: {problem}; {advice}")]
    Login {
        /// The endpoint.
        endpoint: String,
        /// The user.
        user: String,
        /// The error of etcd.
        problem: String,
        /// The action to take.
        advice: &'static str,
    },
    /// The user lacks a permission.
    #[error(
        "etcd does not allow {user} to {what}: grant a role of that user the permission on the prefix `{prefix}/`"
    )]
    Denied {
        /// The user.
        user: String,
        /// The operation.
        what: &'static str,
        /// The prefix of the keys.
        prefix: String,
    },
    /// etcd has no space left.
    #[error(
        "etcd has no space left ({0}): compact it, defragment each member and disarm the alarm; what it holds can still be read"
    )]
    Full(String),
    /// What a leader publishes cannot be sealed.
    #[error("cannot seal what the leader publishes: no random bytes")]
    NotSealed,
    /// Any other error of etcd.
    #[error("etcd at {endpoint} rejects the request: {problem}")]
    Rejected {
        /// The endpoint.
        endpoint: String,
        /// The error of etcd.
        problem: String,
    },
}

/// The reason why a request to one endpoint failed; [`Cluster::error`](crate::Cluster::error) adds the
/// endpoint and the user.
#[derive(Debug)]
pub enum SessionError {
    /// The endpoint does not answer, or cannot serve now.
    Unavailable(String),
    /// etcd does not accept the name, the password or the certificate.
    Login(String),
    /// The user lacks the permission for this operation.
    Denied(&'static str),
    /// etcd is out of space.
    Full(String),
    /// A compaction removed the requested revision.
    Compacted,
    /// Any other error.
    Rejected(String),
}

impl EtcdError {
    pub(crate) fn new(endpoint: &str, options: &EtcdOptions, error: SessionError) -> Self {
        let endpoint = endpoint.to_owned();
        let user = || match (&options.user, &options.identity) {
            (Some((name, _)), _) => format!("the user `{name}`"),
            (None, Some((certificate, _))) => {
                format!("the user of the certificate `{}`", certificate.display())
            }
            (None, None) => "one without a name".to_owned(),
        };
        match error {
            SessionError::Unavailable(problem) => Self::Endpoint { endpoint, problem },
            SessionError::Login(problem) => Self::Login {
                endpoint,
                user: user(),
                problem,
                advice: match &options.user {
                    Some(_) => "look at `username` and `password_file` in the settings",
                    None => {
                        "set `username` and `password_file`, or `certificate` and `key`, in the settings"
                    }
                },
            },
            SessionError::Denied(what) => {
                Self::Denied { user: user(), what, prefix: options.prefix.clone() }
            }
            SessionError::Full(problem) => Self::Full(problem),
            SessionError::Compacted => Self::Endpoint {
                endpoint,
                problem: "what was read has been compacted meanwhile".to_owned(),
            },
            SessionError::Rejected(problem) => Self::Rejected { endpoint, problem },
        }
    }

    /// One error that combines those of all endpoints.
    pub fn all(mut tried: Vec<Self>) -> Self {
        if tried.len() == 1
            && let Some(only) = tried.pop()
        {
            return only;
        }
        let each = tried.iter().map(|error| match error {
            Self::Endpoint { endpoint, problem } => format!("{endpoint}: {problem}"),
            other => other.to_string(),
        });
        Self::NoEndpoint(each.collect::<Vec<_>>().join("; "))
    }

    /// Whether another endpoint may succeed.
    pub(crate) fn is_endpoint_failure(&self) -> bool {
        matches!(self, Self::Endpoint { .. })
    }
}
