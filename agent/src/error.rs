//! The failures of the agent: what failed, where, and what to do.

use std::io;
use std::path::PathBuf;

use ironmesh_agent_envoy::SupervisorClientError;
use ironmesh_catalog::{ProxyId, ServiceSecret};
use ironmesh_cert::{RequestError, UnusableWorkloadCertificate};
use ironmesh_enrollment::{EnrollmentClientError, EnrollmentErrorCode};
use ironmesh_sidecar::envoy::AdminSocketPathTooLong;
use ironmesh_sidecar_folder::{NewFolderError, PatchFolderError, ProxyFilesError};
use jiff::Timestamp;

use crate::listeners::DuplicateLocalPort;

/// The failure of a join or of a renewal.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The text is no token.
    #[error(
        "token is malformed: it may be truncated; give the one line of a token that `ironmesh proxy token` printed"
    )]
    MalformedToken,
    /// The file of the token is empty.
    #[error(
        "`{}` has no token; write one that `ironmesh proxy token` printed, and restart the unit if it is a systemd credential",
        file.display()
    )]
    NoToken {
        /// The file.
        file: PathBuf,
    },
    /// The path of Envoy's admin socket would be too long.
    #[error(transparent)]
    SocketPath(#[from] AdminSocketPathTooLong),
    /// The folder of the proxy cannot be created.
    #[error(transparent)]
    NewFolder(#[from] NewFolderError),
    /// The files of the proxy cannot be written.
    #[error(transparent)]
    Files(#[from] ProxyFilesError),
    /// The record of the workload cannot be read.
    #[error(transparent)]
    Workload(#[from] PatchFolderError),
    /// The control plane does not answer, or rejects the request.
    #[error("cannot {action}")]
    ControlPlane {
        /// What was requested.
        action: &'static str,
        /// The reason.
        source: EnrollmentClientError,
    },
    /// The supervisor does not drain.
    #[error("cannot drain Envoy; the proxy is not revoked")]
    Drain(#[source] SupervisorClientError),
    /// The drain was made, and the revocation failed.
    #[error(
        "Envoy has ended, and the proxy is NOT revoked: run `ironmesh agent leave` again, or start `ironmesh envoy run` to stay in the mesh"
    )]
    DrainedOnly {
        /// The reason.
        source: Box<Self>,
    },
    /// The drain takes too long.
    #[error(
        "Envoy has not ended within {seconds} s; the proxy is not revoked: see `ironmesh agent status`, and try again"
    )]
    DrainTimeout {
        /// The time limit.
        seconds: u64,
    },
    /// The settings name another folder than at the start.
    #[error(
        "`folder` in the settings is now `{}`, and this supervisor runs the Envoy of `{}`: restart it for the new folder",
        new.display(), own.display()
    )]
    ChangedFolder {
        /// The folder at the start.
        own: PathBuf,
        /// The folder in the settings.
        new: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} `{}`", path.display())]
    File {
        /// What failed: `read`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The folder is not that of a proxy.
    #[error(
        "`{}` is not the folder of a proxy: it has no {missing}; give the folder that `ironmesh agent join` or `ironmesh proxy bootstrap` wrote",
        path.display()
    )]
    NoProxyFolder {
        /// The folder.
        path: PathBuf,
        /// The names of the missing files.
        missing: String,
    },
    /// Another run works on the same files.
    #[error("another run of ironmesh works on `{}`: try again when it has ended", path.display())]
    Locked {
        /// The folder, or the key.
        path: PathBuf,
    },
    /// The kept key of an unfinished join is not private.
    #[error(
        "key `{}` of an unfinished join belongs to another user, or other users can read it: remove it",
        path.display()
    )]
    ExposedKey {
        /// The key.
        path: PathBuf,
    },
    /// The settings of the machine are invalid.
    #[error("settings `{}` are invalid: {problem}", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// The place in the text, and what is wrong.
        problem: String,
    },
    /// Two upstreams have one local port.
    #[error(transparent)]
    LocalPort(#[from] DuplicateLocalPort),
    /// The machine is not enrolled, and the settings do not say how to enroll it.
    #[error(
        "the machine is not enrolled (`{}` does not exist), and the settings have no `{key}`: add it, or enroll the machine by `ironmesh agent join`",
        folder.display()
    )]
    NotConfigured {
        /// The folder.
        folder: PathBuf,
        /// The missing key.
        key: &'static str,
    },
    /// Another agent runs for the same proxy.
    #[error(
        "another agent{} runs for the proxy in `{}`: stop it first, or set `folder` to that of another proxy",
        pid.map_or_else(String::new, |pid| format!(" (process {pid})")),
        folder.display()
    )]
    SecondAgent {
        /// The folder.
        folder: PathBuf,
        /// The process, if it is known.
        pid: Option<u32>,
    },
    /// The folder is of another mesh than the settings.
    #[error(
        "the proxy in `{}` belongs to another mesh: its CA hash is {}, and the settings have {}; correct `ca_hash`, or remove the folder to enroll the machine again",
        folder.display(), known.join(", "), expected.join(", ")
    )]
    OtherMesh {
        /// The folder.
        folder: PathBuf,
        /// The hashes of its roots.
        known: Vec<String>,
        /// The hashes in the settings.
        expected: Vec<String>,
    },
    /// The path of the agent's socket would be too long.
    #[error(
        "the path of the agent's socket would have {length} bytes, and Linux allows {limit}: `{}`; choose a shorter `folder`",
        path.display()
    )]
    AgentSocketPathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
        /// The longest path.
        limit: usize,
    },
    /// The socket of service certificates cannot be served.
    #[error(
        "cannot serve service certificates on `{}`: check the disk, and that the folder belongs to the agent's user; Envoy keeps the certificates that it has",
        path.display()
    )]
    ServiceCertificateSocket {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The control plane issued a service certificate that peers would reject.
    #[error(
        "the control plane issued a certificate for `{secret}` that must not be used: compare the clocks and the roots of this machine and the control plane; Envoy keeps what it has"
    )]
    UnusableServiceCertificate {
        /// The secret.
        secret: ServiceSecret,
        /// The reason.
        source: UnusableWorkloadCertificate,
    },
    /// A file does not have the content of a proxy's folder.
    #[error("`{}` is unusable: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The key cannot sign.
    #[error("cannot request a certificate for the key `{}`", path.display())]
    Key {
        /// The key.
        path: PathBuf,
        /// The reason.
        source: RequestError,
    },
    /// The machine cannot be enrolled.
    #[error("cannot enroll this machine")]
    Enroll(#[source] EnrollmentClientError),
    /// The machine may be enrolled, but the response was lost.
    #[error(
        "cannot enroll this machine; repeat the command within 5 minutes: it uses the same key, kept in `{}`",
        key.display()
    )]
    EnrollLater {
        /// The kept key.
        key: PathBuf,
        /// The reason.
        source: EnrollmentClientError,
    },
    /// The certificate cannot be renewed.
    #[error(
        "cannot renew the certificate in `{}`, which expires at {expires_at}; its files are unchanged",
        folder.display()
    )]
    Renew {
        /// The folder.
        folder: PathBuf,
        /// When the present certificate expires.
        expires_at: Timestamp,
        /// The reason.
        source: EnrollmentClientError,
    },
    /// The control plane answered with the certificate of another proxy.
    #[error(
        "the control plane issued a certificate for proxy {issued} to proxy {own}: its log may say why; the files in `{}` are unchanged",
        folder.display()
    )]
    OtherProxy {
        /// The folder.
        folder: PathBuf,
        /// The proxy of the folder.
        own: ProxyId,
        /// The proxy of the certificate.
        issued: ProxyId,
    },
}

impl AgentError {
    /// Whether the control plane was not reached, or did not answer in time.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Enroll(source)
            | Self::EnrollLater { source, .. }
            | Self::ControlPlane { source, .. }
            | Self::Renew { source, .. } => source.is_unreachable(),
            Self::DrainedOnly { source } => source.is_unreachable(),
            _ => false,
        }
    }

    /// Whether the control plane rejected the token, or the text is none.
    pub(crate) fn is_rejected_token(&self) -> bool {
        matches!(self, Self::MalformedToken)
            || self.rejection() == Some(EnrollmentErrorCode::TokenRejected)
    }

    /// Whether the proxy is revoked.
    pub(crate) fn is_revoked(&self) -> bool {
        self.rejection() == Some(EnrollmentErrorCode::Revoked)
    }

    fn rejection(&self) -> Option<EnrollmentErrorCode> {
        match self {
            Self::Enroll(EnrollmentClientError::Rejected { code, .. })
            | Self::ControlPlane { source: EnrollmentClientError::Rejected { code, .. }, .. }
            | Self::Renew { source: EnrollmentClientError::Rejected { code, .. }, .. } => {
                Some(*code)
            }
            _ => None,
        }
    }
}
