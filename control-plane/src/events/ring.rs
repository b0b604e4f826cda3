//! The ring: the newest events, each encoded once, with their places.
//!
//! It never waits for a reader: the oldest events make room for new ones.

use std::collections::VecDeque;

use bytes::Bytes;
use ironmesh_api::{EventId, EventKind};
use ironmesh_catalog::JournalEntry;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

/// How many events a reader takes at once.
pub(super) const MAX_BATCH: usize = 64;

/// The ring.
#[derive(Debug)]
pub(super) struct Ring {
    process: u32,
    max_events: usize,
    max_bytes: usize,
    content: Mutex<Content>,
    news: watch::Sender<()>,
}

#[derive(Debug)]
struct Content {
    events: VecDeque<Event>,
    bytes: usize,
    /// The place of the first event; that of the next one if there is none.
    first: u64,
    /// All later entries of the journal up to `journal` are in the ring.
    base: u64,
    /// The number of the newest entry that was read.
    journal: u64,
}

/// An event in the ring.
#[derive(Debug, Clone)]
struct Event {
    /// The number of the newest entry of the journal up to this event.
    journal: u64,
    is_entry: bool,
    /// The event with its id.
    frame: Bytes,
    /// Where the id ends.
    content: usize,
}

/// What a reader takes from the ring.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RingBatch {
    /// The events, the place after them, and the number of the newest entry among them.
    Events(Vec<Bytes>, u64, u64),
    /// Events of this place were replaced.
    Overtaken,
}

/// The events that a reader takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// All of them; entries only if it may read the journal.
    All { with_journal: bool },
    /// Entries before this place, whose ids name no place: observed events between them are not sent.
    EntriesBefore(u64),
}

/// Where a reader continues after an entry of the journal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// At this place.
    At {
        /// The place of the first event after the entry.
        place: u64,
        /// The place after the last event.
        end: u64,
        /// The number of the newest entry before `end`.
        journal: u64,
    },
    /// Before the entries in the ring: those up to this number were replaced.
    Before(u64),
    /// After all entries that were read.
    After,
}

impl Ring {
    /// An empty ring of up to `max_events` events of `max_bytes` bytes.
    pub(super) fn new(process: u32, max_events: usize, max_bytes: usize) -> Self {
        let content = Content { events: VecDeque::new(), bytes: 0, first: 1, base: 0, journal: 0 };
        let content = Mutex::new(content);
        Self { process, max_events, max_bytes, content, news: watch::Sender::default() }
    }

    /// Begins an empty ring after the entry with this number.
    pub(super) fn start_after(&self, journal: u64) {
        let mut content = self.content.lock();
        (content.base, content.journal) = (journal, journal);
    }

    /// The number of the newest entry that was read.
    pub(super) fn journal(&self) -> u64 {
        self.content.lock().journal
    }

    /// Wakes a reader when there are new events or entries.
    pub(super) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Adds an event about an observed state.
    pub(super) fn push_observed(&self, kind: EventKind, content: &impl Serialize) {
        let mut ring = self.content.lock();
        let journal = ring.journal;
        self.push(&mut ring, journal, false, kind, content);
        drop(ring);
        self.news.send_replace(());
    }

    /// Adds the next entries of the journal. All entries up to `last` were read; some may be unreadable.
    pub(super) fn push_entries(&self, entries: &[JournalEntry], last: u64) {
        let mut ring = self.content.lock();
        for entry in entries {
            if entry.sequence > ring.journal {
                ring.journal = entry.sequence;
                self.push(&mut ring, entry.sequence, true, EventKind::Journal, entry);
            }
        }
        ring.journal = ring.journal.max(last);
        drop(ring);
        self.news.send_replace(());
    }

