//! What a compiled piece has read of the mesh, and which reads a change makes stale.
//!
//! Every piece keeps the reads of its compilation. A piece without a changed read would compile to what it is: so
//! nothing lists by hand what a change affects. [`crate::mesh_view`] records reads, and compares their results in two snapshots.

use std::cell::RefCell;

use foldhash::{HashMap, HashSet};
use ironmesh_catalog::{Name, ServiceAccount, ServiceName, ServicePort};

use crate::shared::{ClusterKey, ViewId};

/// One value that a compilation can depend on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Read {
    /// A service, as far as callers see it.
    Service(ServiceName),
    /// The upstreams of a service's proxies.
    Upstreams(ServiceName),
    Mode(ServiceName),
    /// Whether callers may dial endpoints of a service in plaintext.
    Plaintext(ServiceName),
    /// The hosts of all external services.
    ExternalHosts,
    /// The namespaces of all services.
    Namespaces,
    /// Whether calls of a namespace to the outside pass.
    Passthrough(Name),
    /// The ports that every account may call, or every account of a namespace.
    Permissive(Option<Name>),
    ServicesOf(ServiceAccount),
    GrantsOn(ServiceAccount),
    GrantsTo(ServiceAccount),
    RouteGroup(Name, Name),
    TcpRoute(Name, Name),
    /// The destination of calls to a port, by splits.
    Destination(ServicePort),
    /// The ports with a split to a port.
    Apexes(ServicePort),
    /// HTTP routes and retries of calls to a service.
    Treatments(ServiceName),
    /// Whether HTTP routes or retries name an account as a caller.
    NamedCaller(ServiceAccount),
    /// Upstream traffic settings of a service and of its levels.
    Settings(ServiceName),
    Egresses(ServiceAccount),
    IngressRules(ServicePort),
    IngressBackend(Name, Name),
    Telemetry(ServiceName),
    TcpAccess(ServicePort),
    Certificate(ServiceAccount),
    TrustBundle,
    /// The names of revoked callers.
    RevokedNames,
    /// The certificate revocation lists.
    RevocationLists,
    /// The number of an account's newest revocation.
    LastListed(ServiceAccount),
    // Compiled pieces.
    Cluster(ClusterKey),
    InboundRoutes(ServicePort),
    TcpAuthorization(ServicePort),
    ByCaller(ServicePort),
    Scope(ServiceAccount),
    View(ViewId),
    /// The clusters of a view for proxies with certificates from their agents.
    AgentFedView(ViewId),
    UpstreamRoutes(ViewId, ServicePort),
}

/// Records the reads of one compilation.
#[derive(Debug, Default)]
pub(crate) struct Reads(RefCell<HashSet<Read>>);

impl Reads {
    pub(crate) fn record(&self, read: Read) {
        self.0.borrow_mut().insert(read);
    }
}

/// The reads of a finished compilation.
#[derive(Debug, Default)]
pub(crate) struct ReadSet(Box<[u32]>);

/// All reads of compiled pieces, each stored once, under a number.
#[derive(Debug, Default)]
pub(crate) struct ReadTable {
    numbers: HashMap<Read, u32>,
    /// Numbers below the highest that are free.
    free: Vec<u32>,
    /// The count of reads above which unused ones are looked for.
    limit: usize,
}

impl ReadTable {
    /// Stores the reads of a compilation.
    pub(crate) fn store(&mut self, reads: Reads) -> ReadSet {
        let reads = reads.0.into_inner();
        // The order of numbers has no effect.
        #[expect(clippy::iter_over_hash_type, reason = "a set of numbers")]
        let numbers = {
            let mut numbers = Vec::with_capacity(reads.len());
            for read in reads {
                numbers.push(self.number(read));
            }
            numbers
        };
        ReadSet(numbers.into())
    }

    fn number(&mut self, read: Read) -> u32 {
        if let Some(number) = self.numbers.get(&read) {
            return *number;
        }
        let next = u32::try_from(self.numbers.len() + self.free.len()).unwrap_or(u32::MAX);
        let number = self.free.pop().unwrap_or(next);
        self.numbers.insert(read, number);
        number
    }

