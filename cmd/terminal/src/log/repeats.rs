//! Repeated lines: of what one party repeats, the log has the first line at once, and then one line per period with the
//! count.
//!
//! Lines about different objects, such as NACKs of two resources, are different, up to a bound. A party is what a proxy, a client or a machine is known by: the field of a line that names it. Of a line without such a
//! field, more pass: they are about this process, unless a library wrote them. Peers can make libraries write lines, too.
//! Lines of the levels `debug` and `trace` all pass: these levels are set for a while, to see each line.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{Hash as _, Hasher as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// The period in which a repeated line is counted.
pub(super) const PERIOD: Duration = Duration::from_secs(10);

/// The most lines and parties that are counted by themselves. Beyond it, all parties of a line count as one.
const MAX_PARTIES: usize = 1_024;

/// How many lines of an event without a party are written in a period, before further ones are counted. Policy has up to 50
/// findings at once.
const UNNAMED: u64 = 100;

/// The most characters of a text that is kept of a line.
const MAX_TEXT: usize = 300;

/// The fields that name a party. Of several, the first counts: a client is known by its certificate, an address is not.
const PARTIES: [&str; 4] = ["client", "proxy", "address", "uid"];

/// The fields that name the object of a line.
const OBJECTS: [&str; 6] = ["resource_type", "name", "names", "service", "port", "account"];

/// How many objects of a line and a party are written in a period, and known. A party may name any number of them.
const MAX_OBJECTS: usize = 8;

/// What the targets of this workspace begin with.
const OWN_TARGETS: &str = "ironmesh";

/// Counts the lines that repeat.
#[derive(Debug, Default)]
pub(super) struct Repeats(Mutex<HashMap<Key, Repeated>>);

/// A line in the code, and a party.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key(Identifier, Party);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Party {
    /// What the field of this name says.
    Named(&'static str, Box<str>),
    /// Those beyond the bound.
    Others,
    /// The peers of a library, which names none.
    Library,
    /// None: the line is about this process.
    Unnamed,
}

#[derive(Debug)]
struct Repeated {
    level: Level,
    target: &'static str,
    /// The begin of the period.
    since: Instant,
    /// How many lines were written since the party was silent.
    written: u64,
    /// The hashes of the objects of the newest lines that were written.
    objects: VecDeque<u64>,
    /// How many objects were written in the period.
    new_objects: usize,
    /// How many lines of the period were not written.
    count: u64,
    /// The newest of them.
    newest: Option<Texts>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Texts {
    message: String,
    reason: Option<String>,
}

/// The line that stands for repeated ones.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) level: Level,
    pub(super) target: &'static str,
    /// Its fields in their order, without the message.
    pub(super) fields: Vec<(&'static str, String)>,
}

/// The message of a [`Summary`].
pub(super) const SUMMARY: &str = "a line was repeated";

impl Repeats {
    /// Whether to write a line now. Otherwise it is counted.
    fn is_news(&self, event: &Event<'_>, now: Instant) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO {
            return true;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let party = match fields.party {
            Some((_, name, value)) => Party::Named(name, value),
            None if metadata.target().starts_with(OWN_TARGETS) => Party::Unnamed,
            None => Party::Library,
        };
        let mut table = self.0.lock();
        let is_unnamed = party == Party::Unnamed;
        let mut key = Key(metadata.callsite(), party);
        if !is_unnamed && table.len() >= MAX_PARTIES && !table.contains_key(&key) {
            key.1 = Party::Others;
        }
        let Some(repeated) = table.get_mut(&key) else {
            let (level, target) = (*metadata.level(), metadata.target());
            let (written, count, newest) = (1, 0, None);
            let (objects, new_objects) = ([fields.objects.finish()].into(), 1);
            let repeated = Repeated {
                level,
                target,
                since: now,
                written,
                objects,
                new_objects,
                count,
                newest,
            };
            table.insert(key, repeated);
            return true;
        };
        if repeated.count == 0 && now >= repeated.since + PERIOD {
            (repeated.since, repeated.written) = (now, 1);
            (repeated.objects, repeated.new_objects) = ([fields.objects.finish()].into(), 1);
            return true;
        }
        if !is_unnamed && repeated.is_new_object(fields.objects.finish()) {
            return true;
        }
        if is_unnamed && repeated.written < UNNAMED {
            repeated.written += 1;
            return true;
        }
        // A line may stand for others already.
        repeated.count += 1 + fields.suppressed;
        let message = fields.message.unwrap_or_default();
        repeated.newest = Some(Texts { message, reason: fields.reason });
        false
    }

