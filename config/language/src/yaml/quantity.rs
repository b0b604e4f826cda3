//! Weights of `split.smi-spec.io/v1alpha1`, which are quantities of Kubernetes: `500m` is a half. They are
//! converted to whole numbers with the same ratio.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::DeValue;

/// Whole numbers in place of quantities, by the spans of these.
pub(super) type Weights = BTreeMap<usize, String>;

/// The converted weights of all splits in `documents` that have other than whole numbers. Either all weights
/// of a split are in thousandths, or none is. Invalid quantities are left out.
pub(super) fn weights(documents: &[Spanned<DeValue<'_>>]) -> Weights {
    let mut weights = Weights::new();
    let mut open: Vec<_> = documents.iter().collect();
    while let Some(value) = open.pop() {
        let Some(table) = value.get_ref().as_table() else { continue };
        if let Some(DeValue::Array(items)) = table.get("items").map(Spanned::get_ref) {
            open.extend(items.iter());
        }
        let version = table.get("apiVersion").and_then(|value| value.get_ref().as_str());
        if version != Some("split.smi-spec.io/v1alpha1") {
            continue;
        }
        let spec = table.get("spec").and_then(|spec| spec.get_ref().as_table());
        let backends = spec.and_then(|spec| spec.get("backends")?.get_ref().as_array());
        let of_backend = |backend: &'_ Spanned<DeValue<'_>>| {
            Some(weight(backend.get_ref().as_table()?.get("weight")?))
        };
        let found: Vec<_> =
            backends.into_iter().flatten().filter_map(of_backend).flatten().collect();
        if found.iter().any(|weight| !weight.is_plain) {
            weights.extend(found.into_iter().map(|one| (one.at, one.thousandths.to_string())));
        }
    }
    weights
}

struct Weight {
    at: usize,
    thousandths: u64,
    /// Whether it is a whole number already.
    is_plain: bool,
}

fn weight(value: &Spanned<DeValue<'_>>) -> Option<Weight> {
    let (text, is_plain) = match value.get_ref() {
        DeValue::Integer(number) => (number.as_str(), true),
        DeValue::Float(number) => (number.as_str(), false),
        DeValue::String(text) => (&**text, false),
        _ => return None,
    };
    Some(Weight { at: value.span().start, thousandths: thousandths(text)?, is_plain })
}

/// A decimal quantity, as <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>
/// defines it, without the large and the tiny suffixes that no weight has.
fn thousandths(text: &str) -> Option<u64> {
    let (number, is_milli) = match text.strip_suffix('m') {
        Some(number) => (number, true),
        None => (text, false),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    if is_milli {
        return fraction.is_empty().then_some(whole);
    }
    let fraction: u64 = format!("{fraction:0<3}").parse().ok()?;
    whole.checked_mul(1000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_parses_as_thousandths() {
        for (text, expected) in [
            ("500m", Some(500)),
            ("0m", Some(0)),
            ("1", Some(1000)),
            ("1.5", Some(1500)),
            ("0.25", Some(250)),
            ("1500m", Some(1500)),
            ("1.0001", None),
            ("1.5m", None),
            ("-1", None),
            ("1k", None),
            ("m", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(thousandths(text), expected, "{text}");
        }
    }
}
