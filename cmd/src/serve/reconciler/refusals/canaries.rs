//! Canaries: the few proxies that are asked for a version that others refuse, before it is withheld from
//! all the rest.
//!
//! The control plane chooses them, and by chance, so that those who refuse cannot choose who is asked. This
//! module knows neither what is refused nor what a proxy is given.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;

use ironmesh_catalog::ServiceAccount;
use ironmesh_xds_server::ClientKey;
use ironmesh_xds_server::stream::ACK_DEADLINE;
use ironmesh_xds_wire::Version;
use tokio::time::Instant;

use super::Name;

/// How many proxies are asked besides those that refuse.
pub(super) const CANARIES: usize = 3;

/// A proxy that is to have a version, and the account of its calls.
pub(super) type Candidate<'a> = (&'a ClientKey, Option<&'a ServiceAccount>);

/// Who is asked for which version, and since when.
#[derive(Debug, Default)]
pub(super) struct Canaries {
    by_version: BTreeMap<(Name, Version), BTreeMap<ClientKey, Instant>>,
    hasher: RandomState,
}

impl Canaries {
    /// Chooses canaries until there are [`CANARIES`] that refuse the version or have time left to answer.
    /// Of `candidates`, those come first whose account is neither that of one that refuses nor that of one
    /// that is asked already. Says whether there is a new one.
    pub(super) fn choose<'a>(
        &mut self,
        version: &(Name, Version),
        refusing: &BTreeMap<&ClientKey, Option<&'a ServiceAccount>>,
        candidates: impl FnOnce() -> Vec<Candidate<'a>>,
        now: Instant,
    ) -> bool {
        let asked = self.by_version.entry(version.clone()).or_default();
        let counts = |client: &ClientKey, since: &Instant| {
            refusing.contains_key(client) || now < *since + ACK_DEADLINE
        };
        let counting = asked.iter().filter(|(client, since)| counts(client, since)).count();
        if counting >= CANARIES {
            return false;
        }
        let mut others = candidates();
        let is_asked = |client: &ClientKey| asked.contains_key(client);
        let of_asked = others.iter().filter(|(client, _)| is_asked(client)).map(|(_, of)| *of);
        let mut accounts: BTreeSet<_> = refusing.values().copied().chain(of_asked).collect();
        others.retain(|(client, _)| !is_asked(client) && !refusing.contains_key(client));
        others.sort_by_cached_key(|(client, _)| self.hasher.hash_one(client));
        for _ in counting..CANARIES {
            let elsewhere = others.iter().position(|(_, account)| !accounts.contains(account));
            let Some(at) = elsewhere.or_else(|| (!others.is_empty()).then_some(0)) else { break };
            let (client, account) = others.remove(at);
            accounts.insert(account);
            asked.insert(ClientKey::clone(client), now);
        }
        asked.values().any(|since| *since == now)
    }

    /// Whether a client is asked for a version though others refuse it.
    pub(super) fn are_asked(&self, version: &(Name, Version), client: &str) -> bool {
        self.by_version.get(version).is_some_and(|asked| asked.contains_key(client))
    }

    /// When somebody else is to be asked, because one that is asked does not answer.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let due = self.by_version.values().flat_map(|asked| asked.values());
        due.map(|since| *since + ACK_DEADLINE).filter(|due| *due > now).min()
    }

    /// Forgets what is not refused any more, and a client that has gone.
    pub(super) fn retain(&mut self, is_refused: impl Fn(&(Name, Version)) -> bool) {
        self.by_version.retain(|version, _| is_refused(version));
    }

    /// A client has gone: it is not asked any more.
    pub(super) fn left(&mut self, client: &str) {
        for asked in self.by_version.values_mut() {
            asked.remove(client);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ironmesh_xds_wire::ResourceType;

    use super::*;

    struct Fleet {
        clients: Vec<(ClientKey, Option<ServiceAccount>)>,
        canaries: Canaries,
        version: (Name, Version),
    }

    impl Fleet {
        /// Proxies of these accounts.
        fn new(accounts: &[&str]) -> Self {
            let accounts = accounts.iter().map(|account| Some(account.parse().unwrap()));
            let keys = (0..).map(|number: usize| ClientKey::from(format!("proxy-{number:02}")));
            Self {
                clients: keys.zip(accounts).collect(),
                canaries: Canaries::default(),
                version: ((ResourceType::Route, Arc::from("r")), Version::of_all([])),
            }
        }

        /// Those that are asked when these of the proxies refuse.
        fn asked(&mut self, refusing: &[usize], now: Instant) -> BTreeSet<usize> {
            let refusing: BTreeMap<_, _> = refusing
                .iter()
                .map(|at| (&self.clients[*at].0, self.clients[*at].1.as_ref()))
                .collect();
            let all = || self.clients.iter().map(|(key, of)| (key, of.as_ref())).collect();
            self.canaries.choose(&self.version, &refusing, all, now);
            let is_asked =
                |at: &usize| self.canaries.are_asked(&self.version, &self.clients[*at].0);
            (0..self.clients.len()).filter(is_asked).collect()
        }
    }

    #[test]
    fn canaries_are_of_other_accounts_if_there_are_some() {
        let mut fleet = Fleet::new(&["bad", "bad", "bad", "bad", "a", "a", "b", "b", "c", "c"]);
        let asked = fleet.asked(&[0, 1], Instant::now());
        let accounts: Vec<_> = asked.iter().map(|at| at / 2).collect();
        assert_eq!(accounts, [2, 3, 4], "one of each");
    }

    #[test]
    fn canaries_that_refuse_are_not_replaced() {
        let mut fleet = Fleet::new(&["x"; 10]);
        let now = Instant::now();
        let asked = fleet.asked(&[0, 1], now);
        assert_eq!(asked.len(), CANARIES);
        let mut refusing = vec![0, 1];
        refusing.extend(&asked);
        assert_eq!(fleet.asked(&refusing, now + 2 * ACK_DEADLINE), asked);
    }

    #[test]
    fn canaries_that_do_not_answer_in_time_are_replaced() {
        let mut fleet = Fleet::new(&["x"; 10]);
        let now = Instant::now();
        let asked = fleet.asked(&[0, 1], now);
        let early = now + ACK_DEADLINE - Duration::from_millis(1);
        assert_eq!(fleet.asked(&[0, 1], early), asked);
        assert_eq!(fleet.canaries.deadline(early), Some(now + ACK_DEADLINE));
        let more = fleet.asked(&[0, 1], now + ACK_DEADLINE);
        assert!(more.is_superset(&asked));
        assert_eq!(more.len(), 2 * CANARIES);
    }

    #[test]
    fn canary_that_leaves_is_replaced() {
        let mut fleet = Fleet::new(&["x"; 10]);
        let now = Instant::now();
        let asked = fleet.asked(&[0, 1], now);
        let gone = *asked.first().unwrap();
        let (key, _) = fleet.clients.remove(gone);
        fleet.canaries.left(&key);
        assert_eq!(fleet.asked(&[0, 1], now).len(), CANARIES);
    }
}
