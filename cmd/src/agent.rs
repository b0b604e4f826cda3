//! `ironmesh agent`: commands on the machine of a proxy.

mod join;
mod leave;
mod run;
mod status;

pub(crate) use join::{join, print_retry};
pub(crate) use leave::leave;
pub(crate) use run::run;
pub(crate) use status::status;
