//! The arguments of `ironmesh ui` and `ironmesh session`.

use clap::{Args, Subcommand};
use ironmesh_catalog::{OperatorRole, TokenId};

use crate::ConnectionArguments;

/// The arguments of `ironmesh ui`.
#[derive(Debug, Args)]
pub struct UiArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Give the session this role, at most your own [default: your own]
    #[arg(long, value_name = "ROLE")]
    pub role: Option<OperatorRole>,
}

/// A command of `ironmesh session`.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// List login links and the sessions of browsers, the newest first
    List(SessionListArguments),
    /// Revoke a login link or a session
    ///
    /// Each control plane rejects it at once. A session also ends when the credential of its operator is revoked.
    Revoke(SessionRevokeArguments),
}

/// The arguments of `ironmesh session list`.
#[derive(Debug, Args)]
pub struct SessionListArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
}

/// The arguments of `ironmesh session revoke`.
#[derive(Debug, Args)]
pub struct SessionRevokeArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Revoke the login with this id, 16 digits, as `ironmesh session list` shows it
    #[arg(value_name = "ID", value_parser = login_id)]
    pub id: TokenId,
}

fn login_id(text: &str) -> Result<TokenId, &'static str> {
    text.parse().map_err(|_| "expected the id of a login, as `ironmesh session list` shows it")
}
