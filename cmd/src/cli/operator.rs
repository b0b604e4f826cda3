//! The arguments of `ironmesh operator` and `ironmesh context`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ironmesh_catalog::{OperatorName, OperatorRole};

use super::ConnectionArguments;
use super::duration::credential_lifetime;
use crate::context::{ContextName, ServerAddress};

/// A command of `ironmesh operator`.
#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    /// Create a key, and a request for an operator certificate, on the operator's machine
    ///
    /// Writes NAME.key and NAME.csr. Send the request to an admin; the key stays.
    Request(OperatorRequestArguments),
    /// Issue the certificate of an operator for a request
    ///
    /// Writes a file for `ironmesh context add` on the operator's machine. It has no secret.
    Issue(OperatorIssueArguments),
    /// Create a token for an operator who cannot use a certificate, such as a script
    ///
    /// Writes a file for `ironmesh context add`. The file has the token, which is shown nowhere else.
    Token(OperatorTokenArguments),
    /// List operators and their credentials
    List(OperatorListArguments),
    /// Revoke the credentials of an operator, or one of them
    ///
    /// Each control plane rejects them at once, also on open connections. The last admin can be revoked only through
    /// the admin socket.
    Revoke(OperatorRevokeArguments),
}

/// The arguments of `ironmesh operator request`.
#[derive(Debug, Args)]
pub(crate) struct OperatorRequestArguments {
    /// Name the files after this operator
    #[arg(value_name = "NAME")]
    pub(crate) name: OperatorName,
    /// Write the files into this folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,
}

/// The operator of a new credential.
#[derive(Debug, Args)]
pub(crate) struct NewCredentialArguments {
    /// Give the credential to this operator
    #[arg(value_name = "NAME")]
    pub(crate) name: OperatorName,
    /// Give the operator this role: `viewer` reads the mesh, `operator` also policy and changes both, `admin` also gives access
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: OperatorRole,
    /// Write the credential into this new file [default: NAME.json]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Expire after this time, such as `12h` or `90d`, which is the most
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = credential_lifetime)]
    pub(crate) expires: Duration,
}

/// The arguments of `ironmesh operator issue`.
#[derive(Debug, Args)]
pub(crate) struct OperatorIssueArguments {
    #[command(flatten)]
    pub(crate) new: NewCredentialArguments,
    /// Read the certificate request from this file
    #[arg(long, value_name = "FILE")]
    pub(crate) csr: PathBuf,
    #[command(flatten)]
    pub(crate) config: ConnectionArguments,
}

/// The arguments of `ironmesh operator token`.
#[derive(Debug, Args)]
pub(crate) struct OperatorTokenArguments {
    #[command(flatten)]
    pub(crate) new: NewCredentialArguments,
    #[command(flatten)]
    pub(crate) config: ConnectionArguments,
}

/// The arguments of `ironmesh operator list`.
#[derive(Debug, Args)]
pub(crate) struct OperatorListArguments {
    #[command(flatten)]
    pub(crate) config: ConnectionArguments,
}

/// The arguments of `ironmesh operator revoke`.
#[derive(Debug, Args)]
pub(crate) struct OperatorRevokeArguments {
    /// Revoke the credentials of this operator
    #[arg(value_name = "NAME")]
    pub(crate) name: OperatorName,
    /// Revoke only the credential with this id
    #[arg(long, value_name = "ID")]
    pub(crate) credential: Option<String>,
    /// Record this reason
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) config: ConnectionArguments,
}

/// A command of `ironmesh context`.
#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Add a remote mesh by a credential of an operator
    Add(ContextAddArguments),
    /// List contexts; `*` marks the current one
    List,
    /// Use this context from now on; `local` is the control plane of this machine
    Use(ContextNameArgument),
    /// Remove a context and its credential
    Remove(ContextNameArgument),
}

/// The arguments of `ironmesh context add`.
#[derive(Debug, Args)]
pub(crate) struct ContextAddArguments {
    /// Name the context
    #[arg(value_name = "NAME")]
    pub(crate) name: ContextName,
    /// Read the credential from this file, which `operator issue` or `operator token` wrote
    #[arg(long, value_name = "FILE")]
    pub(crate) credential: PathBuf,
    /// Read the key of the certificate from this file, which `operator request` wrote
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Connect to this control plane; may be repeated [default: those that the credential names]
    #[arg(long = "server", value_name = "HOST:PORT")]
    pub(crate) servers: Vec<ServerAddress>,
}

/// The name of a context.
#[derive(Debug, Args)]
pub(crate) struct ContextNameArgument {
    /// The context
    #[arg(value_name = "NAME")]
    pub(crate) name: ContextName,
}
