//! The filter of the log, which is replaced while the process runs.

use ironmesh_catalog::LogDirectives;
use tracing_subscriber::{EnvFilter, Registry, reload};

/// The environment variable with the filter, which replaces that of the settings.
const VARIABLE: &str = "RUST_LOG";

/// The filter of the log. This handle alone replaces it.
#[derive(Debug, Clone)]
pub struct LogFilterHandle {
    handle: reload::Handle<EnvFilter, Registry>,
    environment: Option<String>,
}

/// The layer of a filter.
pub(super) type FilterLayer = reload::Layer<EnvFilter, Registry>;

impl LogFilterHandle {
    /// The layer with the filter of this value of `RUST_LOG`, or else the default one; and why the value is invalid.
    pub(super) fn new(variable: Option<String>) -> (FilterLayer, Self, Option<String>) {
        let variable = variable.filter(|value| !value.trim().is_empty());
        let parsed = variable.as_deref().map(EnvFilter::try_new);
        let (filter, problem) = match parsed {
            Some(Ok(filter)) => (filter, None),
            Some(Err(error)) => (configured(&LogDirectives::default()), Some(error.to_string())),
            None => (configured(&LogDirectives::default()), None),
        };
        let (layer, handle) = reload::Layer::new(filter);
        let environment = variable.filter(|_| problem.is_none());
        (layer, Self { handle, environment }, problem)
    }

    /// The value of `RUST_LOG`.
    pub(super) fn variable() -> Option<String> {
        std::env::var(VARIABLE).ok()
    }

    /// The filter of the environment variable `RUST_LOG`; none if that is not set, or invalid.
    pub fn environment(&self) -> Option<&str> {
        self.environment.as_deref()
    }

    /// Replaces the filter. None is that of the environment.
    pub fn set(&self, directives: Option<&LogDirectives>) {
        let filter = match (directives, &self.environment) {
            (Some(directives), _) => configured(directives),
            (None, Some(environment)) => EnvFilter::new(environment),
            (None, None) => configured(&LogDirectives::default()),
        };
        // It fails only without a subscriber, which lives as long as the process.
        let _ = self.handle.reload(filter);
    }
}

fn configured(directives: &LogDirectives) -> EnvFilter {
    EnvFilter::new(directives.as_str())
}

#[cfg(test)]
mod tests {
    use tracing::level_filters::LevelFilter;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn level(handle: &LogFilterHandle) -> Option<LevelFilter> {
        handle.handle.with_current(EnvFilter::max_level_hint).unwrap()
    }

    #[test]
    fn filter_is_replaced_and_returns_to_the_environment() {
        let (layer, handle, problem) = LogFilterHandle::new(Some("warn,x[span]=error".to_owned()));
        assert_eq!((handle.environment(), problem), (Some("warn,x[span]=error"), None));
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            assert!(tracing::enabled!(tracing::Level::WARN));
            assert!(!tracing::enabled!(tracing::Level::DEBUG));
            handle.set(Some(&"debug,other=trace".parse().unwrap()));
            assert!(tracing::enabled!(tracing::Level::DEBUG));
            handle.set(None);
            assert!(!tracing::enabled!(tracing::Level::INFO));
        });
    }

    #[test]
    fn empty_or_invalid_variable_counts_as_unset() {
        for (value, is_invalid) in [(None, false), (Some(" "), false), (Some("a=b=c"), true)] {
            let (_layer, handle, problem) = LogFilterHandle::new(value.map(str::to_owned));
            assert_eq!((handle.environment(), problem.is_some()), (None, is_invalid), "{value:?}");
            assert_eq!(level(&handle), Some(LevelFilter::INFO));
        }
    }
}