    fn push(
        &self,
        ring: &mut Content,
        journal: u64,
        is_entry: bool,
        kind: EventKind,
        content: &impl Serialize,
    ) {
        let place = ring.end();
        let id = EventId { journal, place: Some((self.process, place)) };
        let id = format!("id: {id}\n");
        let frame = Bytes::from(id.clone() + &body(kind, content));
        ring.bytes += frame.len();
        ring.events.push_back(Event { journal, is_entry, frame, content: id.len() });
        while ring.events.len() > self.max_events || ring.bytes > self.max_bytes {
            let Some(oldest) = ring.events.pop_front() else { break };
            ring.bytes -= oldest.frame.len();
            ring.first += 1;
            if oldest.is_entry {
                ring.base = oldest.journal;
            }
        }
    }

    /// Where a reader continues that begins now: the place, and the number of the newest entry.
    pub(super) fn end(&self) -> (u64, u64) {
        let content = self.content.lock();
        (content.end(), content.journal)
    }

    /// Where the retained events begin: the place, and the number of the newest replaced entry.
    pub(super) fn begin(&self) -> (u64, u64) {
        let content = self.content.lock();
        (content.first, content.base)
    }

    /// The place after the event with this id, if this ring assigned it and still has all events after it.
    pub(super) fn place_after(&self, id: EventId) -> Option<u64> {
        let (process, place) = id.place?;
        let content = self.content.lock();
        let next = place.checked_add(1)?;
        let is_known = process == self.process
            && (content.first..=content.end()).contains(&next)
            && id.journal <= content.journal;
        is_known.then_some(next)
    }

    /// Where a reader continues that has all entries up to `journal`.
    pub(super) fn position(&self, journal: u64) -> Position {
        let content = self.content.lock();
        if journal < content.base {
            return Position::Before(content.base);
        }
        if journal > content.journal {
            return Position::After;
        }
        // (The numbers ascend.)
        let known = content.events.partition_point(|event| event.journal <= journal);
        Position::At {
            place: content.first + known as u64,
            end: content.end(),
            journal: content.journal,
        }
    }

    /// The id of a reader that has everything before `place`.
    pub(super) fn id_before(&self, place: u64, journal: u64) -> EventId {
        EventId { journal, place: Some((self.process, place.saturating_sub(1))) }
    }

    /// Takes the next events from `place` on. Entries up to `journal` are not taken again.
    pub(super) fn take(&self, place: u64, journal: u64, wanted: Wanted) -> RingBatch {
        let ring = self.content.lock();
        let Some(offset) = place.checked_sub(ring.first) else { return RingBatch::Overtaken };
        let end = match wanted {
            Wanted::All { .. } => ring.end(),
            Wanted::EntriesBefore(end) => end.min(ring.end()),
        };
        let (mut frames, mut next, mut newest) = (Vec::new(), place, journal);
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        for event in ring.events.iter().skip(offset) {
            if next >= end || frames.len() >= MAX_BATCH {
                break;
            }
            next += 1;
            let is_new = event.journal > newest;
            match wanted {
                Wanted::All { with_journal } if event.is_entry => {
                    if with_journal && is_new {
                        newest = event.journal;
                        frames.push(event.frame.clone());
                    }
                }
                Wanted::All { .. } => frames.push(event.frame.clone()),
                Wanted::EntriesBefore(_) if event.is_entry && is_new => {
                    newest = event.journal;
                    let id = EventId { journal: newest, place: None };
                    let content = event.frame.get(event.content..).unwrap_or_default();
                    let frame = [format!("id: {id}\n").as_bytes(), content].concat();
                    frames.push(frame.into());
                }
                Wanted::EntriesBefore(_) => {}
            }
        }
        RingBatch::Events(frames, next, newest)
    }
}

impl Content {
    /// The place of the next event.
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

/// An event without an id.
pub(super) fn body(kind: EventKind, content: &impl Serialize) -> String {
    // (JSON is one line. The contents have no maps with other keys than texts, so that this does not fail.)
    let json = serde_json::to_string(content).unwrap_or_else(|_| "null".to_owned());
    format!("event: {}\ndata: {json}\n\n", kind.word())
}

/// An event with this id.
pub(super) fn frame(id: EventId, kind: EventKind, content: &impl Serialize) -> Bytes {
    Bytes::from(format!("id: {id}\n{}", body(kind, content)))
}
