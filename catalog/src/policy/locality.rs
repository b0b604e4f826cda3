//! `locality` of an upstream traffic setting: the preference of callers by locality (docs/decisions/0036).

use std::fmt;

use crate::locality::Locality;

/// The preference of callers between endpoints, by locality.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalitySetting {
    /// `prefer_local`: the level that counts as local. Endpoints in the same locality come first, then step by
    /// step those in the localities around it.
    pub prefer_local: Option<Nearness>,
    /// `failover`: the order of localities at equal distance from a caller. Each `from` occurs once.
    pub failover: Vec<Failover>,
    /// `distribute`: fixed shares, with precedence over everything else. Each `from` occurs once.
    pub distribute: Vec<Distribution>,
}

/// The level that two localities must share to be near each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nearness {
    /// The region.
    Region,
    /// The region and the zone.
    Zone,
    /// Region, zone and sub-zone.
    SubZone,
}

impl Nearness {
    /// All values, with their words in policy.
    pub const ALL: [(&str, Self); 3] =
        [("region", Self::Region), ("zone", Self::Zone), ("sub_zone", Self::SubZone)];

    /// The number of levels that it compares.
    pub fn depth(self) -> usize {
        match self {
            Self::Region => 1,
            Self::Zone => 2,
            Self::SubZone => 3,
        }
    }
}

impl fmt::Display for Nearness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::ALL.iter().find(|(_, one)| one == self).map_or("", |(word, _)| word);
        f.write_str(word)
    }
}

/// The failover order of callers in a locality.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failover {
    /// The locality of the callers. Default: callers without another rule.
    pub from: Locality,
    /// The localities, in order. Never empty.
    pub to: Vec<Locality>,
}

/// The distribution of calls from a locality.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution {
    /// The locality of the callers. Default: callers without another rule.
    pub from: Locality,
    /// The localities, none inside another, with their shares in percent: from 1 to 100, and 100 together.
    /// Never empty.
    pub to: Vec<(Locality, u32)>,
}

/// The rank of a locality with endpoints for a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceRank {
    /// Its priority: 0 is first, without gaps.
    pub priority: u32,
    /// Its share within its priority, relative to the others.
    pub share: u32,
}

/// The approximate sum of the shares of one priority, which are rounded.
const WHOLE: u64 = 1_000_000;

impl LocalitySetting {
    /// The number of levels of a caller's locality that matter. Callers that agree on these have the same
    /// ranks.
    pub fn depth(&self) -> usize {
        let froms = self.failover.iter().map(|one| &one.from);
        let froms = froms.chain(self.distribute.iter().map(|one| &one.from));
        let near = self.prefer_local.map_or(0, Nearness::depth);
        froms.map(Locality::depth).fold(near, usize::max)
    }

