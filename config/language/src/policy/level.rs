//! `service` and `scope`: the services to which an object with traffic settings applies.

use ironmesh_catalog::{Finding, Level, Name, ServiceName, Spot};

use super::part::{Id, Part, Reference, ReferenceTarget};
use crate::codes;
use crate::table::{FindingReported, Table};

/// The keys of a level, before the namespace of the object is known.
pub(super) struct Written {
    service: Result<Option<(Name, Spot)>, FindingReported>,
    is_mesh: Result<bool, FindingReported>,
}

/// The values of `scope`, and whether each means the mesh.
pub(crate) const SCOPES: [(&str, bool); 2] = [("namespace", false), ("mesh", true)];

/// Reads the two keys.
pub(super) fn read(table: &mut Table<'_>) -> Written {
    let service = table.optional("service", |value| Ok((value.name()?, value.spot())));
    let scope = table.optional("scope", |value| Ok((value.word("scope", &SCOPES)?, value.spot())));
    let is_mesh = match (&service, scope) {
        (Ok(Some((_, service))), Ok(Some((_, scope)))) => {
            let message = "`scope` has no meaning for an object of one service";
            let finding = Finding::error(codes::INVALID_VALUE, Some(scope), message);
            let finding = finding
                .label("applies to more services")
                .related(service.clone(), "applies to this service");
            Err(table.report(finding.help("leave one of the two out")))
        }
        (_, scope) => scope.map(|scope| scope.is_some_and(|(is_mesh, _)| is_mesh)),
    };
    Written { service, is_mesh }
}

impl Written {
    /// The level of the object `id`. Adds the reference to a service that it names to `part`.
    pub(super) fn level(self, id: &Id, part: &mut Part) -> Result<Level, FindingReported> {
        let service = self.service.map(|service| {
            service.map(|(name, spot)| {
                let service = ServiceName::new(id.namespace.clone(), name);
                let referenced = ReferenceTarget::Service(service.clone());
                part.references.push(Reference { referenced, spot });
                service
            })
        });
        match (service?, self.is_mesh?) {
            (Some(service), _) => Ok(Level::Service(service)),
            (None, false) => Ok(Level::Namespace(id.namespace.clone())),
            (None, true) => Ok(Level::Mesh),
        }
    }
}