    /// The reads that `is_changed`.
    pub(crate) fn changed(&self, is_changed: impl Fn(&Read) -> bool) -> ChangedReads {
        let mut changed = ChangedReads::default();
        #[expect(clippy::iter_over_hash_type, reason = "a set of numbers")]
        for (read, number) in &self.numbers {
            if is_changed(read) {
                changed.insert(*number);
            }
        }
        changed
    }

    /// Adds a read to the changed ones, if any piece has it.
    pub(crate) fn mark(&self, read: &Read, changed: &mut ChangedReads) {
        if let Some(number) = self.numbers.get(read) {
            changed.insert(*number);
        }
    }

    /// Whether so many reads were added that unused ones should be dropped ([`Self::retain`]).
    pub(crate) fn is_due(&self) -> bool {
        // Tests drop them at each change, so that numbers are used again.
        cfg!(test) || self.numbers.len() > self.limit
    }

    /// Drops the reads that are in none of these sets, which are all that exist.
    pub(crate) fn retain<'a>(&mut self, sets: impl IntoIterator<Item = &'a ReadSet>) {
        let mut used = ChangedReads::default();
        for number in sets.into_iter().flat_map(|set| &set.0) {
            used.insert(*number);
        }
        self.numbers.retain(|_, number| {
            let is_used = used.contains(*number);
            if !is_used {
                self.free.push(*number);
            }
            is_used
        });
        self.limit = 2 * self.numbers.len() + 1000;
    }
}

/// A set of numbers of reads.
#[derive(Debug, Default)]
pub(crate) struct ChangedReads {
    bits: Vec<u64>,
}

impl ChangedReads {
    pub(crate) fn is_empty(&self) -> bool {
        self.bits.iter().all(|bits| *bits == 0)
    }

    fn insert(&mut self, number: u32) {
        let at = number as usize / 64;
        if self.bits.len() <= at {
            self.bits.resize(at + 1, 0);
        }
        if let Some(bits) = self.bits.get_mut(at) {
            *bits |= 1 << (number % 64);
        }
    }

    fn contains(&self, number: u32) -> bool {
        self.bits.get(number as usize / 64).is_some_and(|bits| bits & (1 << (number % 64)) != 0)
    }

    /// Whether any of these reads has changed.
    pub(crate) fn touch(&self, reads: &ReadSet) -> bool {
        reads.0.iter().any(|number| self.contains(*number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> Read {
        Read::Service(name.parse().unwrap())
    }

    fn store(table: &mut ReadTable, names: &[&str]) -> ReadSet {
        let reads = Reads::default();
        for name in names {
            reads.record(read(name));
        }
        table.store(reads)
    }

    #[test]
    fn change_touches_the_sets_that_have_it() {
        let mut table = ReadTable::default();
        let (both, one) = (store(&mut table, &["a", "b"]), store(&mut table, &["b"]));
        let changed = table.changed(|one| *one == read("a"));
        assert!(changed.touch(&both) && !changed.touch(&one));
        let mut changed = ChangedReads::default();
        table.mark(&read("unknown"), &mut changed);
        assert!(changed.is_empty());
        table.mark(&read("b"), &mut changed);
        assert!(changed.touch(&both) && changed.touch(&one));
    }

    #[test]
    fn unused_reads_are_dropped_and_their_numbers_used_again() {
        let mut table = ReadTable::default();
        let kept = store(&mut table, &["a", "b"]);
        for round in 0..10 {
            drop(store(&mut table, &[&format!("c{round}"), "b"]));
            table.retain([&kept]);
            assert_eq!(table.numbers.len(), 2);
        }
        let new = store(&mut table, &["d", "e"]);
        assert!(new.0.iter().all(|number| !kept.0.contains(number)), "{new:?} {kept:?}");
        assert_eq!(new.0.iter().max(), Some(&3), "numbers are dense");
        let changed = table.changed(|one| *one == read("a"));
        assert!(changed.touch(&kept) && !changed.touch(&new));
    }
}
