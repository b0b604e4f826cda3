//! Whatever happens in whatever order: in the end the client has what it is to have (R63, R64).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_xds_wire::ResourceType::{self, Cluster, Endpoint, Listener, Route, Secret};
use ironmesh_xds_wire::{DeltaRequest, Resource, ResourceSet};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;

use super::client::{Client, subscribe};
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
    Request {
        of: ResourceType,
        wants: BTreeSet<&'static str>,
        drops: BTreeSet<&'static str>,
    },
    /// The oldest push of the type is taken, or refused where something in it is poison.
    Answer(ResourceType),
    /// The stream is lost. Of the requests on the new one, so many come before the set.
    Reconnect {
        before_set: usize,
    },
    Pass(Duration),
}

fn step() -> impl Strategy<Value = Step> {
    let of = || select(&ResourceType::ALL[..]);
    let names = || btree_set(select(&["a", "b", "c", "d", "*"][..]), 0..3);
    let edit = (of(), select(&["a", "b", "c", "d"][..]), prop::option::weighted(0.8, 0..5_u32));
    prop_oneof![
        6 => edit.prop_map(|(of, name, content)| Step::Edit(of, name, content)),
        3 => Just(Step::Publish),
        4 => (of(), names(), names()).prop_map(|(of, wants, drops)| Step::Request { of, wants, drops }),
        10 => of().prop_map(Step::Answer),
        1 => (0..=5_usize).prop_map(|before_set| Step::Reconnect { before_set }),
        1 => (0..20_000_u64).prop_map(|millis| Step::Pass(Duration::from_millis(millis))),
    ]
}

/// A content that the client refuses.
const POISON: u32 = 4;

type Key = (ResourceType, Arc<str>);

#[derive(Default)]
struct Wanted {
    has_begun: bool,
    all: bool,
    names: BTreeSet<&'static str>,
}

struct Walk {
    client: Client,
    contents: Contents,
    published: ResourceSet,
    wanted: BTreeMap<ResourceType, Wanted>,
    /// What the stream has brought, or the client had before it.
    brought: BTreeMap<Key, Arc<Resource>>,
    /// What may come again though it was brought.
    excused: BTreeSet<Key>,
    /// Clusters whose endpoints must follow.
    owed: BTreeSet<Arc<str>>,
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
            brought: BTreeMap::new(),
            excused: BTreeSet::new(),
            owed: BTreeSet::new(),
            was_late: false,
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Edit(of, name, content) => self.contents.edit(*of, name, *content),
            Step::Publish => self.publish(),
            Step::Request { of, wants, drops } => self.request(*of, wants, drops),
            Step::Answer(of) => self.answer(*of),
            Step::Reconnect { before_set } => self.reconnect(*before_set),
            Step::Pass(time) => {
                // A server that hears nothing for minutes forgets what it asked.
                while self.client.open.len() > 6 {
                    self.answer(self.client.open[0].0);
                }
                self.client.pass(*time);
            }
        }
        self.look();
    }

    fn publish(&mut self) {
        self.published = self.contents.set();
        self.client.give(&self.published);
    }

    fn request(
        &mut self,
        of: ResourceType,
        wants: &BTreeSet<&'static str>,
        drops: &BTreeSet<&'static str>,
    ) {
        let wanted = self.wanted.get_mut(&of).unwrap();
        for name in drops {
            // What is dropped by name may come again by the wildcard.
            self.excused.insert((of, (*name).into()));
            wanted.names.remove(name);
            if *name == "*" && of.allows_wildcard() {
                wanted.all = false;
            }
        }
        self.forget();
        let wanted = self.wanted.get_mut(&of).unwrap();
        wanted.all |= !wanted.has_begun && wants.is_empty() && of.allows_wildcard();
        wanted.has_begun = true;
        for name in wants {
            if *name == "*" && of.allows_wildcard() {
                wanted.all = true;
            } else {
                wanted.names.insert(name);
                self.excused.insert((of, (*name).into()));
            }
        }
        let wants: Vec<_> = wants.iter().copied().collect();
        self.client.request(&DeltaRequest {
            unsubscribe: drops.iter().map(|&name| name.to_owned()).collect(),
            ..subscribe(of, &wants)
        });
    }

    /// The client forgets what it wants no more.
    fn forget(&mut self) {
        let wanted = &self.wanted;
        self.client.has.retain(|(of, name), _| covers(wanted, *of, name));
        self.brought.retain(|(of, name), _| covers(wanted, *of, name));
        self.owed.retain(|name| covers(wanted, Endpoint, name));
    }

    fn answer(&mut self, of: ResourceType) {
        let Some((_, push)) = self.client.open.iter().find(|(open, _)| *open == of) else { return };
        let poison = push.resources.iter().any(|r| *r == resource(of, r.name(), POISON));
        if poison {
            self.excused.extend(push.resources.iter().map(|r| (of, Arc::clone(r.name()))));
            self.excused.extend(push.removed.iter().map(|name| (of, Arc::clone(name))));
            self.client.refuse(of, "poison");
        } else {
            self.client.take(of);
            self.forget();
        }
    }

    fn reconnect(&mut self, before_set: usize) {
        self.client.reconnect();
        self.excused.clear();
        self.owed.clear();
        self.was_late = false;
        self.brought.retain(|key, resource| self.client.has.get(key) == Some(&resource.version()));
        for (key, version) in &self.client.has {
            // It may have an older version than the last that was brought.
            if !self.brought.contains_key(key) {
                let any = (0..=POISON).map(|content| resource(key.0, &key.1, content));
                let had = any.into_iter().find(|r| r.version() == *version);
                self.brought.insert(key.clone(), had.unwrap());
            }
        }
        for (at, of) in [Cluster, Endpoint, Secret, Listener, Route].into_iter().enumerate() {
            if at == before_set {
                self.client.give(&self.published);
            }
            let wanted = self.wanted.get_mut(&of).unwrap();
            let mut names: Vec<_> = wanted.names.iter().copied().collect();
            match (wanted.all, names.is_empty()) {
                (true, false) => names.push("*"),
                // To ask for nothing would be to ask for all.
                (false, true) => wanted.has_begun = false,
                _ => {}
            }
            if wanted.has_begun {
                let has = |name: &&str| self.client.has.contains_key(&(of, (*name).into()));
                let asked = names.iter().filter(|name| !has(name));
                self.excused.extend(asked.map(|&name| (of, name.into())));
                self.client.ask_again(of, &names);
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
                let Some((of, _)) = self.client.open.first() else { break };
                self.answer(*of);
                self.look();
            }
            assert!(self.client.open.is_empty(), "pushes without end: {:?}", self.client.open);
        }
    }
}

fn covers(wanted: &BTreeMap<ResourceType, Wanted>, of: ResourceType, name: &str) -> bool {
    wanted[&of].all || wanted[&of].names.contains(name)
}
