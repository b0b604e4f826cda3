//! `azure_scale_set` and `azure_vm` of `[service.endpoints]`: queries to Azure.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::{AddressFamily, AzureMachines, AzureQuery, Finding, JoinRank, Port};

use crate::azure::{read_guid, read_resource_group, read_scale_set};
use crate::codes;
use crate::table::{FindingReported, Table, Value};

/// Reads the scale sets of a service with `ports`, which are `None` if they are not known.
pub(super) fn read_scale_sets(
    value: Value<'_>,
    ports: Option<&[Port]>,
) -> Result<Vec<AzureQuery>, FindingReported> {
    one_or_more(value, |value| {
        let mut table = value.table("a scale set query")?;
        let name = table.optional("name", read_scale_set);
        let rest = CommonKeys::read(&mut table, ports);
        let is_neither = matches!(name, Ok(None)) && rest.tags == Ok(None);
        table.finish();
        if is_neither {
            let finding = value.error(codes::MISSING_KEY, "the query selects no scale set");
            let help = "set its `name`, its `tags`, or both";
            return Err(value.report(finding.label("neither `name` nor `tags`").help(help)));
        }
        let name = name?;
        rest.query(AzureMachines::ScaleSet(name))
    })
}

/// Reads the virtual machines of a service with `ports`, which are `None` if they are not known.
pub(super) fn read_machines(
    value: Value<'_>,
    ports: Option<&[Port]>,
) -> Result<Vec<AzureQuery>, FindingReported> {
    one_or_more(value, |value| {
        let mut table = value.table("a virtual machine query")?;
        let rest = CommonKeys::read(&mut table, ports);
        let has_tags = !matches!(rest.tags, Ok(None));
        let missing = if has_tags { Ok(()) } else { Err(table.missing("tags")) };
        table.finish();
        missing?;
        rest.query(AzureMachines::VirtualMachines)
    })
}

/// Tags with their values.
type Tags = BTreeMap<Arc<str>, Arc<str>>;

/// The keys that both have in common.
struct CommonKeys {
    tags: Result<Option<Tags>, FindingReported>,
    subscription: Result<Option<Arc<str>>, FindingReported>,
    resource_group: Result<Option<Arc<str>>, FindingReported>,
    port: Result<Option<u16>, FindingReported>,
    address_family: Result<Option<AddressFamily>, FindingReported>,
    join: Result<Option<JoinRank>, FindingReported>,
}

impl CommonKeys {
    fn read(table: &mut Table<'_>, ports: Option<&[Port]>) -> Self {
        Self {
            tags: table.optional("tags", read_tags),
            subscription: table
                .optional("subscription", |value| read_guid(value, "a subscription")),
            resource_group: table.optional("resource_group", read_resource_group),
            port: table.optional("port", |value| super::read_port(value, ports)),
            address_family: table.optional("address_family", |value| {
                value.word("address family", &AddressFamily::ALL)
            }),
            join: table.optional("join", |value| value.word("rank", &JoinRank::ALL)),
        }
    }

    fn query(self, machines: AzureMachines) -> Result<AzureQuery, FindingReported> {
        Ok(AzureQuery {
            machines,
            subscription: self.subscription?,
            resource_group: self.resource_group?,
            tags: self.tags?.unwrap_or_default(),
            port: self.port?,
            address_family: self.address_family?.unwrap_or_default(),
            join: self.join?,
        })
    }
}

/// Reads one table, or a list of tables. Equal queries count once.
fn one_or_more(
    value: Value<'_>,
    mut read: impl FnMut(Value<'_>) -> Result<AzureQuery, FindingReported>,
) -> Result<Vec<AzureQuery>, FindingReported> {
    if !value.is_list() {
        return Ok(vec![read(value)?]);
    }
    let mut queries = value.at_least_one("leave it out where nothing is meant", read)?;
    queries.sort();
    queries.dedup();
    Ok(queries)
}

/// Reads at least one tag. Azure compares their names without case.
fn read_tags(value: Value<'_>) -> Result<Tags, FindingReported> {
    let mut tags = BTreeMap::new();
    let mut result = Ok(());
    for (spot, word) in value.table("tags")?.entries() {
        let name = word.key();
        let reported = |message: String| Finding::error(codes::INVALID_VALUE, Some(spot), message);
        let is_name = (1..=512).contains(&name.chars().take(513).count())
            && !name.contains(|c: char| c.is_control() || "<>%&\\?/".contains(c));
        if !is_name {
            let finding = reported(format!("no tag in Azure has this name: `{name}`"));
            let help = "the name of a tag has 1 to 512 characters, none of them `<`, `>`, `%`, `&`, `\\`, `?` or `/`";
            result = Err(word.report(finding.label("not a tag").help(help)));
            continue;
        }
        let Ok(text) = word.string() else {
            result = Err(FindingReported);
            continue;
        };
        if text.chars().take(257).count() > 256 || text.contains(char::is_control) {
            let message =
                "the value of a tag has at most 256 characters, and no control characters";
            result =
                Err(word.report(word.error(codes::INVALID_VALUE, message).label("not a value")));
        } else if tags.insert(Arc::from(name.to_lowercase()), Arc::from(text)).is_some() {
            let finding = reported(format!("the tag `{name}` is given twice"));
            let help = "Azure compares the names of tags without case";
            result = Err(word.report(finding.label("given again").help(help)));
        }
    }
    if tags.is_empty() && result.is_ok() {
        let finding = value.error(codes::EMPTY_LIST, "`tags` is empty").label("no tag");
        return Err(value.report(finding.help("the query would select all machines: name a tag")));
    }
    result.map(|()| tags)
}