    /// The ranks of localities for `caller`. Each locality is given once with its total weight; the result has
    /// the same order.
    pub fn rank(&self, caller: &Locality, places: &[(&Locality, u64)]) -> Vec<PlaceRank> {
        let distribution = nearest(&self.distribute, |one| &one.from, caller);
        let failover = nearest(&self.failover, |one| &one.from, caller);
        let shared = |place: &Locality| {
            let to = distribution.iter().flat_map(|one| &one.to);
            to.enumerate().find(|(_, (to, _))| to.includes(place))
        };
        // Without a known locality of the caller nothing is near or far.
        let has_order =
            distribution.is_some() || (self.prefer_local.is_some() && !caller.is_empty());
        let key = |place: &Locality| {
            if !has_order || shared(place).is_some() {
                return (0, 0);
            }
            let depth = self.prefer_local.map_or(0, Nearness::depth);
            let near = (1..=depth).rev().find(|near| caller.shares(place, *near));
            let steps = near.map_or(depth, |near| depth - near);
            let to = failover.iter().flat_map(|one| &one.to);
            let named = to.enumerate().find(|(_, to)| to.includes(place));
            let is_here = near == Some(depth);
            (steps + 1, if is_here { 0 } else { named.map_or(usize::MAX, |(n, _)| n) })
        };
        let mut order: Vec<_> = places.iter().map(|(place, _)| key(place)).collect();
        let keys = order.clone();
        order.sort_unstable();
        order.dedup();
        let rank = |(n, (place, weight)): (usize, &(&Locality, u64))| {
            let own = keys.get(n);
            let shared = shared(place);
            // Its peers: all in its priority, or those in the same locality of a distribution.
            let with = |(other, (place, _)): &(usize, &(&Locality, u64))| match shared {
                Some((_, (to, _))) => to.includes(place),
                None => keys.get(*other) == own,
            };
            let all = places.iter().enumerate().filter(with).map(|(_, (_, weight))| weight);
            let whole = shared.map_or(WHOLE, |(_, (_, percent))| WHOLE / 100 * u64::from(*percent));
            let share = part(whole, *weight, all.sum());
            let priority = order.iter().position(|one| Some(one) == own).unwrap_or_default();
            PlaceRank { priority: u32::try_from(priority).unwrap_or(u32::MAX), share }
        };
        places.iter().enumerate().map(rank).collect()
    }
}

/// The part of `whole` for `weight` among `all`, at least 1.
fn part(whole: u64, weight: u64, all: u64) -> u32 {
    let part = u128::from(whole) * u128::from(weight) / u128::from(all.max(1));
    u32::try_from(part).unwrap_or(u32::MAX).max(1)
}

