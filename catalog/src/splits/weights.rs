//! Products of weights as whole numbers for Envoy: their sum fits 32 bits.

use std::collections::BTreeMap;

/// The shares of all destinations of nested backends. A backend without a destination has no share.
///
/// The shares are exact if they fit. Otherwise their error is below one in 2^32 of the whole, apart from shares
/// that are raised to 1.
pub(super) fn multiplied<K: Ord + Copy>(parts: &[(u32, &[(K, u32)])]) -> Vec<(K, u32)> {
    fitting(exact(parts).unwrap_or_else(|| rounded(parts)))
}

/// As fractions of the product of all sums; `None` if that is too large.
fn exact<K: Ord + Copy>(parts: &[(u32, &[(K, u32)])]) -> Option<BTreeMap<K, u128>> {
    let mut whole: u128 = 1;
    for (_, own) in parts {
        let sum = sum(own).max(1);
        whole = whole.checked_mul(sum / greatest_common_divisor(whole, sum))?;
    }
    let mut shares: BTreeMap<K, u128> = BTreeMap::new();
    for (weight, own) in parts {
        let unit = u128::from(*weight).checked_mul(whole / sum(own).max(1))?;
        for (key, own) in *own {
            let share = shares.entry(*key).or_default();
            *share = share.checked_add(unit.checked_mul(u128::from(*own))?)?;
        }
    }
    Some(shares)
}

/// As fractions of 2^63, which is precise enough for 32 bits and never rounds a share to 0.
fn rounded<K: Ord + Copy>(parts: &[(u32, &[(K, u32)])]) -> BTreeMap<K, u128> {
    let mut shares: BTreeMap<K, u128> = BTreeMap::new();
    for (weight, own) in parts {
        let sum = sum(own).max(1);
        for (key, own) in *own {
            let product = u128::from(*weight) * u128::from(*own);
            *shares.entry(*key).or_default() += (product << 63) / sum;
        }
    }
    shares
}

/// The same shares with a sum of at most 32 bits: unchanged, else without their common divisor, else rounded,
/// none of them to 0.
fn fitting<K: Ord>(mut shares: BTreeMap<K, u128>) -> Vec<(K, u32)> {
    shares.retain(|_, share| *share > 0);
    let limit = u128::from(u32::MAX);
    if total(&shares) > limit {
        let divisor = shares.values().copied().fold(0, greatest_common_divisor);
        for share in shares.values_mut() {
            *share /= divisor.max(1);
        }
    }
    // So that what comes next stays within 128 bits.
    while total(&shares) > 1 << 90 {
        for share in shares.values_mut() {
            *share = (*share >> 1).max(1);
        }
    }
    let (sum, number) = (total(&shares), shares.len() as u128);
    if sum > limit {
        let most = limit.saturating_sub(number);
        for share in shares.values_mut() {
            *share = (*share * most / sum).max(1);
        }
    }
    let narrow = |share| u32::try_from(share).unwrap_or(u32::MAX);
    shares.into_iter().map(|(key, share)| (key, narrow(share))).collect()
}

fn total<K>(shares: &BTreeMap<K, u128>) -> u128 {
    shares.values().fold(0, |sum: u128, share| sum.saturating_add(*share))
}

fn sum<K>(weights: &[(K, u32)]) -> u128 {
    weights.iter().map(|(_, weight)| u128::from(*weight)).sum()
}

fn greatest_common_divisor(mut one: u128, mut other: u128) -> u128 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_without_nesting_stay_unchanged() {
        assert_eq!(
            multiplied(&[(1000, &[("a", 1)]), (500, &[("b", 1)])]),
            [("a", 1000), ("b", 500)]
        );
        assert_eq!(multiplied(&[(u32::MAX, &[("a", 1)])]), [("a", u32::MAX)]);
    }

    #[test]
    fn nested_weights_multiply_exactly_and_duplicates_add_up() {
        // A third of three quarters, two thirds of them, and a quarter.
        let parts: [(u32, &[_]); 2] = [(3, &[("a", 1), ("b", 2)]), (1, &[("b", 1)])];
        assert_eq!(multiplied(&parts), [("a", 3), ("b", 9)]);
        let one_without_destination: [(u32, &[_]); 2] = [(3, &[]), (1, &[("b", 7)])];
        assert_eq!(multiplied(&one_without_destination), [("b", 7)]);
        assert_eq!(multiplied::<&str>(&[(3, &[])]), []);
    }

    #[test]
    fn common_divisor_is_removed_before_rounding() {
        let half = 1 << 30;
        let parts: [(u32, &[_]); 2] =
            [(half, &[("a", half), ("b", half)]), (half, &[("c", half), ("d", half)])];
        assert_eq!(multiplied(&parts), [("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    }

    #[test]
    fn overflowing_weights_are_rounded_and_none_becomes_zero() {
        // Sums without a common divisor, whose product has more than 128 bits.
        let primes = [4_294_967_291, 4_294_967_279, 4_294_967_231, 4_294_967_197, 4_294_967_189];
        let inner: Vec<_> = primes.iter().map(|sum| [(*sum, 1), (sum - 1, sum - 1)]).collect();
        let parts: Vec<_> = inner.iter().map(|own| (7, own.as_slice())).collect();
        assert_eq!(exact(&parts), None);
        let shares = multiplied(&parts);
        assert_eq!(shares.len(), 10);
        let sum: u64 = shares.iter().map(|(_, share)| u64::from(*share)).sum();
        assert!(u32::try_from(sum).is_ok_and(|sum| sum > u32::MAX - 100), "{sum}");
        for (key, share) in shares {
            let expected = if primes.contains(&key) { 1 } else { u32::MAX / 5 };
            assert!(share.abs_diff(expected) < 10, "{share} instead of {expected}");
        }
    }
}
