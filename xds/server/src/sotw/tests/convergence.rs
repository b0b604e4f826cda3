//! Whatever happens in whatever order: in the end the client has what it is to have (R63, R64).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_xds_wire::ResourceType::{self, Cluster, Endpoint, Listener, Route, Secret};
use ironmesh_xds_wire::{Resource, ResourceSet};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;

use super::client::Client;
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::{Contents, resource};

mod checks;

proptest! {
    #[test]
    fn a_client_ends_with_what_it_is_to_have(steps in vec(step(), 1..80)) {
        let mut walk = Walk::new();
        for step in &steps {
            walk.take(step);
        }
        walk.settle();
        walk.check_end();
    }
}

/// Something that happens.
#[derive(Debug, Clone)]
enum Step {
    /// A resource is added, changed or removed; clusters always together with their endpoints.
    Edit(ResourceType, &'static str, Option<u32>),
    Publish,
    /// The client wants these names and no others.
    Request(ResourceType, BTreeSet<&'static str>),
    /// The oldest push of the type is taken, or refused where something in it is poison; then what
    /// is good in it is taken all the same, or not.
    Answer(ResourceType, bool),
    /// The stream is lost. Of the requests on the new one, so many come before the set. The server is
    /// the same, or another.
    Reconnect {
        before_set: usize,
        elsewhere: bool,
    },
    Pass(Duration),
}

fn step() -> impl Strategy<Value = Step> {
    let of = || select(&ResourceType::ALL[..]);
    let names = btree_set(select(&["a", "b", "c", "d", "*"][..]), 0..4);
    let edit = (of(), select(&["a", "b", "c", "d"][..]), prop::option::weighted(0.8, 0..5_u32));
    prop_oneof![
        6 => edit.prop_map(|(of, name, content)| Step::Edit(of, name, content)),
        3 => Just(Step::Publish),
        4 => (of(), names).prop_map(|(of, names)| Step::Request(of, names)),
        10 => (of(), any::<bool>()).prop_map(|(of, in_part)| Step::Answer(of, in_part)),
        1 => (0..=5_usize, any::<bool>())
            .prop_map(|(before_set, elsewhere)| Step::Reconnect { before_set, elsewhere }),
        1 => (0..20_000_u64).prop_map(|millis| Step::Pass(Duration::from_millis(millis))),
    ]
}

/// A content that the client refuses.
const POISON: u32 = 4;

#[derive(Default)]
struct Wanted {
    has_begun: bool,
    has_named: bool,
    all: bool,
    names: BTreeSet<&'static str>,
}

struct Walk {
    client: Client,
    contents: Contents,
    published: ResourceSet,
    wanted: BTreeMap<ResourceType, Wanted>,
    /// The clusters that were sent on this stream.
    clusters: BTreeSet<Arc<str>>,
    /// The clusters that were taken on this stream.
    taken: BTreeSet<Arc<str>>,
    /// The types of which a push was refused since one was taken.
    in_doubt: BTreeSet<ResourceType>,
    was_late: bool,
}

impl Walk {
    fn new() -> Self {
        let mut client = Client::new();
        client.give(&ResourceSet::default());
        Self {
            client,
            contents: Contents::default(),
            published: ResourceSet::default(),
            wanted: ResourceType::ALL.map(|of| (of, Wanted::default())).into(),
            clusters: BTreeSet::new(),
            taken: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            was_late: false,
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Edit(of, name, content) => self.contents.edit(*of, name, *content),
            Step::Publish => self.publish(),
            Step::Request(of, names) => self.request(*of, names),
            Step::Answer(of, in_part) => self.answer(*of, *in_part),
            Step::Reconnect { before_set, elsewhere } => self.reconnect(*before_set, *elsewhere),
            Step::Pass(time) => self.client.pass(*time),
        }
        self.look();
    }

    fn publish(&mut self) {
        self.published = self.contents.set();
        self.client.give(&self.published);
    }

    fn request(&mut self, of: ResourceType, names: &BTreeSet<&'static str>) {
        let wanted = self.wanted.get_mut(&of).unwrap();
        wanted.has_named |= !names.is_empty();
        let asks_for_all = names.contains("*") || (names.is_empty() && !wanted.has_named);
        wanted.all = of.allows_wildcard() && asks_for_all;
        wanted.has_begun = true;
        wanted.names = names.clone();
        self.forget();
        let names: Vec<_> = names.iter().copied().collect();
        self.client.ask(of, &names);
    }

    /// The client forgets what it wants no more.
    fn forget(&mut self) {
        let wanted = &self.wanted;
        self.client.has.retain(|(of, name), _| covers(wanted, *of, name));
        self.taken.retain(|name| covers(wanted, Cluster, name));
    }

    fn answer(&mut self, of: ResourceType, in_part: bool) {
        let Some(push) = self.client.open.iter().find(|open| open.resource_type == of) else {
            return;
        };
        let push = push.clone();
        if push.resources.iter().any(|resource| is_poison(resource)) {
            self.in_doubt.insert(of);
            if in_part {
                self.client.refuse_in_part(of, is_poison);
            } else {
                self.client.refuse(of, "poison");
            }
        } else {
            self.client.take(of);
            if of == Cluster {
                self.taken = push.resources.iter().map(|r| Arc::clone(r.name())).collect();
            }
            self.in_doubt.remove(&of);
        }
        self.forget();
    }

    fn reconnect(&mut self, before_set: usize, elsewhere: bool) {
        // A server that does not know what was refused cannot know what was taken of it.
        if elsewhere && self.in_doubt.is_empty() {
            self.client.reconnect_elsewhere();
        } else {
            self.client.reconnect();
        }
        self.clusters.clear();
        self.taken.clear();
        self.was_late = false;
        for (at, of) in [Cluster, Endpoint, Secret, Listener, Route].into_iter().enumerate() {
            if at == before_set {
                self.client.give(&self.published);
            }
            let wanted = self.wanted.get_mut(&of).unwrap();
            let names: Vec<_> = wanted.names.iter().copied().collect();
            // To ask for nothing would be to ask for all.
            if names.is_empty() && !wanted.all {
                wanted.has_begun = false;
                // Who wants nothing has no version of anything.
                self.client.versions.remove(&of);
            }
            wanted.has_named = !names.is_empty();
            if wanted.has_begun {
                self.client.ask(of, &names);
            }
        }
        if before_set >= 5 {
            self.client.give(&self.published);
        }
    }

    /// All is published and answered.
    fn settle(&mut self) {
        self.publish();
        self.look();
        for wait in [Duration::ZERO, REMOVAL_GRACE] {
            self.client.pass(wait);
            self.look();
            for _ in 0..1000 {
                let Some(open) = self.client.open.first() else { break };
                self.answer(open.resource_type, false);
                self.look();
            }
            assert!(self.client.open.is_empty(), "pushes without end: {:?}", self.client.open);
        }
    }
}

fn is_poison(one: &Resource) -> bool {
    *one == *resource(one.resource_type(), one.name(), POISON)
}

fn covers(wanted: &BTreeMap<ResourceType, Wanted>, of: ResourceType, name: &str) -> bool {
    wanted[&of].all || wanted[&of].names.contains(name)
}
