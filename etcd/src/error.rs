//! What may go wrong with etcd, in words that say what to do.

use std::io;

use ironmesh_catalog::Finding;

use ironmesh_config_language::codes;
use ironmesh_config_settings::EtcdSettings;

/// Why policy cannot be had from etcd, or brought there.
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
    /// etcd has no room left.
    #[error(
        "etcd has no room left ({0}): compact it, defragment each member and disarm the alarm; what it holds can still be read"
    )]
    Full(String),
    /// There is no policy below the prefix.
    #[error(
        "nothing has been pushed to `{prefix}` in etcd yet: `ironmesh policy push PATH` does that"
    )]
    Nothing {
        /// The prefix.
        prefix: String,
    },
    /// What is there was not put there by a push.
    #[error(
        "`{key}` in etcd {problem}: `ironmesh policy push PATH` puts a whole policy there again"
    )]
    Damaged {
        /// Which key.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The revision that was asked for is not there.
    #[error(
        "etcd keeps no policy whose revision is or begins with `{0}`: see `ironmesh policy revisions`"
    )]
    UnknownRevision(String),
    /// Several revisions begin so.
    #[error("the revisions {0} begin so: give more of the one that you mean")]
    SeveralRevisions(String),
    /// Anything else that etcd says.
    #[error("etcd at {endpoint} refuses: {problem}")]
    Refused {
        /// Which endpoint says so.
        endpoint: String,
        /// In etcd's words.
        problem: String,
    },
}

/// What comes of a request to one endpoint.
#[derive(Debug)]
#[cfg_attr(not(feature = "etcd"), expect(dead_code, reason = "without etcd there is no session"))]
pub(super) enum SessionError {
    /// Nobody answers, or somebody who is not in a state to.
    Unavailable(String),
    /// The name, the password or the certificate is not known.
    Login(String),
    /// It is known, and may not do this.
    Denied(&'static str),
    /// No room is left.
    Full(String),
    /// What is read was taken away by a compaction meanwhile.
    Compacted,
    /// What is read is no policy.
    Damaged { key: String, problem: String },
    /// Anything else.
    Refused(String),
}

impl EtcdError {
    pub(super) fn new(endpoint: &str, settings: &EtcdSettings, error: SessionError) -> Self {
        let endpoint = endpoint.to_owned();
        let user = || match (&settings.user, &settings.identity) {
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
                advice: match &settings.user {
                    Some(_) => "look at `username` and `password_file` in the settings",
                    None => {
                        "set `username` and `password_file`, or `certificate` and `key`, in the settings"
                    }
                },
            },
            SessionError::Denied(what) => {
                Self::Denied { user: user(), what, prefix: settings.prefix.clone() }
            }
            SessionError::Full(problem) => Self::Full(problem),
            SessionError::Compacted => Self::Endpoint {
                endpoint,
                problem: "what was read has been compacted meanwhile".to_owned(),
            },
            SessionError::Damaged { key, problem } => Self::Damaged { key, problem },
            SessionError::Refused(problem) => Self::Refused { endpoint, problem },
        }
    }

    /// The same as a finding, where it is about what somebody put there.
    pub fn finding(&self) -> Option<Finding> {
        let Self::Damaged { key, problem } = self else { return None };
        let message = format!("`{key}` in etcd {problem}");
        let finding = Finding::error(codes::DAMAGED_PUSH, None, message);
        Some(finding.help("push a whole policy: `ironmesh policy push PATH`"))
    }

    /// One error out of those of all endpoints.
    pub(super) fn all(mut tried: Vec<Self>) -> Self {
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
    pub(super) fn is_of_the_endpoint(&self) -> bool {
        matches!(self, Self::Endpoint { .. })
    }
}
