//! Localities of endpoints and callers.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::name::InvalidName;

/// A locality in Envoy's terms; each part is empty if it is unknown.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub struct Locality {
    /// The region.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub region: Arc<str>,
    /// The zone in the region.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub zone: Arc<str>,
    /// A part of a zone: a rack, a fault domain.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub sub_zone: Arc<str>,
}

impl Locality {
    /// The most bytes of a part: names of regions and zones are shorter everywhere.
    const LONGEST: usize = 128;

    /// Whether it is unknown.
    pub fn is_empty(&self) -> bool {
        self.parts().iter().all(|part| part.is_empty())
    }

    /// The number of its levels: 1 for a region, 2 for a zone, 3 for a sub-zone; 0 if it is unknown.
    pub fn depth(&self) -> usize {
        self.parts().iter().rposition(|part| !part.is_empty()).map_or(0, |last| last + 1)
    }

    /// The same locality with at most `depth` levels.
    #[must_use]
    pub fn up_to(&self, depth: usize) -> Self {
        let [region, zone, sub_zone] = self.parts().map(Arc::clone);
        Self {
            region: if depth > 0 { region } else { Arc::default() },
            zone: if depth > 1 { zone } else { Arc::default() },
            sub_zone: if depth > 2 { sub_zone } else { Arc::default() },
        }
    }

    /// Whether `other` equals it or is inside it. An unknown locality includes all.
    pub fn includes(&self, other: &Self) -> bool {
        let both = self.parts().into_iter().zip(other.parts());
        both.take(self.depth()).all(|(one, other)| one == other)
    }

    /// Whether both are known to share the region (1), zone (2) or sub-zone (3).
    pub fn shares(&self, other: &Self, depth: usize) -> bool {
        let is_known = |part: &&Arc<str>| !part.is_empty();
        self.parts().get(depth.saturating_sub(1)).is_some_and(is_known)
            && self.up_to(depth) == other.up_to(depth)
    }

    fn parts(&self) -> [&Arc<str>; 3] {
        [&self.region, &self.zone, &self.sub_zone]
    }
}

impl fmt::Display for Locality {
    /// Writes `region/zone/sub_zone`, without unknown parts at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = format!("{}/{}/{}", self.region, self.zone, self.sub_zone);
        f.write_str(whole.trim_end_matches('/'))
    }
}

impl FromStr for Locality {
    type Err = InvalidName;

    /// Parses `region/zone/sub_zone`, or a prefix of it. An unknown part is empty.
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let invalid = |problem| Err(InvalidName { text: text.to_owned(), problem });
        let mut parts = text.split('/');
        let mut part = || Arc::<str>::from(parts.next().unwrap_or_default());
        let locality = Self { region: part(), zone: part(), sub_zone: part() };
        if parts.next().is_some() {
            return invalid("has more than a region, a zone and a sub-zone");
        }
        if locality.to_string() != text || locality.is_empty() {
            return invalid("has nothing behind its last `/`");
        }
        if locality.parts().iter().any(|part| part.len() > Self::LONGEST) {
            return invalid("has a part of more than 128 bytes");
        }
        if text.contains(|c: char| c.is_control() || c.is_whitespace() || c == '*') {
            return invalid("may have no spaces, no `*` and no control characters");
        }
        Ok(locality)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Locality {
        text.parse().unwrap()
    }

    #[test]
    fn locality_text_round_trips_and_invalid_text_is_rejected() {
        for text in ["eu", "eu/1", "eu/1/rack-7", "/1", "//rack-7", "eu//rack-7"] {
            assert_eq!(place(text).to_string(), text);
        }
        let long = "a".repeat(129);
        for bad in ["", "/", "eu/", "eu/1/", "a/b/c/d", "e u", "eu/*", "eu/\u{7}", &long] {
            assert!(bad.parse::<Locality>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn locality_includes_more_specific_localities() {
        let rack = place("eu/1/7");
        for (other, is_in) in [("eu", true), ("eu/1", true), ("eu/2", false), ("us", false)] {
            assert_eq!(place(other).includes(&rack), is_in, "{other}");
            assert!(!rack.includes(&place(other)));
        }
        assert!(Locality::default().includes(&rack) && !place("/1").includes(&rack));
        assert_eq!([0, 1, 2, 3].map(|n| rack.up_to(n).to_string()), ["", "eu", "eu/1", "eu/1/7"]);
        assert_eq!([0, 1, 2, 3].map(|n| rack.up_to(n).depth()), [0, 1, 2, 3]);
    }

    #[test]
    fn localities_share_only_levels_known_of_both() {
        let shares =
            |one: &str, other: &str| [1, 2, 3].map(|depth| place(one).shares(&place(other), depth));
        assert_eq!(shares("eu/1/7", "eu/1/8"), [true, true, false]);
        assert_eq!(shares("eu/1", "us/1"), [false, false, false]);
        // Of a caller whose zone is not known nothing is in the same one.
        assert_eq!(shares("eu", "eu"), [true, false, false]);
        assert_eq!(shares("/1", "/1"), [false, true, false]);
    }
}
