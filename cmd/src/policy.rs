//! `ironmesh policy …`

mod check;
mod schema;

use crate::cli::{Output, PolicyCommand};

pub(crate) fn run(command: &PolicyCommand, output: Output) -> anyhow::Result<()> {
    match command {
        PolicyCommand::Check(arguments) => check::check(arguments, output),
        PolicyCommand::Schema => {
            schema::print();
            Ok(())
        }
    }
}
