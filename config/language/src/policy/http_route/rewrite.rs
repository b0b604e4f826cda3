//! Changes of paths and hosts: of requests that are forwarded (`rewrite`), and of redirected ones
//! (`redirect`).

use std::sync::Arc;

use ironmesh_catalog::{PathChange, Redirect, Rewrite};

use crate::codes;
use crate::policy::regex;
use crate::table::{FindingReported, Table, Value};

/// The most characters of a path, or of a part of one.
const LONGEST_PATH: usize = 256;

/// The most characters of a substitution.
const LONGEST_SUBSTITUTION: usize = 256;

/// The most characters of a host.
const LONGEST_HOST: usize = 253;

/// Reads the new path and host of forwarded requests.
pub(super) fn read_rewrite(value: Value<'_>) -> Result<Rewrite, FindingReported> {
    let mut table = value.table("a rewrite")?;
    let prefix = table.optional("path_prefix", read_prefix);
    let regex = table.optional("path_regex", regex::read_replaced);
    let substitution = table.optional("substitution", |value| Ok((value.string()?, value)));
    let host = table.optional("host", |value| read_host(value, true));
    let one = check_path_change(&mut table);
    let any = ["path_prefix", "path_regex", "substitution", "host"];
    let something = if any.into_iter().any(|key| table.get(key).is_some()) {
        Ok(())
    } else {
        Err(table.missing("path_prefix` or `path_regex` or `host"))
    };
    table.finish();
    something?;
    one?;
    let path = match (prefix?, regex?, substitution?) {
        (Some(prefix), _, _) => Some(prefix),
        (None, Some((expression, groups)), Some((text, value))) => {
            let substitution = read_substitution(text, value, groups)?;
            Some(PathChange::Regex { expression, substitution })
        }
        (None, _, _) => None,
    };
    Ok(Rewrite { path, host: host? })
}

/// A path is changed in only one way, and an expression needs a substitution.
fn check_path_change(table: &mut Table<'_>) -> Result<(), FindingReported> {
    match (table.get("path_prefix"), table.get("path_regex"), table.get("substitution")) {
        (Some(prefix), Some(other), _) | (Some(prefix), None, Some(other)) => {
            let message = format!("a rewrite has `path_prefix` or `{}`, not both", other.key());
            let finding = other.error(codes::INVALID_VALUE, message).label("one too many");
            let finding = finding.related(prefix.spot(), "the path is changed here");
            Err(other.report(finding.help("remove one of them")))
        }
        (None, Some(_), None) => Err(table.missing("substitution")),
        (None, None, Some(_)) => Err(table.missing("path_regex")),
        _ => Ok(()),
    }
}

/// Reads the target of a redirect.
pub(super) fn read_redirect(value: Value<'_>) -> Result<Redirect, FindingReported> {
    let mut table = value.table("a redirect")?;
    let status = table.required("status", |value| {
        let number = value.integer(codes::INVALID_VALUE, 301..=308)?;
        let known = Redirect::STATUSES.into_iter().find(|status| u32::from(*status) == number);
        known.ok_or_else(|| {
            let message = format!("`{number}` is not the status of a redirect");
            let finding = value.error(codes::INVALID_VALUE, message).label("another status");
            value.report(finding.help("it is one of 301, 302, 303, 307 and 308"))
        })
    });
    let scheme = table.optional("scheme", |value| {
        value.word("scheme", &Redirect::SCHEMES.map(|scheme| (scheme, scheme)))
    });
    let host = table.optional("host", |value| read_host(value, false));
    let port = table.optional("port", Value::port);
    let path = table.optional("path", |value| read_path(value).map(PathChange::Whole));
    let prefix = table.optional("path_prefix", read_prefix);
    let given = |table: &mut Table<'_>, key| table.get(key).is_some();
    let keys = ["scheme", "host", "port", "path", "path_prefix"];
    let somewhere = if keys.into_iter().any(|key| given(&mut table, key)) {
        Ok(())
    } else {
        Err(table.missing("scheme` or `host` or `port` or `path` or `path_prefix"))
    };
    let one = match (table.get("path"), table.get("path_prefix")) {
        (Some(path), Some(prefix)) => {
            let message = "a redirect has `path` or `path_prefix`, not both";
            let finding = prefix.error(codes::INVALID_VALUE, message).label("one too many");
            let finding = finding.related(path.spot(), "replaces the whole path");
            Err(prefix.report(finding.help("remove one of them")))
        }
        _ => Ok(()),
    };
    table.finish();
    somewhere?;
    one?;
    let path = path?.or(prefix?);
    Ok(Redirect { status: status?, scheme: scheme?, host: host?, port: port?, path })
}

