//! A source of an ingress backend, and the sources that a backend may have.

use std::sync::Arc;

use ironmesh_catalog::{
    Finding, Hostname, IngressEntry, IngressPort, IngressSource, IpRange, Name, ServiceName,
    SpiffeId,
};

use super::super::part::{Reference, ReferenceTarget};
use super::backend::Meaning;
use super::refer;
use crate::codes;
use crate::suggest::did_you_mean;
use crate::table::{FindingReported, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Principal,
    Range,
    Service,
}

const KINDS: [(&str, Kind); 3] = [
    ("AuthenticatedPrincipal", Kind::Principal),
    ("IPRange", Kind::Range),
    ("Service", Kind::Service),
];

/// Reads one source. The default namespace of a service is `home`, which is `None` if it could not be read.
pub(super) fn read(
    item: Value<'_>,
    home: Option<&Name>,
    references: &mut Vec<Reference>,
) -> Result<IngressSource, FindingReported> {
    let mut table = item.table("a source of an ingress backend")?;
    let kind = table.required("kind", |value| value.word("kind of source", &KINDS));
    let name = table.required("name", |value| {
        Ok((
            match kind? {
                Kind::Principal => Named::Principal(read_principal(value)?),
                Kind::Range => Named::Range(read_range(value)?),
                Kind::Service => Named::Service(value.name()?),
            },
            value,
        ))
    });
    let namespace = table.optional("namespace", |value| match kind {
        Ok(Kind::Principal | Kind::Range) => Err(reject_namespace(value)),
        Ok(Kind::Service) | Err(FindingReported) => value.name(),
    });
    table.finish();
    let ((name, value), namespace) = (name?, namespace?);
    Ok(match name {
        Named::Principal(name) => IngressSource::Principal(name),
        Named::Range(range) => IngressSource::Range(range),
        Named::Service(name) => {
            let namespace = namespace.or_else(|| home.cloned()).ok_or(FindingReported)?;
            let service = ServiceName::new(namespace, name);
            references.push(refer(ReferenceTarget::Service(service.clone()), value));
            IngressSource::Service(service)
        }
    })
}

enum Named {
    Principal(Arc<str>),
    Range(IpRange),
    Service(Name),
}

/// A SPIFFE ID, or a DNS name as certificates contain it.
fn read_principal(value: Value<'_>) -> Result<Arc<str>, FindingReported> {
    let text = value.string()?;
    let invalid = |problem: &str, help: String| {
        let message = format!("`name` {problem}: `{text}`");
        let finding = value.error(codes::INVALID_NAME, message).label("not a principal");
        Err(value.report(finding.help(help)))
    };
    if text.contains('/') {
        return match SpiffeId::new(text) {
            Ok(id) if id.as_str() == text => Ok(text.into()),
            Ok(id) => invalid("is a SPIFFE ID without its scheme", did_you_mean(id.as_str())),
            Err(problem) => invalid(problem.problem, example()),
        };
    }
    match Hostname::new(text) {
        Ok(name) if name.is_wildcard() => {
            invalid("is a wildcard, which could match many callers", example())
        }
        Ok(name) => Ok(name.as_str().into()),
        Err(problem) => invalid(problem.problem, example()),
    }
}

fn example() -> String {
    "write a SPIFFE ID as in `spiffe://mesh.internal/ns/shop/sa/edge`, or a name as in \
     `edge.example.com`"
        .to_owned()
}

fn read_range(value: Value<'_>) -> Result<IpRange, FindingReported> {
    let text = value.string()?;
    let range: IpRange = text.parse().map_err(|_| {
        let message = format!("`name` must be a range of IP addresses: `{text}`");
        let finding = value.error(codes::INVALID_VALUE, message).label("not a range");
        value.report(finding.help(meant(text).map_or_else(
            || "write one as in `10.0.0.0/8` or `2001:db8::/32`".to_owned(),
            |range| did_you_mean(&range.to_string()),
        )))
    })?;
    if range.length() == 0 {
        let message = format!("the range `{text}` includes all callers");
        let finding = value.error(codes::OPEN_INGRESS, message).label("all addresses");
        return Err(value.report(finding.help("name the networks that callers connect from")));
    }
    Ok(range)
}

/// The valid range nearest to a text with bits beyond its length, or without a length.
fn meant(text: &str) -> Option<IpRange> {
    match text.split_once('/') {
        None => text.parse().ok().map(IpRange::of),
        Some((address, length)) => {
            IpRange::around(address.parse().ok()?, length.parse().ok().filter(|one| *one > 0)?)
        }
    }
}

fn reject_namespace(value: Value<'_>) -> FindingReported {
    let message = "`namespace` applies only to kind `Service`";
    let finding = value.error(codes::INVALID_VALUE, message).label("not allowed with this kind");
    value.report(finding.help("remove it"))
}

/// Reports the `sources`, written at `list`, that cannot take effect at `backend`, and missing sources: an
/// ingress that is open to all callers must be explicit.
pub(super) fn fit(
    sources: &[IngressSource],
    list: Value<'_>,
    backend: &IngressPort,
    meaning: &Meaning<'_>,
) -> Result<(), FindingReported> {
    let is_principal = |source: &&IngressSource| matches!(source, IngressSource::Principal(_));
    let name = &backend.port.service.name;
    let at = |code, spot, message| Finding::error(code, Some(spot), message);
    let finding = match (&backend.entry, sources.iter().find(is_principal), meaning.skips) {
        (IngressEntry::Http { .. }, Some(principal), _) => {
            let message =
                format!("`{name}` is called over `http`, where callers present no certificate");
            let help = "write `protocol = \"https\"`, or put backends over `http` into an ingress \
                        backend of their own";
            at(codes::INGRESS_CONTRADICTION, list.spot(), message)
                .label(format!("`{principal}` needs a client certificate"))
                .related(meaning.protocol.spot(), "this backend")
                .help(help)
        }
        (IngressEntry::Https { .. }, None, None) => {
            let message =
                format!("`{name}` requires client certificates, but `sources` names no principal");
            let help = "name the allowed callers (`kind = \"AuthenticatedPrincipal\"`); or, if callers have no certificate, set `skip_client_cert_validation = true`";
            at(codes::OPEN_INGRESS, list.spot(), message)
                .label("no principal")
                .related(meaning.protocol.spot(), "this backend")
                .help(help)
        }
        (IngressEntry::Https { .. }, Some(principal), Some(skips)) => {
            let message =
                format!("`{name}` requires no certificates, so no caller is `{principal}`");
            at(codes::INGRESS_CONTRADICTION, skips.spot(), message)
                .label("not required")
                .related(list.spot(), "the sources")
                .help("remove `skip_client_cert_validation`, or the principals")
        }
        // Sources without a certificate are named by address: there is at least one source.
        (IngressEntry::Http { .. }, None, _)
        | (IngressEntry::Https { .. }, Some(_), None)
        | (IngressEntry::Https { .. }, None, Some(_)) => return Ok(()),
    };
    Err(list.report(finding))
}
