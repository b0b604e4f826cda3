//! `ironmesh policy …`

mod check;
mod envoy;
mod schema;

use crate::cli::{Output, PolicyCommand};

pub(crate) async fn run(command: PolicyCommand, output: Output) -> anyhow::Result<()> {
    match command {
        PolicyCommand::Check(arguments) => check::check(&arguments, output).await,
        PolicyCommand::Schema => {
            schema::print();
            Ok(())
        }
    }
}
