use std::fmt;
use std::sync::Arc;

use ironmesh_traces::SpanQueue;
use jiff::Timestamp;
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use uuid::Uuid;

use super::super::convergence::Effect;
use super::*;

/// The lines of a test.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.0.insert_str(0, &format!("{value:?}")),
            // Their time is real.
            "duration_ms" => {}
            name => self.0.extend([" ", name, "=", &format!("{value:?}")]),
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        self.0.lock().push(format!("{} {}", event.metadata().level(), text.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A change log with the state of the proxies, and its lines.
struct Mesh {
    log: ChangeLog,
    convergence: Convergence,
    generations: Generations,
    now: Instant,
    lines: Lines,
}

impl Mesh {
    fn run(test: impl FnOnce(&mut Self)) {
        let lines = Lines::default();
        let mut mesh = Self {
            log: ChangeLog::new(255),
            convergence: Convergence::default(),
            generations: Generations::default(),
            now: Instant::now(),
            lines: lines.clone(),
        };
        tracing::subscriber::with_default(lines, || test(&mut mesh));
    }

    /// A pass that finds `inputs`, and has these effects on proxies.
    fn pass(&mut self, inputs: ChangedInputs, proxies: &[(u128, Effect, Option<Lag>)]) {
        let revision = PolicyRevision("0123456789abcdef".into());
        self.log.begin_pass();
        self.log.find(self.generations, &revision, inputs, self.now);
        let changed = proxies.iter().filter(|(_, effect, _)| *effect == Effect::Changed).count();
        self.log.publish(changed);
        self.convergence.begin_pass(self.generations, &revision, 3);
        for (proxy, effect, lag) in proxies {
            let id = ProxyId(Uuid::from_u128(*proxy));
            self.convergence.examine(id, *effect, *lag, Timestamp::UNIX_EPOCH);
        }
        self.convergence.end_pass();
        self.log.end_pass(&self.convergence, self.now);
    }

    fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.0.lock())
    }
}

const NO_INPUT: ChangedInputs = ChangedInputs {
    settings: false,
    providers: false,
    health: false,
    proxies: false,
    leaves: false,
};

const UPDATING: Option<Lag> = Some(Lag::Updating);

#[test]
fn change_of_policy_has_one_id_from_its_discovery_to_the_last_ack() {
    Mesh::run(|mesh| {
        mesh.generations.policy = 1;
        mesh.pass(NO_INPUT, &[(1, Effect::Changed, UPDATING), (2, Effect::Changed, UPDATING)]);
        assert_eq!(
            mesh.lines(),
            [
                "INFO change found change=\"policy-0123456789ab\" inputs=\"policy\"",
                "INFO change published change=\"policy-0123456789ab\" proxies=2",
            ]
        );
        mesh.pass(NO_INPUT, &[(1, Effect::None, None)]);
        assert_eq!(mesh.lines(), [""; 0], "an ACK has no line");
        mesh.pass(NO_INPUT, &[(2, Effect::None, None)]);
        let end = "INFO change ACKed change=\"policy-0123456789ab\" proxies=2 nacked=0";
        assert_eq!(mesh.lines(), [end]);
        mesh.pass(NO_INPUT, &[]);
        assert_eq!(mesh.lines(), [""; 0]);
    });
}

#[test]
fn each_kind_of_change_has_an_id_and_what_has_changed() {
    Mesh::run(|mesh| {
        mesh.generations.endpoints = 1;
        let inputs = ChangedInputs { providers: true, health: true, ..NO_INPUT };
        mesh.pass(inputs, &[]);
        mesh.generations.certificates = 1;
        mesh.pass(NO_INPUT, &[]);
        // A cordon, which an operator has set.
        (mesh.generations.endpoints, mesh.generations.leaves) = (2, 7);
        mesh.pass(ChangedInputs { leaves: true, ..NO_INPUT }, &[]);
        mesh.generations.policy = 1;
        mesh.pass(ChangedInputs { settings: true, ..NO_INPUT }, &[]);
        let lines = mesh.lines();
        let found: Vec<_> = lines.iter().filter(|line| line.contains("change found")).collect();
        assert_eq!(
            found,
            [
                "DEBUG change found change=\"endpoints-ff-1\" inputs=\"providers,health\"",
                "DEBUG change found change=\"certificates-ff-1\" inputs=\"certificates\"",
                "INFO change found change=\"endpoints-ff-2\" inputs=\"leaves\"",
                "INFO change found change=\"policy-0123456789ab\" inputs=\"settings\"",
            ]
        );
        assert_eq!(lines.len(), 12, "each is published and ACKed at once: {lines:#?}");
    });
}

