//! Labels, by which policy selects endpoints and proxies.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Labels of an endpoint: arbitrary names and values. A copy is cheap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(Arc<BTreeMap<Arc<str>, Arc<str>>>);

impl Labels {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each name with its value, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, word)| (&**name, &**word))
    }

    /// Whether they contain all labels of `selector`.
    pub fn include(&self, selector: &Self) -> bool {
        selector.0.iter().all(|(name, word)| self.0.get(name) == Some(word))
    }
}

impl<N: Into<Arc<str>>, W: Into<Arc<str>>> FromIterator<(N, W)> for Labels {
    fn from_iter<I: IntoIterator<Item = (N, W)>>(labels: I) -> Self {
        Self(Arc::new(labels.into_iter().map(|(name, word)| (name.into(), word.into())).collect()))
    }
}

impl fmt::Display for Labels {
    /// Writes `name=word,name=word`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (name, word)) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{name}={word}")?;
        }
        Ok(())
    }
}
