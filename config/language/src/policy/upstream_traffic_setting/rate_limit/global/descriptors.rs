//! Descriptors: the entries that sidecars send to a rate limit service for a request or a connection.

use std::sync::Arc;

use ironmesh_catalog::{Descriptor, DescriptorEntry, HeaderCondition, HeaderPattern};

use crate::codes;
use crate::policy::http_route_group::is_token;
use crate::policy::regex;
use crate::table::{FindingReported, Table, Value, list};

/// The most descriptors, and the most entries of each.
const MOST: usize = 32;

/// The most characters of a key or a value.
const LENGTH: usize = 256;

const MEANING: &str = "without one, nothing is limited: add at least one, or remove the limit";

/// Reads the descriptors of requests.
pub(crate) fn read(value: Value<'_>) -> Result<Vec<Descriptor>, FindingReported> {
    few(value)?.at_least_one(MEANING, |item| {
        let mut table = item.table("a descriptor")?;
        let entries = table.required("entries", |value| few(value)?.at_least_one(MEANING, entry));
        table.finish();
        entries.map(Descriptor)
    })
}

/// The keys and values of one descriptor.
type Pairs = Vec<(Arc<str>, Arc<str>)>;

/// Reads the descriptors of connections, which have no content but fixed values.
pub(super) fn read_of_connections(value: Value<'_>) -> Result<Vec<Pairs>, FindingReported> {
    few(value)?.at_least_one(MEANING, |item| {
        let mut table = item.table("a descriptor of connections")?;
        let entries = table.required("entries", |value| few(value)?.at_least_one(MEANING, pair));
        table.finish();
        entries
    })
}

fn pair(item: Value<'_>) -> Result<(Arc<str>, Arc<str>), FindingReported> {
    let mut table = item.table("an entry of connections")?;
    let key = table.required("key", text);
    let value = table.required("value", |value| {
        let given = text(value)?;
        if given.contains('%') {
            let message = format!("the value of an entry has no `%` in it: `{given}`");
            let finding = value.error(codes::INVALID_VALUE, message).label("not plain");
            return Err(value.report(finding.help("it is the same of all connections")));
        }
        Ok(given)
    });
    table.finish();
    Ok((key?, value?))
}

fn few(value: Value<'_>) -> Result<Value<'_>, FindingReported> {
    if value.items()?.len() > MOST {
        let message = format!("`{}` has at most {MOST} items", value.key());
        return Err(value.report(value.error(codes::TOO_LARGE, message).label("too many")));
    }
    Ok(value)
}

fn text(value: Value<'_>) -> Result<Arc<str>, FindingReported> {
    Ok(value.text(LENGTH)?.into())
}

fn header(value: Value<'_>) -> Result<Arc<str>, FindingReported> {
    let name: Arc<str> = value.string()?.to_lowercase().into();
    if is_token(&name) || [":path", ":method", ":authority"].contains(&&*name) {
        return Ok(name);
    }
    let message = format!("`{name}` is not the name of a header");
    Err(value.report(value.error(codes::INVALID_VALUE, message).label("not a header")))
}

fn entry(item: Value<'_>) -> Result<DescriptorEntry, FindingReported> {
    let mut table = item.table("an entry of a descriptor")?;
    let generic = table.optional("generic_key", |value| {
        let mut table = value.table("a generic key")?;
        let (value, key) = (table.required("value", text), table.optional("key", text));
        table.finish();
        Ok(DescriptorEntry::GenericKey { key: key?, value: value? })
    });
    let address = table.optional("remote_address", Value::boolean);
    let request = table.optional("request_header", |value| {
        let mut table = value.table("a request header")?;
        let (name, key) = (table.required("name", header), table.required("key", text));
        table.finish();
        Ok(DescriptorEntry::RequestHeader { name: name?, key: key? })
    });
    let matching = table.optional("header_value_match", header_value_match);
    table.finish();
    let address = address?.filter(|is_set| *is_set).map(|_| DescriptorEntry::RemoteAddress);
    let given: Vec<_> = [generic?, address, request?, matching?].into_iter().flatten().collect();
    match <[DescriptorEntry; 1]>::try_from(given) {
        Ok([entry]) => Ok(entry),
        Err(given) => {
            let keys = ["generic_key", "remote_address", "request_header", "header_value_match"];
            Err(item.report(wrong_key_count(item, given.len(), &keys)))
        }
    }
}

fn wrong_key_count(item: Value<'_>, given: usize, keys: &[&str]) -> ironmesh_catalog::Finding {
    let message = format!("an entry has exactly one key, and this one has {given}");
    let (code, label) = match given {
        0 => (codes::MISSING_KEY, "no key"),
        _ => (codes::INVALID_VALUE, "several keys"),
    };
    item.error(code, message).label(label).help(format!("it has one of {}", list(keys)))
}

fn header_value_match(value: Value<'_>) -> Result<DescriptorEntry, FindingReported> {
    let mut table = value.table("a match of header values")?;
    let key = table.optional("key", text);
    let given = table.required("value", text);
    let expect_match = table.optional("expect_match", Value::boolean);
    let headers = table.required("headers", |value| few(value)?.at_least_one(MEANING, condition));
    table.finish();
    Ok(DescriptorEntry::HeaderValueMatch {
        key: key?,
        value: given?,
        headers: headers?,
        expect_match: expect_match?.unwrap_or(true),
    })
}

/// The conditions on a text.
type Texts = [(&'static str, fn(Arc<str>) -> HeaderPattern); 4];

const TEXTS: Texts = [
    ("exact", HeaderPattern::Exact),
    ("prefix", HeaderPattern::Prefix),
    ("suffix", HeaderPattern::Suffix),
    ("contains", HeaderPattern::Contains),
];

fn condition(item: Value<'_>) -> Result<HeaderCondition, FindingReported> {
    let mut table = item.table("a condition on a header")?;
    let name = table.required("name", header);
    let texts = TEXTS.map(|(key, pattern)| on_text(&mut table, key, pattern));
    let regex =
        table.optional("regex", |value| Ok(HeaderPattern::Regex(regex::read_header(value)?)));
    let present = table.optional("present", |value| Ok(HeaderPattern::Present(value.boolean()?)));
    table.finish();
    let all: Result<Vec<_>, FindingReported> = texts.into_iter().chain([regex, present]).collect();
    let (name, given) = (name?, all?.into_iter().flatten().collect::<Vec<_>>());
    match <[HeaderPattern; 1]>::try_from(given) {
        Ok([pattern]) => Ok(HeaderCondition { name, pattern }),
        Err(given) => {
            let keys = ["exact", "prefix", "suffix", "contains", "regex", "present"];
            Err(item.report(wrong_key_count(item, given.len(), &keys)))
        }
    }
}

fn on_text(
    table: &mut Table<'_>,
    key: &'static str,
    pattern: fn(Arc<str>) -> HeaderPattern,
) -> Result<Option<HeaderPattern>, FindingReported> {
    table.optional(key, |value| Ok(pattern(text(value)?)))
}
