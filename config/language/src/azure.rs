//! The syntax of Azure's names, as Azure defines it.
//!
//! Names become part of URLs and of queries to Azure, so policy with an invalid name is rejected before any
//! request.

use std::sync::Arc;

use crate::codes;
use crate::table::{FindingReported, Value};

/// The names of subscriptions: GUIDs.
pub(crate) const SUBSCRIPTION: &str =
    r"^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$";

/// The names of resource groups. The reader also rejects a full stop at the end.
pub(crate) const RESOURCE_GROUP: &str = r#"^[^\s/?#%&'"`\\|;:<>@!$^*+=,{}~\[\]]{1,90}$"#;

/// The names of scale sets. The reader also rejects a `-` at the end.
pub(crate) const SCALE_SET: &str = r"^[0-9A-Za-z][0-9A-Za-z_-]{0,63}$";

/// The names of tags.
pub(crate) const TAG: &str = r"^[^<>%&\\?/\x00-\x1F\x7F-\x9F]{1,512}$";

/// The values of tags.
pub(crate) const TAG_VALUE: &str = r"^[^\x00-\x1F\x7F-\x9F]{0,256}$";

/// Reads the GUID of a subscription, an application or a tenant; `what` names it, with its article.
pub fn read_guid(value: Value<'_>, what: &str) -> Result<Arc<str>, FindingReported> {
    let text = value.string()?;
    let is_hexadecimal = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let lengths = text.split('-').map(|part| if is_hexadecimal(part) { part.len() } else { 0 });
    if lengths.eq([8, 4, 4, 4, 12]) {
        return Ok(text.to_ascii_lowercase().into());
    }
    let message = format!("`{}` must be the GUID of {what}: `{text}`", value.key());
    let finding = value.error(codes::INVALID_VALUE, message).label("not a GUID");
    Err(value.report(finding.help("write it as in `00000000-1111-2222-3333-444444444444`")))
}

/// Reads the name of a resource group.
pub fn read_resource_group(value: Value<'_>) -> Result<Arc<str>, FindingReported> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '(' | ')');
    let text = value.string()?;
    let is_name = (1..=90).contains(&text.chars().take(91).count())
        && text.chars().all(is_part)
        && !text.ends_with('.');
    if is_name {
        return Ok(text.to_lowercase().into());
    }
    let help = "a resource group has 1 to 90 letters, digits, and of `-`, `_`, `.`, `(` and `)`, and does \
                not end with `.`";
    Err(reject(value, text, "a resource group", help))
}

/// Reads the name of a scale set.
pub(crate) fn read_scale_set(value: Value<'_>) -> Result<Arc<str>, FindingReported> {
    let text = value.string()?;
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_name = (1..=64).contains(&text.len())
        && text.bytes().all(is_part)
        && !text.starts_with(['-', '_'])
        && !text.ends_with('-');
    if is_name {
        return Ok(text.to_ascii_lowercase().into());
    }
    let help = "a scale set has 1 to 64 of `a-z`, `A-Z`, `0-9`, `-` and `_`, begins with a letter or a digit, \
                and does not end with `-`";
    Err(reject(value, text, "a scale set", help))
}

fn reject(value: Value<'_>, text: &str, what: &str, help: &str) -> FindingReported {
    let message = format!("`{}` must be the name of {what} in Azure: `{text}`", value.key());
    let finding = value.error(codes::INVALID_VALUE, message).label("no such name");
    value.report(finding.help(help))
}