fn read_prefix(value: Value<'_>) -> Result<PathChange, FindingReported> {
    let mut table = value.table("a prefix of paths")?;
    let segments = |value| read_path(value).map(|path| Arc::from(path.trim_end_matches('/')));
    let from = table.required("from", segments);
    let to = table.required("to", segments);
    let written = table.get("to");
    table.finish();
    let (from, to) = (from?, to?);
    if from == to
        && let Some(value) = written
    {
        let message = "`from` and `to` are equal";
        let finding = value.error(codes::INVALID_VALUE, message).label("the same");
        return Err(value.report(finding.help("set `to` to the new prefix")));
    }
    Ok(PathChange::Prefix { from, to })
}

/// A path without a query, in the form in which paths are compared.
fn read_path(value: Value<'_>) -> Result<Arc<str>, FindingReported> {
    let text = value.string()?;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#\\".contains(&byte);
    let is_dots = |segment: &str| segment == "." || segment == "..";
    let problem = if !text.starts_with('/') {
        "begin with `/`"
    } else if text.len() > LONGEST_PATH {
        "have at most 256 characters"
    } else if !text.bytes().all(is_plain) {
        "be ASCII, without spaces and without a query"
    } else if !has_whole_escapes(text) {
        "have two hexadecimal digits after each `%`, as in `%20`"
    } else if text.contains("//") || text.split('/').any(is_dots) {
        "have no empty segment, no `.` and no `..`: Envoy resolves them before it compares paths"
    } else {
        return Ok(text.into());
    };
    let message = format!("`{text}` is not a valid path: it must {problem}");
    Err(value.report(value.error(codes::INVALID_VALUE, message).label("not a path")))
}

fn has_whole_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// The substitution for an expression with so many groups.
fn read_substitution(
    text: &str,
    value: Value<'_>,
    groups: u32,
) -> Result<Arc<str>, FindingReported> {
    let reported = |message: String, help: &str| {
        let finding = value.error(codes::INVALID_VALUE, message).label("here");
        Err(value.report(finding.help(help)))
    };
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#".contains(&byte);
    if !text.starts_with('/') {
        let message = format!("`{text}` does not begin with `/`, as paths do");
        return reported(message, "let the expression begin with the `/`, and a group behind it");
    }
    if text.len() > LONGEST_SUBSTITUTION || !text.bytes().all(is_plain) || !has_whole_escapes(text)
    {
        let message = format!("`{text}` is not a valid substitution");
        return reported(
            message,
            "write at most 256 characters of ASCII, without spaces or a query, and two hexadecimal digits after each `%`",
        );
    }
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            continue;
        }
        match letters.next().map(|behind| (behind, behind.to_digit(10))) {
            Some(('\\', _)) => {}
            Some((_, Some(group))) if group <= groups => {}
            Some((_, Some(group))) => {
                let message =
                    format!("the expression has {groups} groups, and none is `\\{group}`");
                return reported(message, "`\\1` is what the first pair of parentheses matches");
            }
            _ => {
                let message = "`\\` has the number of a group behind it".to_owned();
                return reported(message, "write `\\\\1` in double quotes, or `'\\1'`");
            }
        }
    }
    Ok(text.into())
}

/// A host in lower case, with a port where that is allowed.
fn read_host(value: Value<'_>, may_have_port: bool) -> Result<Arc<str>, FindingReported> {
    let text = value.string()?;
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let ends = [label.bytes().next(), label.bytes().next_back()];
        ends.into_iter().all(|byte| byte.is_some_and(is_letter))
            && label.bytes().all(|byte| is_letter(byte) || byte == b'-')
            && label.len() <= 63
    };
    let is_port = |port: &str| {
        may_have_port
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    if host.len() <= LONGEST_HOST && host.split('.').all(is_label) && port.is_none_or(is_port) {
        return Ok(text.into());
    }
    let message = format!("`{text}` is not a host");
    let finding = value.error(codes::INVALID_VALUE, message).label("not a host");
    Err(value.report(finding.help(if may_have_port {
        "write it in lower case, as in `books.example.com`, or `books.example.com:8080`"
    } else {
        "write it in lower case, as in `books.example.com`; `port` is a key of its own"
    })))
}
