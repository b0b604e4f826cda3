//! Fuzzer entry points for the code that strangers' bytes reach first: each accepts any bytes, and
//! panics if a rule is broken.
//!
//! `fuzz/` drives them; the tests here replay the corpus in `fuzz/corpus`. The clients are those of
//! `scenarios`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ironmesh_xds_wire::ResourceType;
use ironmesh_xds_wire::{DeltaRequest, ErrorDetail, ResourceSet, SotwRequest};
use prost::Message as _;
use tokio::time::Instant;

use crate::delta::DeltaStream;
use crate::scenarios::dialect::Dialect;
use crate::scenarios::walk::{NAMES, SUBSCRIBABLE, Step, Walk};
use crate::sotw::SotwStream;
use crate::stream::StreamOutput;
use crate::subscription::MAX_SIZE;
use crate::test_resources::{cluster, endpoints, listener_of, set};

#[cfg(test)]
mod tests;

/// The maximum number of steps of a walk: a fuzzer finds its cases in few.
const MAX_STEPS: usize = 200;

/// Runs the request reader on bytes in pieces. The first byte is the number of bytes after it that
/// give the sizes of pieces.
pub fn deframer(bytes: &[u8]) {
    let Some((count, bytes)) = bytes.split_first() else { return };
    let (sizes, bytes) = bytes.split_at(usize::from(*count).min(bytes.len()));
    crate::messages::fuzzing::read(bytes, sizes);
}

/// Runs a client that sends arbitrary requests, as far as the bytes decode to requests. The first
/// byte selects the variant.
pub fn requests(bytes: &[u8]) {
    match bytes.split_first() {
        Some((variant, bytes)) if variant % 2 == 0 => {
            stranger::<DeltaStream>(bytes, |request: &DeltaRequest| {
                (&request.nonce, &request.error)
            });
        }
        Some((_, bytes)) => {
            stranger::<SotwStream>(bytes, |request: &SotwRequest| (&request.nonce, &request.error));
        }
        None => {}
    }
}

/// Runs a model of Envoy on delta streams: after any events it ends with the published set.
pub fn delta(bytes: &[u8]) {
    walk::<DeltaStream>(bytes);
}

/// The same on state-of-the-world streams.
pub fn sotw(bytes: &[u8]) {
    walk::<SotwStream>(bytes);
}

fn walk<V: Dialect>(bytes: &[u8]) {
    let mut walk = Walk::<V>::new();
    for step in steps(bytes).take(MAX_STEPS) {
        walk.apply(&step);
    }
    walk.end();
}

/// Interprets bytes as steps. Any byte is some step.
fn steps(bytes: &[u8]) -> impl Iterator<Item = Step> {
    let mut bytes = bytes.iter().copied();
    std::iter::from_fn(move || {
        let kind = bytes.next()?;
        let mut which = || bytes.next().unwrap_or_default();
        Some(match kind % 8 {
            0 | 1 => {
                let content = [None, Some(0), Some(1), Some(2), Some(3), Some(4)];
                Step::Edit(
                    pick(&ResourceType::ALL, which()),
                    pick(&NAMES, which()),
                    pick(&content, which()),
                )
            }
            2 => Step::Publish,
            3 => Step::Request {
                of: pick(&ResourceType::ALL, which()),
                added: names_of_bits(which()),
                dropped: names_of_bits(which()),
            },
            4 | 5 => Step::Answer { of: pick(&ResourceType::ALL, which()), in_part: kind % 2 == 0 },
            6 => Step::Reconnect {
                before_set: usize::from(which() % 6),
                elsewhere: which() % 2 == 0,
            },
            _ => Step::Pass(Duration::from_millis(100 * u64::from(which()))),
        })
    })
}

fn pick<T: Copy>(of: &[T], which: u8) -> T {
    of[usize::from(which) % of.len()]
}

