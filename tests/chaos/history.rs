//! Whether a history of calls is linearizable: whether each call can have had its effect in one moment between its
//! begin and its answer, in an order that explains all answers.
//!
//! The search is the one of Wing and Gong, with the memory of Lowe: "Testing for linearizability" (2016).

use std::collections::BTreeSet;

use tokio::time::Instant;

/// A call with its answer.
#[derive(Debug, Clone)]
pub(crate) struct Call<I, O> {
    pub(crate) input: I,
    pub(crate) begin: Instant,
    /// Without an answer the call may have had its effect at any time since, or never.
    pub(crate) answer: Option<(Instant, O)>,
}

/// Whether the calls, at most 64 of them with their effects in doubt, are linearizable. `step` is the object: the
/// state after a call and its answer.
pub(crate) fn is_linearizable<S: Clone + Ord, I, O: PartialEq>(
    calls: &[Call<I, O>],
    initial: S,
    step: impl Fn(&S, &I) -> (S, O),
) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![(BTreeSet::<usize>::new(), initial)];
    while let Some((done, state)) = open.pop() {
        let left = || calls.iter().enumerate().filter(|(number, _)| !done.contains(number));
        let answers = left().filter_map(|(_, call)| call.answer.as_ref().map(|(end, _)| *end));
        // A call that began after an answer cannot come before the call of that answer.
        let Some(first_answer) = answers.min() else { return true };
        for (number, call) in left().filter(|(_, call)| call.begin <= first_answer) {
            let (after, answer) = step(&state, &call.input);
            if call.answer.is_none() && after == state {
                // As without the call. Each would double the number of ways.
                continue;
            }
            if call.answer.as_ref().is_none_or(|(_, seen)| *seen == answer) {
                let mut done = done.clone();
                done.insert(number);
                if seen.insert((done.clone(), after.clone())) {
                    open.push((done, after));
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Compare-and-swap of a register: expected and new value. The answer is whether it was swapped.
    type Swap = Call<(u32, u32), bool>;

    fn swap(base: Instant, times: (u64, u64), input: (u32, u32), answer: Option<bool>) -> Swap {
        let at = |second| base + Duration::from_secs(second);
        Call { input, begin: at(times.0), answer: answer.map(|answer| (at(times.1), answer)) }
    }

    fn check(calls: &[Swap]) -> bool {
        is_linearizable(
            calls,
            0,
            |state, (expected, new)| {
                if state == expected { (*new, true) } else { (*state, false) }
            },
        )
    }

    #[test]
    fn history_is_linearizable_only_if_an_order_explains_it() {
        let base = Instant::now();
        let swap = |times, input, answer| swap(base, times, input, answer);
        assert!(check(&[]));
        assert!(check(&[swap((1, 2), (0, 1), Some(true)), swap((3, 4), (1, 2), Some(true))]));
        // Both have swapped the same value.
        assert!(!check(&[swap((1, 4), (0, 1), Some(true)), swap((2, 3), (0, 2), Some(true))]));
        // The order of calls that overlap is free, and that of others is not.
        assert!(check(&[swap((1, 4), (1, 2), Some(true)), swap((2, 3), (0, 1), Some(true))]));
        assert!(!check(&[swap((1, 2), (1, 2), Some(true)), swap((3, 4), (0, 1), Some(true))]));
        // A rejection needs a reason.
        assert!(!check(&[swap((1, 2), (0, 1), Some(false))]));
        assert!(!check(&[swap((1, 2), (0, 1), Some(true)), swap((3, 4), (1, 2), Some(false))]));
    }

    #[test]
    fn call_without_an_answer_may_have_its_effect_later_or_never() {
        let base = Instant::now();
        let swap = |times, input, answer| swap(base, times, input, answer);
        let lost = swap((1, 0), (0, 1), None);
        assert!(check(&[lost.clone(), swap((2, 3), (0, 2), Some(true))]));
        assert!(check(&[lost.clone(), swap((2, 3), (0, 2), Some(false))]));
        assert!(check(&[lost.clone(), swap((2, 3), (1, 2), Some(true))]));
        assert!(!check(&[swap((2, 3), (1, 2), Some(true)), swap((4, 0), (0, 1), None)]));
        let kept = swap((2, 3), (0, 3), Some(false));
        assert!(!check(&[lost, kept, swap((4, 5), (0, 2), Some(true))]));
    }
}
