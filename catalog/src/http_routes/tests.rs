use std::sync::Arc;

use super::*;
use crate::finding::Spot;
use crate::policy::{CallSettings, RetryDestination};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn account(text: &str) -> ServiceAccount {
    text.parse().unwrap()
}

fn spot() -> Spot {
    Spot { file: "p.toml".into(), ..Spot::default() }
}
