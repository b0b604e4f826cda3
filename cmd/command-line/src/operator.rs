//! The arguments of `ironmesh operator` and `ironmesh context`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ironmesh_catalog::{OperatorName, OperatorRole};

use crate::duration::credential_lifetime;
use crate::{ConnectionArguments, ContextName, ServerAddress};

/// A command of `ironmesh operator`.
#[derive(Debug, Subcommand)]
pub enum OperatorCommand {
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
pub struct OperatorRequestArguments {
    /// Name the files after this operator
    #[arg(value_name = "NAME")]
    pub name: OperatorName,
    /// Write the files into this folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
}

/// The operator of a new credential.
#[derive(Debug, Args)]
pub struct NewCredentialArguments {
    /// Give the credential to this operator
    #[arg(value_name = "NAME")]
    pub name: OperatorName,
    /// Give the operator this role: `viewer` reads the mesh, `operator` also policy and changes both, `admin` also gives access
    #[arg(long, value_name = "ROLE")]
    pub role: OperatorRole,
    /// Write the credential into this new file [default: NAME.json]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Expire after this time, such as `12h` or `90d`, which is the most
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = credential_lifetime)]
    pub expires: Duration,
}

/// The arguments of `ironmesh operator issue`.
#[derive(Debug, Args)]
pub struct OperatorIssueArguments {
    /// The new credential.
    #[command(flatten)]
    pub new: NewCredentialArguments,
    /// Read the certificate request from this file
    #[arg(long, value_name = "FILE")]
    pub csr: PathBuf,
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
}

/// The arguments of `ironmesh operator token`.
#[derive(Debug, Args)]
pub struct OperatorTokenArguments {
    /// The new credential.
    #[command(flatten)]
    pub new: NewCredentialArguments,
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
}

/// The arguments of `ironmesh operator list`.
#[derive(Debug, Args)]
pub struct OperatorListArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
}

/// The arguments of `ironmesh operator revoke`.
#[derive(Debug, Args)]
pub struct OperatorRevokeArguments {
    /// Revoke the credentials of this operator
    #[arg(value_name = "NAME")]
    pub name: OperatorName,
    /// Revoke only the credential with this id
    #[arg(long, value_name = "ID")]
    pub credential: Option<String>,
    /// Record this reason
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
}

/// A command of `ironmesh context`.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
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
pub struct ContextAddArguments {
    /// Name the context
    #[arg(value_name = "NAME")]
    pub name: ContextName,
    /// Read the credential from this file, which `operator issue` or `operator token` wrote
    #[arg(long, value_name = "FILE")]
    pub credential: PathBuf,
    /// Read the key of the certificate from this file, which `operator request` wrote
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Connect to this control plane; may be repeated [default: those that the credential names]
    #[arg(long = "server", value_name = "HOST:PORT")]
    pub servers: Vec<ServerAddress>,
}

/// The name of a context.
#[derive(Debug, Args)]
pub struct ContextNameArgument {
    /// The context
    #[arg(value_name = "NAME")]
    pub name: ContextName,
}
