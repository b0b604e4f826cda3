//! Endpoints: a table, and the changes between two lists.

mod changes;
mod table;

pub use changes::changes;
pub use table::text;