/// The rule with the most specific locality of `caller`.
fn nearest<'a, T>(
    rules: &'a [T],
    from: impl Fn(&T) -> &Locality,
    caller: &Locality,
) -> Option<&'a T> {
    let about = rules.iter().filter(|rule| from(rule).includes(caller));
    about.max_by_key(|rule| from(rule).depth())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Locality {
        if text.is_empty() { Locality::default() } else { text.parse().unwrap() }
    }

    fn failover(from: &str, to: &[&str]) -> Failover {
        Failover { from: place(from), to: to.iter().map(|to| place(to)).collect() }
    }

    fn distribution(from: &str, to: &[(&str, u32)]) -> Distribution {
        Distribution {
            from: place(from),
            to: to.iter().map(|(to, share)| (place(to), *share)).collect(),
        }
    }

    /// The places in the order in which they are called.
    fn order(setting: &LocalitySetting, caller: &str, places: &[&str]) -> Vec<Vec<String>> {
        let known: Vec<_> = places.iter().map(|text| place(text)).collect();
        let weighted: Vec<_> = known.iter().map(|place| (place, 1)).collect();
        // What it says of a caller is the same of all that are alike so far.
        let caller = place(caller);
        let ranks = setting.rank(&caller, &weighted);
        assert_eq!(setting.rank(&caller.up_to(setting.depth()), &weighted), ranks);
        let last = ranks.iter().map(|rank| rank.priority).max().unwrap_or_default();
        let of = |priority| {
            let all = places.iter().zip(&ranks).filter(|(_, rank)| rank.priority == priority);
            all.map(|(text, _)| (*text).to_owned()).collect::<Vec<_>>()
        };
        (0..=last).map(of).collect()
    }

    const PLACES: [&str; 6] = ["eu/1/a", "eu/1/b", "eu/2", "us/1", "us/2", ""];

    #[test]
    fn prefer_local_orders_localities_by_distance() {
        let prefer = |near| LocalitySetting { prefer_local: Some(near), ..Default::default() };
        let zone = prefer(Nearness::Zone);
        assert_eq!(
            order(&zone, "eu/1/a", &PLACES),
            [vec!["eu/1/a", "eu/1/b"], vec!["eu/2"], vec!["us/1", "us/2", ""]]
        );
        let sub_zone = order(&prefer(Nearness::SubZone), "eu/1/a", &PLACES);
        assert_eq!(sub_zone[..2], [["eu/1/a"], ["eu/1/b"]]);
        assert_eq!(sub_zone.len(), 4);
        let region = order(&prefer(Nearness::Region), "us/9", &PLACES);
        assert_eq!(region[0], ["us/1", "us/2"]);
        assert_eq!(region.len(), 2);
        // If no endpoint is near, the next distance has priority 0: Envoy requires priorities without gaps.
        assert_eq!(order(&zone, "eu/3", &PLACES)[0], ["eu/1/a", "eu/1/b", "eu/2"]);
        assert_eq!(order(&zone, "ap/1", &PLACES).len(), 1);
        // Without a known locality of the caller nothing is near or far.
        assert_eq!(order(&zone, "", &PLACES).len(), 1);
        assert_eq!(order(&LocalitySetting::default(), "eu/1", &PLACES).len(), 1);
    }

    #[test]
    fn failover_orders_equally_distant_localities() {
        let setting = LocalitySetting {
            prefer_local: Some(Nearness::Zone),
            failover: vec![
                failover("", &["us/2"]),
                failover("eu/1", &["eu/3", "us/1", "us"]),
                failover("eu", &["ap"]),
            ],
            ..Default::default()
        };
        let places = ["eu/1", "eu/2", "eu/3", "us/1", "us/2", "ap", "af"];
        let nearest = order(&setting, "eu/1", &places);
        assert_eq!(nearest.concat(), ["eu/1", "eu/3", "eu/2", "us/1", "us/2", "ap", "af"]);
        assert_eq!(nearest.last().unwrap(), &["ap", "af"]);
        assert_eq!(order(&setting, "eu/2", &places)[2], ["ap"]);
        assert_eq!(order(&setting, "ap/1", &places)[1], ["us/2"]);
        assert_eq!(order(&setting, "", &places).len(), 1);
        assert_eq!(setting.depth(), 2);
    }

    #[test]
    fn distributed_localities_precede_unlisted_ones() {
        let setting = LocalitySetting {
            prefer_local: Some(Nearness::Region),
            failover: vec![failover("", &["us"])],
            distribute: vec![
                distribution("eu", &[("eu/1", 80), ("eu/2", 20)]),
                distribution("", &[("us", 100)]),
            ],
        };
        let places = ["eu/1/a", "eu/1/b", "eu/2", "eu/3", "us/1", "ap"];
        let in_eu = order(&setting, "eu/9", &places);
        assert_eq!(
            in_eu,
            [vec!["eu/1/a", "eu/1/b", "eu/2"], vec!["eu/3"], vec!["us/1"], vec!["ap"]]
        );
        assert_eq!(order(&setting, "", &places)[0], ["us/1"]);

        let known: Vec<_> = places.iter().map(|text| place(text)).collect();
        let weighted: Vec<_> = known.iter().zip([3, 1, 9, 1, 1, 1]).collect();
        let shares: Vec<_> = setting.rank(&place("eu/9"), &weighted);
        let shares: Vec<_> = shares.iter().map(|rank| rank.share).collect();
        assert_eq!(shares, [600_000, 200_000, 200_000, 1_000_000, 1_000_000, 1_000_000]);
    }

    #[test]
    fn distribution_shares_hold_for_extreme_weights() {
        let setting = LocalitySetting {
            distribute: vec![distribution("", &[("eu", 1), ("us", 99)])],
            ..Default::default()
        };
        let (eu, us) = (place("eu/1"), place("us/1"));
        let most = u64::from(u32::MAX) * 1000;
        let other = place("eu/2");
        let ranks = setting.rank(&place(""), &[(&eu, most), (&other, 1), (&us, 1)]);
        let shares: Vec<_> = ranks.iter().map(|rank| rank.share).collect();
        // A locality whose share would round to 0 still receives calls.
        assert_eq!(shares, [9_999, 1, 990_000]);
        assert!(setting.rank(&eu, &[]).is_empty());
    }
}