    /// The summaries of all lines that were not written, at the end of the process.
    pub(super) fn rest(&self, now: Instant) -> Vec<Summary> {
        let mut table = self.0.lock();
        let rest = table.iter_mut().filter_map(|(Key(_, party), one)| one.summary(party, now));
        rest.collect()
    }

    /// The summaries of the periods that are over. A party that was silent for a period is forgotten.
    pub(super) fn summaries(&self, now: Instant) -> Vec<Summary> {
        let mut summaries = Vec::new();
        self.0.lock().retain(|Key(_, party), repeated| {
            if now < repeated.since + PERIOD {
                return true;
            }
            let summary = repeated.summary(party, now);
            let is_repeated = summary.is_some();
            summaries.extend(summary);
            is_repeated
        });
        summaries
    }
}

impl Repeated {
    /// Whether a line is about an object of which none was written lately, and notes it, as long as the period has few of
    /// them.
    fn is_new_object(&mut self, object: u64) -> bool {
        if self.new_objects >= MAX_OBJECTS || self.objects.contains(&object) {
            return false;
        }
        self.new_objects += 1;
        if self.objects.len() == MAX_OBJECTS {
            self.objects.pop_front();
        }
        self.objects.push_back(object);
        true
    }

    /// The summary of the lines that were not written, and the begin of the next period; none without such lines.
    fn summary(&mut self, party: &Party, now: Instant) -> Option<Summary> {
        let texts = self.newest.take()?;
        let mut fields = vec![("event", texts.message)];
        fields.extend(match party {
            Party::Named(name, value) => Some((*name, value.to_string())),
            Party::Others => Some(("party", "others".to_owned())),
            Party::Library | Party::Unnamed => None,
        });
        let count = std::mem::take(&mut self.count);
        fields.push(("count", count.to_string()));
        fields.push(("seconds", (now - self.since).as_secs().to_string()));
        fields.extend(texts.reason.map(|reason| ("last_reason", reason)));
        (self.since, self.new_objects) = (now, 0);
        Some(Summary { level: self.level, target: self.target, fields })
    }
}

/// The time now.
#[expect(
    clippy::disallowed_methods,
    reason = "the log also runs without tokio, and its tests pass the time"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// The layer that asks [`Repeats`] about each line.
pub(super) struct RepeatsLayer(pub(super) std::sync::Arc<Repeats>);

impl<S: Subscriber> Layer<S> for RepeatsLayer {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.0.is_news(event, now())
    }
}

/// The fields of a line that count here.
#[derive(Default)]
struct Fields {
    /// The rank of the field in [`PARTIES`], its name and its value.
    party: Option<(usize, &'static str, Box<str>)>,
    message: Option<String>,
    reason: Option<String>,
    suppressed: u64,
    /// The fields in [`OBJECTS`].
    objects: DefaultHasher,
}

impl Fields {
    fn note(&mut self, field: &Field, text: impl FnOnce() -> String) {
        let named = PARTIES.into_iter().enumerate().find(|(_, name)| *name == field.name());
        if let Some((rank, name)) = named {
            if self.party.as_ref().is_none_or(|(known, ..)| rank < *known) {
                self.party = Some((rank, name, party(&text())));
            }
            return;
        }
        match field.name() {
            "message" => self.message = Some(beginning(text())),
            "reason" | "error" => self.reason = Some(beginning(text())),
            name if OBJECTS.contains(&name) => (name, text()).hash(&mut self.objects),
            _ => {}
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.note(field, || format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.note(field, || value.to_owned());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "suppressed" {
            self.suppressed = value;
        } else {
            self.note(field, || value.to_string());
        }
    }
}

/// The party that a value names. Each connection has a port of its own, and a machine has a network of IPv6 addresses.
fn party(value: &str) -> Box<str> {
    let address = value.parse::<SocketAddr>().map(|address| address.ip());
    match address.or_else(|_| value.parse::<IpAddr>()).map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(address)) => address.to_string().into(),
        Ok(IpAddr::V6(address)) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            format!("{}/64", Ipv6Addr::from_bits(network)).into()
        }
        Err(_) => beginning(value.to_owned()).into(),
    }
}

