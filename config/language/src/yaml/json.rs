//! YAML as plain values, for files that are not policy.

use ironmesh_catalog::Finding;
use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::DeValue;

use super::parse::parse;
use crate::codes;
use crate::document::Document;
use crate::table::Reader;

/// The value of the one YAML document in `document`. (JSON is YAML, too.) The rules are those of policy in YAML: no
/// aliases, merge keys or tags, and no key without a value.
pub fn yaml_value(document: &Document) -> Result<Value, Vec<Finding>> {
    let reader = Reader::yaml(document);
    let parsed = parse(&reader);
    let mut findings = parsed.findings.clone();
    let syntax =
        |at, message: &str| Finding::error(codes::YAML_SYNTAX, Some(reader.spot(at)), message);
    findings.extend(parsed.nulls.iter().map(|at| syntax(at.clone(), "the key has no value")));
    let value = match parsed.documents.as_slice() {
        [document] => value(document.get_ref()),
        [] => Err("the file is empty"),
        _ => Err("the file has several documents"),
    };
    match value {
        Ok(value) if findings.is_empty() => Ok(value),
        Err(problem) if findings.is_empty() => Err(vec![syntax(0..0, problem)]),
        _ => Err(findings),
    }
}

fn value(parsed: &DeValue<'_>) -> Result<Value, &'static str> {
    Ok(match parsed {
        DeValue::String(text) => Value::String(text.clone().into_owned()),
        DeValue::Boolean(boolean) => Value::Bool(*boolean),
        DeValue::Integer(integer) => {
            let number = i64::from_str_radix(integer.as_str(), integer.radix());
            Value::Number(number.map_err(|_| "a number has more than 64 bits")?.into())
        }
        DeValue::Float(float) => {
            let number = float.as_str().parse().ok().and_then(Number::from_f64);
            Value::Number(number.ok_or("a number is not finite")?)
        }
        DeValue::Datetime(time) => Value::String(time.to_string()),
        DeValue::Array(items) => {
            items.iter().map(|item| value(item.get_ref())).collect::<Result<_, _>>()?
        }
        DeValue::Table(entries) => {
            let entries = entries.iter();
            let entry = |(key, inner): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let key: &std::borrow::Cow<'_, str> = key.get_ref();
                Ok::<_, &'static str>((key.clone().into_owned(), value(inner.get_ref())?))
            };
            Value::Object(entries.map(entry).collect::<Result<Map<_, _>, _>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Value, String> {
        let findings = yaml_value(&Document::new("overlay.yaml", text));
        findings.map_err(|findings| findings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn yaml_and_json_become_the_same_values() {
        let yaml = "a:\n  - b: 1\n    c: 0.5\n  - 'x y'\nd: true\n";
        let expected = json!({ "a": [{ "b": 1, "c": 0.5 }, "x y"], "d": true });
        assert_eq!(read(yaml), Ok(expected.clone()));
        assert_eq!(read(&expected.to_string()), Ok(expected));
    }

    #[test]
    fn unreadable_yaml_is_an_error_with_its_position() {
        for (text, problem) in [
            ("a: [1", "overlay.yaml:1:"),
            ("a:\nb: 1\n", "the key has no value (overlay.yaml:1:1)"),
            ("a: &x 1\nb: *x\n", "YAML aliases are not supported (overlay.yaml:2:4)"),
            ("", "the file is empty"),
            ("a: 1\n---\nb: 1\n", "the file has several documents"),
            ("a: 99999999999999999999", "a number has more than 64 bits"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(problem), "{text:?}: {error}");
        }
    }
}
