//! `ironmesh demo`: the bookstore goes about its business, and people change its policy.
use crate::{error::DemoError, options::Options, signals::Signals, stage::Stage};
pub(crate) async fn run(_: &Options, _: &mut Stage, _: &mut Signals) -> Result<(), DemoError> { Ok(()) }