/// The names whose bits are set in a number.
fn names_of_bits(which: u8) -> BTreeSet<&'static str> {
    let names = SUBSCRIBABLE.into_iter().enumerate();
    names.filter(|(at, _)| which & (1 << at) > 0).map(|(_, name)| name).collect()
}

/// Drives a stream with arbitrary requests. `answer` returns the nonce and the error of a request.
fn stranger<V: Dialect>(
    mut bytes: &[u8],
    answer: impl Fn(&V::Request) -> (&String, &Option<ErrorDetail>),
) {
    let (mut stream, mut now) = (V::fresh(), Instant::now());
    assert!(stream.on_set(small_set(), now).is_empty(), "no request yet");
    let mut open = Open::default();
    while let Some(message) = next_message(&mut bytes) {
        let Ok(message) = V::Message::decode(message) else { return };
        let size = message.encoded_len();
        let mut request = V::Request::from(message);
        if let Some(node) = V::node(&mut request) {
            drop(format!("{node:?} {:?}", node.metadata.as_ref().map(ToString::to_string)));
        }
        let type_url = V::type_url(&mut request).clone();
        let (nonce, error) = answer(&request);
        if let Some(error) = error {
            assert!(error.message.len() <= ErrorDetail::MAX_LENGTH);
            assert!(!error.message.contains(char::is_control), "{:?}", error.message);
        }
        if let Some(of) = ResourceType::from_url(&type_url) {
            open.is_answered(of, nonce);
        }
        let outputs = stream.on_request(&request, now);
        if open.is_closed_by::<V>(outputs, 8 * size) {
            return;
        }
        assert!(stream.size() <= MAX_SIZE, "{} bytes of names", stream.size());
        now += Duration::from_secs(4);
        while let Some(deadline) = stream.deadline().filter(|deadline| *deadline <= now) {
            let outputs = stream.on_timeout(deadline);
            assert!(!open.is_closed_by::<V>(outputs, 8 * MAX_SIZE), "closed by time");
            assert_ne!(stream.deadline(), Some(deadline), "its deadline does not advance");
        }
    }
}

/// The nonces of pushes in flight.
#[derive(Default)]
struct Open(BTreeMap<ResourceType, u64>);

impl Open {
    fn is_answered(&mut self, of: ResourceType, nonce: &str) {
        if self.0.get(&of).is_some_and(|open| open.to_string() == *nonce) {
            self.0.remove(&of);
        }
    }

    /// Whether these outputs close the stream. Checks that the bytes they send are bounded, besides
    /// the resources that exist.
    fn is_closed_by<V: Dialect>(
        &mut self,
        outputs: Vec<StreamOutput<V::Response>>,
        most: usize,
    ) -> bool {
        let mut sent = 0;
        for output in outputs {
            match output {
                StreamOutput::Send(response) => {
                    sent += V::frame(&response).iter().map(bytes::Bytes::len).sum::<usize>();
                    let Some(of) = V::pushed(&response, 0).map(|push| push.resource_type) else {
                        continue;
                    };
                    let before = self.0.insert(of, V::read(response).nonce);
                    assert_eq!(before, None, "a second push of {of} is under way");
                }
                StreamOutput::Late(of) => drop(self.0.remove(&of)),
                StreamOutput::Close(_) => return true,
                StreamOutput::Acked(_) | StreamOutput::Nacked(_) => {}
            }
        }
        assert!(sent <= most + (64 << 10), "{sent} bytes are the answer, {most} expected at most");
        false
    }
}

/// Resources that refer to each other, of types with and without a wildcard.
fn small_set() -> ResourceSet {
    set([cluster("a", 1), cluster("b", 1), endpoints("a", 1), listener_of("l", 1, &["a"])])
}

/// Removes the next message of gRPC's framing; `None` if it is incomplete.
fn next_message<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (prefix, rest) = bytes.split_at_checked(5)?;
    let length = u32::from_be_bytes(prefix.get(1..)?.try_into().ok()?);
    let (message, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(message)
}
