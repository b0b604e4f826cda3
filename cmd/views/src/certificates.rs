//! Certificates: a table, and the summary with what needs attention first.

mod summary;
mod table;
#[cfg(test)]
mod tests;

pub use summary::summary_text;
pub use table::{narrow, wide};
