//! Changes of headers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::reserved_headers::{
    CLIENT_CERTIFICATE, ENVOY_HEADER_PREFIX, SAVED_OVERRIDE_PREFIX,
};
use ironmesh_catalog::{Finding, HeaderChanges, Spot};

use crate::codes;
use crate::policy::http_route_group::is_token;
use crate::table::{FindingReported, Value};

/// The most characters of a header's name.
const LONGEST_NAME: usize = 100;

/// The most characters of a header's value.
const LONGEST_VALUE: usize = 1024;

/// The most changed headers.
const MOST: usize = 32;

/// Headers that delimit or route a message, or that control its connection: only proxies may change them.
const PROXY_HEADERS: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Reads changes of headers.
pub(super) fn read_changes(value: Value<'_>) -> Result<HeaderChanges, FindingReported> {
    let mut table = value.table("a change of headers")?;
    let mut names = Names::default();
    let set = table.optional("set", |value| read_values(value, &mut names));
    let add = table.optional("add", |value| read_values(value, &mut names));
    let remove = table.optional("remove", |value| {
        let meaning = "leave `remove` out to take none off";
        value.at_least_one(meaning, |item| names.take(item.string()?, &item.spot(), item))
    });
    let one = match (table.get("set"), table.get("add"), table.get("remove")) {
        (None, None, None) => Err(table.missing("set` or `add` or `remove")),
        _ => Ok(()),
    };
    table.finish();
    one?;
    if names.0.len() > MOST {
        let message = format!("`{}` changes more than {MOST} headers", value.key());
        return Err(value.report(value.error(codes::INVALID_VALUE, message).label("too many")));
    }
    Ok(HeaderChanges {
        set: set?.unwrap_or_default(),
        add: add?.unwrap_or_default(),
        remove: remove?.map(BTreeSet::from_iter).unwrap_or_default(),
    })
}

type Values = BTreeMap<Arc<str>, Arc<str>>;

fn read_values(value: Value<'_>, names: &mut Names) -> Result<Values, FindingReported> {
    let table = value.table("headers")?;
    let mut values = Values::new();
    let mut result = Ok(());
    let mut is_empty = true;
    for (spot, header) in table.entries() {
        is_empty = false;
        let name = names.take(header.key(), &spot, header);
        match (name, read_value(header)) {
            (Ok(name), Ok(value)) => {
                values.insert(name, value);
            }
            _ => result = Err(FindingReported),
        }
    }
    if is_empty {
        let finding = value.error(codes::EMPTY_LIST, format!("`{}` is empty", value.key()));
        let help = format!("leave `{}` out to change none", value.key());
        return Err(value.report(finding.label("no header").help(help)));
    }
    result.map(|()| values)
}

fn read_value(value: Value<'_>) -> Result<Arc<str>, FindingReported> {
    let text = value.string()?;
    let is_plain = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if is_plain && text.trim() == text && (1..=LONGEST_VALUE).contains(&text.len()) {
        return Ok(text.into());
    }
    let message = format!(
        "the value of header `{}` must be 1 to {LONGEST_VALUE} characters of ASCII on one line, with no space round them",
        value.key()
    );
    Err(value.report(value.error(codes::INVALID_VALUE, message).label("invalid header value")))
}

/// The names that are given, with their spots.
#[derive(Default)]
struct Names(BTreeMap<Arc<str>, Spot>);

impl Names {
    /// Reads a header's name, to which `value` belongs, in lower case.
    fn take(
        &mut self,
        written: &str,
        spot: &Spot,
        value: Value<'_>,
    ) -> Result<Arc<str>, FindingReported> {
        let name: Arc<str> = written.to_lowercase().into();
        let error = |code, message: String| Finding::error(code, Some(spot.clone()), message);
        if !is_token(&name) || name.len() > LONGEST_NAME {
            let message = format!("`{written}` is not the name of a header");
            let finding = error(codes::INVALID_VALUE, message).label("not a header");
            let help = if name.starts_with(':') {
                "`rewrite` changes the path and the host"
            } else {
                "write a header as in `x-tier`"
            };
            return Err(value.report(finding.help(help)));
        }
        if let Some(why) = rejected(&name) {
            let message = format!("the header `{name}` is not changed by policy: {why}");
            let finding = error(codes::INVALID_VALUE, message).label("reserved header");
            let help = if *name == *"host" {
                "`rewrite = { host = … }` changes it"
            } else {
                "remove it"
            };
            return Err(value.report(finding.help(help)));
        }
        if let Some(first) = self.0.insert(Arc::clone(&name), spot.clone()) {
            let finding = error(codes::DUPLICATE_NAME, format!("header `{name}` is given twice"));
            let finding = finding.label("given again").related(first, "first given here");
            return Err(value.report(finding.help("name it once")));
        }
        Ok(name)
    }
}

/// The reason why policy may not change a header.
fn rejected(name: &str) -> Option<&'static str> {
    if name.starts_with(ENVOY_HEADER_PREFIX) || name.starts_with(SAVED_OVERRIDE_PREFIX) {
        Some("it controls the sidecars, which policy configures by its own keys")
    } else if name == CLIENT_CERTIFICATE {
        Some("the server's sidecar reports the caller's identity by it")
    } else if PROXY_HEADERS.contains(&name) {
        Some("the proxies on the path set it themselves")
    } else {
        None
    }
}
