//! The arguments of `ironmesh cert …`.

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand};
use ironmesh_api::CertificateKind;

use crate::ConnectionArguments;

/// A command of `ironmesh cert`.
#[derive(Debug, Subcommand)]
pub enum CertCommand {
    /// List the certificates of the mesh: their state, age, expiry and use
    List(CertListArguments),
    /// Show the certificates that need attention, then a summary of each kind
    ///
    /// Exits with 3 if a certificate in use has expired, or should have been renewed; otherwise with 0.
    Status(CertStatusArguments),
}

/// The arguments of `ironmesh cert list`.
#[derive(Debug, Args)]
pub struct CertListArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// List only the certificates of this kind
    #[arg(
        long,
        value_name = "KIND",
        value_parser = PossibleValuesParser::new(CertificateKind::ALL.map(CertificateKind::as_str))
            .try_map(|word| {
                let kind = CertificateKind::ALL.into_iter().find(|kind| kind.as_str() == word);
                kind.ok_or("unknown kind")
            })
    )]
    pub kind: Option<CertificateKind>,
}

/// The arguments of `ironmesh cert status`.
#[derive(Debug, Args)]
pub struct CertStatusArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
}
