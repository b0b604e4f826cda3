//! The exporter of a program that has none.

use std::convert::Infallible;
use std::future::Ready;

use tokio_util::sync::CancellationToken;

use crate::{ExporterError, SpanQueue};

/// The exporter of the spans in a queue. This program has none.
#[derive(Debug)]
pub struct TraceExporter(Infallible);

impl TraceExporter {
    /// Fails: the feature `otlp` is off.
    pub fn open(
        _endpoint: &str,
        _resource: Vec<(&'static str, String)>,
    ) -> Result<(SpanQueue, Self), ExporterError> {
        Err(ExporterError::NotBuiltIn)
    }

    /// Never runs: no value of this type exists.
    pub fn run(self, _shutdown: CancellationToken) -> Ready<()> {
        match self.0 {}
    }
}