#[test]
fn late_change_is_a_warning_once_with_the_laggards() {
    Mesh::run(|mesh| {
        mesh.generations.policy = 1;
        let all: Vec<_> = (1..=7).map(|proxy| (proxy, Effect::Changed, UPDATING)).collect();
        mesh.pass(NO_INPUT, &all);
        mesh.lines();
        mesh.now += LATE;
        mesh.pass(NO_INPUT, &[(1, Effect::None, None)]);
        let lines = mesh.lines();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        let start = "WARN change not ACKed by all proxies change=\"policy-0123456789ab\" seconds=15 \
                     laggards=\"00000000-0000-0000-0000-000000000002,";
        assert!(lines[0].starts_with(start) && lines[0].contains(" others=1 "), "{lines:#?}");
        mesh.now += LATE;
        mesh.pass(NO_INPUT, &[]);
        assert_eq!(mesh.lines(), [""; 0]);
    });
}

#[test]
fn nack_answers_a_change_and_is_counted() {
    Mesh::run(|mesh| {
        mesh.generations.policy = 1;
        mesh.pass(NO_INPUT, &[(1, Effect::Changed, UPDATING), (2, Effect::Changed, UPDATING)]);
        mesh.lines();
        let nacked = Some(Lag::Nacked);
        mesh.pass(NO_INPUT, &[(1, Effect::None, nacked), (2, Effect::None, None)]);
        let end = "INFO change ACKed change=\"policy-0123456789ab\" proxies=2 nacked=1";
        assert_eq!(mesh.lines(), [end]);
        // The NACK goes on, and is none of the next change.
        mesh.generations.policy = 2;
        mesh.pass(NO_INPUT, &[(2, Effect::Changed, UPDATING)]);
        mesh.pass(NO_INPUT, &[(2, Effect::None, None)]);
        assert!(mesh.lines().last().unwrap().ends_with("proxies=1 nacked=0"));
    });
}

#[test]
fn overlapping_changes_end_together_and_are_bounded() {
    Mesh::run(|mesh| {
        let inputs = ChangedInputs { health: true, ..NO_INPUT };
        for number in 1..=MAX_OPEN as u64 {
            mesh.generations.endpoints = number;
            mesh.pass(inputs, &[(1, Effect::Changed, UPDATING)]);
        }
        mesh.lines();
        // One more than the log follows ends the second one, and is followed to its own end.
        mesh.generations.endpoints += 1;
        mesh.pass(inputs, &[(1, Effect::Changed, UPDATING)]);
        let superseded =
            "DEBUG change superseded change=\"endpoints-ff-2\" proxies=1 by=\"endpoints-ff-17\"";
        assert!(mesh.lines().iter().any(|line| line == superseded));
        assert_eq!(mesh.log.open.len(), MAX_OPEN);
        mesh.pass(NO_INPUT, &[(1, Effect::None, None)]);
        let lines = mesh.lines();
        assert_eq!(lines.len(), MAX_OPEN);
        for (line, number) in lines.iter().zip([1].into_iter().chain(3..)) {
            let start = format!("DEBUG change ACKed change=\"endpoints-ff-{number}\"");
            assert!(line.starts_with(&start), "{lines:#?}");
        }
        assert!(mesh.log.open.is_empty());
    });
}

#[test]
fn laggard_is_named_however_fast_changes_follow() {
    Mesh::run(|mesh| {
        let inputs = ChangedInputs { health: true, ..NO_INPUT };
        for number in 1..=2 * LATE.as_secs() {
            mesh.generations.endpoints = number;
            mesh.pass(inputs, &[(1, Effect::Changed, UPDATING)]);
            mesh.now += Duration::from_millis(500);
        }
        mesh.pass(NO_INPUT, &[]);
        let late = mesh.lines().into_iter().filter(|line| line.starts_with("WARN"));
        let late: Vec<_> = late.collect();
        assert_eq!(late.len(), 1, "{late:#?}");
        assert!(late[0].contains("\"endpoints-ff-1\""), "{late:#?}");
        // It is reported: the next change ends it.
        mesh.generations.endpoints += 1;
        mesh.pass(inputs, &[(1, Effect::Changed, UPDATING)]);
        let superseded = "change superseded change=\"endpoints-ff-1\"";
        assert!(mesh.lines().iter().any(|line| line.contains(superseded)));
    });
}

#[test]
fn change_is_not_superseded_by_those_of_another_kind() {
    Mesh::run(|mesh| {
        mesh.generations.policy = 1;
        mesh.pass(NO_INPUT, &[(1, Effect::Changed, UPDATING)]);
        for number in 1..=MAX_OPEN as u64 + 3 {
            mesh.generations.endpoints = number;
            let inputs = ChangedInputs { health: true, ..NO_INPUT };
            mesh.pass(inputs, &[(1, Effect::Changed, UPDATING)]);
        }
        let policy = mesh.log.open.iter().filter(|open| open.kind == Kind::Policy);
        assert_eq!((policy.count(), mesh.log.open.len()), (1, MAX_OPEN + 1));
    });
}

