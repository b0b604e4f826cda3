//! What may go wrong with etcd, in words that say what to do.

use std::io;

use crate::options::EtcdOptions;

/// Why etcd cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// This program cannot speak to etcd at all.
    #[error(
        "this ironmesh is built without etcd: build it with its default features, or take `[policy.etcd]` out of the settings"
    )]
    NotBuiltIn,
    /// A file that the settings name.
    #[error("cannot read what `{key}` in `[policy.etcd]` names")]
    File {
        /// Which setting names it.
        key: &'static str,
        /// What the system said, with the file.
        #[source]
        source: io::Error,
    },
    /// An endpoint does not answer, or answers that it cannot.
    #[error("etcd at {endpoint} cannot be used: {problem}")]
    Endpoint {
        /// Which.
        endpoint: String,
        /// Why not.
        problem: String,
    },
    /// None of several endpoints can be used.
    #[error("none of the etcd endpoints can be used: {0}")]
    NoEndpoint(String),
    /// etcd does not let this user in.
    #[error("etcd at {endpoint} does not let {user} in: {problem}; {advice}")]
    Login {
        /// Which endpoint says so.
        endpoint: String,
        /// Whom.
        user: String,
        /// In etcd's words.
        problem: String,
        /// What to look at.
        advice: &'static str,
    },
    /// This user may not do it.
    #[error(
        "etcd does not allow {user} to {what}: grant a role of that user the permission on the prefix `{prefix}/`"
    )]
    Denied {
        /// Who.
        user: String,
        /// What.
        what: &'static str,
        /// Below which prefix.
        prefix: String,
    },
    /// etcd has no space left.
    #[error(
        "etcd has no space left ({0}): compact it, defragment each member and disarm the alarm; what it holds can still be read"
    )]
    Full(String),
    /// Anything else that etcd says.
    #[error("etcd at {endpoint} rejects the request: {problem}")]
    Rejected {
        /// Which endpoint says so.
        endpoint: String,
        /// In etcd's words.
        problem: String,
    },
}

/// Why a request to one endpoint failed; [`Cluster::error`](crate::Cluster::error) names the endpoint and the user.
#[derive(Debug)]
pub enum SessionError {
    /// The endpoint does not answer, or cannot serve now.
    Unavailable(String),
    /// The name, the password or the certificate is not known.
    Login(String),
    /// It is known, and may not do this.
    Denied(&'static str),
    /// No room is left.
    Full(String),
    /// What is read was taken away by a compaction meanwhile.
    Compacted,
    /// Anything else.
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

    /// One error out of those of all endpoints.
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

    /// Whether another endpoint may do better.
    pub(crate) fn is_of_the_endpoint(&self) -> bool {
        matches!(self, Self::Endpoint { .. })
    }
}
