//! The programs behind the sidecars. They run in this process, and know nothing of a mesh.

mod records;
mod store;
mod warehouse;

pub(crate) use records::{Records, outcome_of};
pub(crate) use store::{APPLICATION, MACHINE, Store};
pub(crate) use warehouse::Warehouse;