#[test]
fn laggard_of_an_earlier_change_does_not_delay_a_later_one() {
    Mesh::run(|mesh| {
        mesh.generations.policy = 1;
        mesh.pass(NO_INPUT, &[(1, Effect::Changed, UPDATING)]);
        mesh.lines();
        // The frozen proxy 1 is not touched by these.
        for policy in 2..=4 {
            mesh.generations.policy = policy;
            mesh.pass(NO_INPUT, &[(2, Effect::Changed, UPDATING), (1, Effect::None, UPDATING)]);
            mesh.pass(NO_INPUT, &[(2, Effect::None, None)]);
            let last = mesh.lines().pop().unwrap();
            assert!(
                last.contains("change ACKed") && last.ends_with("proxies=1 nacked=0"),
                "{last}"
            );
        }
        assert_eq!(mesh.log.open.len(), 1);
        // Nor does a later change delay the earlier one.
        mesh.generations.policy = 5;
        mesh.pass(NO_INPUT, &[(2, Effect::Changed, UPDATING), (1, Effect::None, None)]);
        assert!(mesh.lines().last().unwrap().contains("change ACKed"));
        assert_eq!(mesh.log.open.len(), 1);
    });
}

#[test]
fn change_after_a_nack_is_pending_by_itself() {
    Mesh::run(|mesh| {
        mesh.generations.policy = 1;
        mesh.pass(NO_INPUT, &[(1, Effect::Changed, Some(Lag::Nacked))]);
        mesh.generations.policy = 2;
        mesh.pass(
            NO_INPUT,
            &[(2, Effect::Changed, UPDATING), (1, Effect::None, Some(Lag::Nacked))],
        );
        mesh.generations.policy = 3;
        mesh.pass(NO_INPUT, &[(1, Effect::Changed, UPDATING), (2, Effect::None, UPDATING)]);
        mesh.lines();
        mesh.pass(NO_INPUT, &[(2, Effect::None, None)]);
        assert_eq!(mesh.lines().len(), 1, "the second, which proxy 1 does not lack");
        mesh.pass(NO_INPUT, &[(1, Effect::None, None)]);
        assert_eq!(mesh.lines().len(), 1, "the third");
    });
}

#[test]
fn each_change_has_a_trace_until_it_is_acked_or_too_old() {
    Mesh::run(|mesh| {
        let (queue, mut queued) = SpanQueue::new();
        mesh.log.trace(Arc::new(ChangeTraces::new(queue)));
        let mut spans = || {
            let spans = std::iter::from_fn(|| queued.take());
            spans.map(|span| (span.name, span.error, span.context.trace_id)).collect::<Vec<_>>()
        };
        mesh.generations.policy = 1;
        mesh.pass(NO_INPUT, &[(1, Effect::Changed, UPDATING), (2, Effect::Changed, UPDATING)]);
        let found = spans();
        let [("reconcile", None, trace)] = found[..] else { panic!("{found:?}") };
        mesh.pass(NO_INPUT, &[(1, Effect::None, None)]);
        assert_eq!(spans(), []);
        mesh.pass(NO_INPUT, &[(2, Effect::None, None)]);
        assert_eq!(spans(), [("change", None, trace)]);

        // A proxy that never answers.
        mesh.generations.endpoints = 1;
        mesh.pass(NO_INPUT, &[(1, Effect::Changed, UPDATING)]);
        let found = spans();
        let [("reconcile", None, other)] = found[..] else { panic!("{found:?}") };
        assert_ne!(other, trace);
        mesh.now += LONGEST_TRACE;
        mesh.pass(NO_INPUT, &[]);
        assert_eq!(spans(), [("change", Some("not ACKed by all proxies".to_owned()), other)]);
        mesh.pass(NO_INPUT, &[(1, Effect::None, None)]);
        assert_eq!(spans(), [], "its trace is over");

        for number in 2..=18 {
            mesh.generations.policy = number;
            mesh.pass(NO_INPUT, &[(1, Effect::Changed, UPDATING)]);
        }
        let superseded: Vec<_> = spans().into_iter().filter(|span| span.1.is_some()).collect();
        let [("change", Some(reason), _)] = &superseded[..] else { panic!("{superseded:?}") };
        assert_eq!(reason, "superseded by newer changes");
        mesh.log.complete();
        let end = spans().pop().unwrap();
        assert_eq!((end.0, end.1.as_deref()), ("change", Some("the control plane stopped")));
    });
}
