//! The type of a scalar: by the core schema of YAML 1.2 (section 10.3.2), as far as policy needs it.

use toml::de::DeValue;

/// The value of a plain scalar, or `None` for null.
///
/// `no`, `on` and the like are strings, as in YAML 1.2. So is a number with leading zeros, which YAML 1.1
/// reads in another base than YAML 1.2: a key that needs a number rejects it.
pub(super) fn plain(text: &str) -> Option<DeValue<'_>> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return None,
        "true" | "True" | "TRUE" => return Some(DeValue::Boolean(true)),
        "false" | "False" | "FALSE" => return Some(DeValue::Boolean(false)),
        _ => {}
    }
    let number = looks_like_a_number(text).then(|| DeValue::parse(text).ok()).flatten();
    let number = number.map(toml::Spanned::into_inner);
    let is_number = |value: &DeValue<'_>| value.is_integer() || value.is_float();
    Some(number.filter(is_number).unwrap_or(DeValue::String(text.into())))
}

/// Whether it has YAML's syntax of numbers. TOML, which parses it then, has more forms.
fn looks_like_a_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0o")) {
        return digits.bytes().all(|b| b.is_ascii_hexdigit());
    }
    digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> &'static str {
        plain(text).map_or("null", |value| value.type_str())
    }

    #[test]
    fn plain_scalars_have_their_yaml_types() {
        for (expected, texts) in [
            ("null", &["", "~", "null"][..]),
            ("boolean", &["true", "False"]),
            ("integer", &["0", "-1", "+8080", "0x1F", "0o17", "99999999999999999999999"]),
            ("float", &["1.5", "1e3", "-0.25"]),
            (
                "string",
                &[
                    "yes",
                    "on",
                    "500m",
                    "014",
                    "1_000",
                    "2026-11-21",
                    "12:30:00",
                    "1.2.3",
                    "0xg",
                    "-",
                    "+",
                    "10.0.0.1",
                    "/books",
                    "[x",
                ],
            ),
        ] {
            for text in texts {
                assert_eq!(kind(text), expected, "{text}");
            }
        }
    }
}
