//! `[[http_route_group]]`: named sets of HTTP matches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{Finding, HttpMatch, HttpRouteGroup, Method, Name, Spot};

use super::part::{Id, Part};
use super::regex;
use crate::codes;
use crate::suggest::did_you_mean;
use crate::table::{FindingReported, Table, Value};

/// Reads one HTTP route group into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let matches = table.required("matches", |value| {
        let mut names = BTreeMap::new();
        let meaning = "an empty list never means all: give at least one match, such as \
                       `{ name = \"all\", path_regex = \"/\" }`";
        value.at_least_one(meaning, |item| read_match(item, &mut names))
    });
    if let Ok(id) = id {
        let group = matches.map(|matches| HttpRouteGroup {
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            matches,
            spot: id.spot.clone(),
        });
        part.http_route_groups.push(&id, group);
    }
    table.finish();
}

fn read_match(
    item: Value<'_>,
    names: &mut BTreeMap<Name, Spot>,
) -> Result<HttpMatch, FindingReported> {
    let mut table = item.table("a match")?;
    let name = table.required("name", |value| {
        let name = value.name()?;
        if let Some(first) = names.insert(name.clone(), value.spot()) {
            let message = format!("match `{name}` is defined twice in this group");
            let finding = value.error(codes::DUPLICATE_NAME, message).label("defined again");
            return Err(value.report(finding.related(first, "first defined here")));
        }
        Ok((name, value.spot()))
    });
    let path = table.optional("path_regex", regex::read_path);
    let methods = table.optional("methods", read_methods);
    let headers = table.optional("headers", read_headers);
    table.finish();
    let (name, spot) = name?;
    Ok(HttpMatch {
        name,
        path: path?,
        methods: methods?.unwrap_or_default(),
        headers: headers?.unwrap_or_default(),
        spot,
    })
}

/// Methods, each once and in the order of the file; none if `*` is among them, which means all.
fn read_methods(value: Value<'_>) -> Result<Vec<Method>, FindingReported> {
    let meaning = "leave `methods` out to allow all methods";
    let read = value.at_least_one(meaning, read_method)?;
    let length: usize = read.iter().flatten().map(|method| method.0.len()).sum();
    if length > MOST_OF_METHODS {
        let message = format!("`methods` are more than {MOST_OF_METHODS} characters together");
        let finding = value.error(codes::INVALID_VALUE, message).label("too long");
        return Err(value.report(finding.help("divide them among several matches")));
    }
    let mut seen = BTreeSet::new();
    let methods: Option<Vec<Method>> = read.into_iter().collect();
    let mut methods = methods.unwrap_or_default();
    methods.retain(|method| seen.insert(method.clone()));
    Ok(methods)
}

/// Envoy's routes compare a method with all of them at once, by an expression of limited size.
const MOST_OF_METHODS: usize = 400;

fn read_method(value: Value<'_>) -> Result<Option<Method>, FindingReported> {
    let text = value.string()?;
    if text == "*" {
        return Ok(None);
    }
    if is_token(text) && !text.contains(|c: char| c.is_ascii_lowercase()) {
        return Ok(Some(Method(text.into())));
    }
    let finding = value.error(codes::INVALID_VALUE, format!("`{text}` is not an HTTP method"));
    let upper = text.to_uppercase();
    Err(value.report(if is_token(&upper) {
        finding.label("methods are in upper case").help(did_you_mean(&upper))
    } else {
        finding.label("not a method").help("write a method as in `GET`, or `*` for all")
    }))
}

type Headers = BTreeMap<Arc<str>, Arc<str>>;

/// Headers: a table of names and expressions, or, as in SMI, a list of such tables.
fn read_headers(value: Value<'_>) -> Result<Headers, FindingReported> {
    let mut seen = BTreeMap::new();
    let mut headers = Headers::new();
    let mut result = Ok(());
    let tables: Vec<Table<'_>> = if value.is_table() {
        vec![value.table("headers")?]
    } else {
        value.at_least_one(LEAVE_HEADERS_OUT, |item| item.table("headers"))?
    };
    for (spot, header) in tables.iter().flat_map(Table::entries) {
        match read_header(&spot, header, &mut seen) {
            Ok((name, expression)) => {
                headers.insert(name, expression);
            }
            Err(reported) => result = Err(reported),
        }
    }
    if seen.is_empty() && result.is_ok() {
        let finding = value.error(codes::EMPTY_LIST, "`headers` is empty").label("no header");
        return Err(value.report(finding.help(LEAVE_HEADERS_OUT)));
    }
    result.map(|()| headers)
}

const LEAVE_HEADERS_OUT: &str = "leave `headers` out to look at none";

fn read_header(
    spot: &Spot,
    header: Value<'_>,
    seen: &mut BTreeMap<Arc<str>, Spot>,
) -> Result<(Arc<str>, Arc<str>), FindingReported> {
    let expression = regex::read_header(header);
    let name: Arc<str> = header.key().to_lowercase().into();
    if !is_token(&name) {
        let message = format!("`{}` is not the name of a header", header.key());
        let finding = Finding::error(codes::INVALID_VALUE, Some(spot.clone()), message);
        let finding = finding.label("not a header");
        return Err(header.report(if name.starts_with(':') {
            finding.help("`path_regex`, `methods` and the header `host` have the same effect")
        } else {
            finding.help("write a header as in `user-agent`")
        }));
    }
    if let Some(first) = seen.insert(Arc::clone(&name), spot.clone()) {
        let message = format!("header `{name}` is given twice");
        let finding = Finding::error(codes::DUPLICATE_NAME, Some(spot.clone()), message);
        let finding = finding.label("given again").related(first, "first given here");
        return Err(header.report(finding.help("upper and lower case are the same in headers")));
    }
    if name.contains('_') {
        let message = format!("no server compares the header `{name}`");
        let finding = Finding::warning(codes::UNDERSCORED_HEADER, Some(spot.clone()), message);
        header.report(finding.label("has an underscore").help(
            "sidecars drop such headers from calls; write it with `-`, as applications read it",
        ));
    }
    Ok((name, expression?))
}

/// Whether `text` is a token of RFC 9110, section 5.6.2: the form of methods and header names.
pub(super) fn is_token(text: &str) -> bool {
    let is_token_byte = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(is_token_byte)
}