fn beginning(text: String) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// The messages of lines that passed, and the filter, which gets the time of the test.
    #[derive(Clone, Default)]
    struct Log {
        repeats: Arc<Repeats>,
        written: Arc<Mutex<Vec<String>>>,
        now: Arc<Mutex<Option<Instant>>>,
    }

    impl<S: Subscriber> Layer<S> for Log {
        fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
            self.repeats.is_news(event, self.now.lock().unwrap())
        }

        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut fields = Fields::default();
            event.record(&mut fields);
            self.written.lock().push(fields.message.unwrap());
        }
    }

    impl Log {
        fn run(test: impl FnOnce(&Self, Instant)) {
            let (log, start) = (Self::default(), now());
            log.at(start);
            tracing::subscriber::with_default(
                tracing_subscriber::registry().with(log.clone()),
                || test(&log, start),
            );
        }

        fn at(&self, now: Instant) {
            *self.now.lock() = Some(now);
        }

        fn written(&self) -> Vec<String> {
            std::mem::take(&mut self.written.lock())
        }

        fn summaries(&self, now: Instant) -> Vec<Vec<(&'static str, String)>> {
            self.repeats.summaries(now).into_iter().map(|summary| summary.fields).collect()
        }
    }

    fn nack(client: &str, reason: &str) {
        tracing::warn!(target: "ironmesh_test", client, reason, "NACK");
    }

    #[test]
    fn flood_of_a_party_is_one_line_at_once_and_one_per_period() {
        Log::run(|log, start| {
            for n in 0..1_000 {
                nack("a", &format!("bad {n}"));
            }
            // Another party is not affected, nor another line of the same party.
            nack("b", "other");
            tracing::info!(target: "ironmesh_test", client = "a", "closed");
            assert_eq!(log.written(), ["NACK", "NACK", "closed"]);
            assert_eq!(log.summaries(start + PERIOD / 2), [[]; 0]);
            let later = start + PERIOD;
            let expected = [
                ("event", "NACK"),
                ("client", "a"),
                ("count", "999"),
                ("seconds", "10"),
                ("last_reason", "bad 999"),
            ];
            let expected = expected.map(|(name, value)| (name, value.to_owned())).to_vec();
            assert_eq!(log.summaries(later), [expected]);
            // It goes on: lines are counted, and none is written in between.
            log.at(later);
            nack("a", "again");
            assert_eq!(log.written(), [""; 0]);
            assert_eq!(log.summaries(later + PERIOD).len(), 1);
            // After a silent period, the next line is the first again.
            assert_eq!(log.summaries(later + 2 * PERIOD).len(), 0);
            log.at(later + 2 * PERIOD);
            nack("a", "new");
            assert_eq!(log.written(), ["NACK"]);
        });
    }

    #[test]
    fn lines_about_different_objects_are_written_up_to_a_bound() {
        Log::run(|log, start| {
            let nack = |name: &str, reason: &str| {
                let resource_type = "Listener";
                let names = [name];
                tracing::warn!(target: "ironmesh_test", client = "a", resource_type, ?names, reason, "NACK");
            };
            nack("first", "bad");
            nack("second", "worse");
            // The same again, for whatever reason.
            nack("first", "other");
            assert_eq!(log.written().len(), 2);
            for number in 0..1_000 {
                nack(&number.to_string(), "flood");
            }
            assert_eq!(log.written().len(), MAX_OBJECTS - 2);
            // A flood that goes on has as many lines in the next period, and what it repeats has none.
            let later = start + PERIOD;
            log.at(later);
            let count = |log: &Log, at| log.summaries(at)[0][2].1.clone();
            assert_eq!(count(log, later), (1 + 1_000 - (MAX_OBJECTS - 2)).to_string());
            for number in 0..1_000 {
                nack(&number.to_string(), "flood");
                nack("second", "worse");
            }
            assert_eq!(log.written().len(), MAX_OBJECTS);
            let table = log.repeats.0.lock();
            assert!(table.values().all(|one| one.objects.len() <= MAX_OBJECTS));
        });
    }

    #[test]
    fn end_of_the_process_writes_the_counts_of_open_periods() {
        Log::run(|log, start| {
            for n in 0..3 {
                nack("a", &format!("bad {n}"));
            }
            nack("b", "once");
            let rest = log.repeats.rest(start + PERIOD / 2);
            let fields: Vec<_> = rest.iter().map(|summary| &summary.fields[..4]).collect();
            let expected = [("event", "NACK"), ("client", "a"), ("count", "2"), ("seconds", "5")];
            assert_eq!(fields, [expected.map(|(name, value)| (name, value.to_owned()))]);
            assert_eq!(log.repeats.rest(start + PERIOD).len(), 0, "each is written once");
        });
    }

    #[test]
    fn parties_beyond_the_bound_share_one_line() {
        Log::run(|log, start| {
            for n in 0..MAX_PARTIES + 500 {
                nack(&n.to_string(), "bad");
            }
            // The first of those beyond it is written, too.
            assert_eq!(log.written().len(), MAX_PARTIES + 1);
            assert_eq!(log.repeats.0.lock().len(), MAX_PARTIES + 1);
            let summaries = log.summaries(start + PERIOD);
            let of_others = [("party", "others".to_owned()), ("count", "499".to_owned())];
            assert_eq!(summaries.len(), 1);
            assert_eq!(summaries[0][1..3], of_others);
            assert_eq!(log.repeats.0.lock().len(), 1, "silent parties are forgotten");
        });
    }

    #[test]
    fn connections_of_one_machine_are_one_party() {
        Log::run(|log, start| {
            let rejected = |address: &str, suppressed: u64| {
                let address: SocketAddr = address.parse().unwrap();
                tracing::info!(target: "ironmesh_test", %address, suppressed, "rejected");
            };
            for port in 1..=100 {
                rejected(&format!("192.0.2.1:{port}"), 4);
                rejected(&format!("[2001:db8::{port:x}]:443"), 0);
            }
            assert_eq!(log.written().len(), 2);
            let mut summaries = log.summaries(start + PERIOD);
            summaries.sort();
            let texts: Vec<_> = summaries.iter().map(|fields| &fields[1..3]).collect();
            let expected = |address: &str, count: &str| {
                [("address", address.to_owned()), ("count", count.to_owned())]
            };
            assert_eq!(texts, [expected("192.0.2.1", "495"), expected("2001:db8::/64", "99")]);
        });
    }

    #[test]
    fn lines_without_a_party_are_counted_beyond_a_hundred() {
        Log::run(|log, start| {
            for _ in 0..UNNAMED + 7 {
                tracing::warn!(target: "ironmesh_test", "own");
                tracing::warn!(target: "h2", "library");
                tracing::debug!(target: "h2", "debug");
            }
            let written = log.written();
            let count = |message: &str| written.iter().filter(|one| *one == message).count() as u64;
            assert_eq!((count("own"), count("library")), (UNNAMED, 1));
            assert_eq!(count("debug"), UNNAMED + 7, "all of them");
            let mut summaries = log.summaries(start + PERIOD);
            summaries.sort();
            let texts: Vec<_> =
                summaries.iter().map(|fields| (&*fields[0].1, &*fields[1].1)).collect();
            assert_eq!(texts, [("library", "106"), ("own", "7")]);
        });
    }
}
