//! The name of the caller in the answers of its own proxy.
//!
//! Accounts that see the same services share their routes, so no route names an account. Each listener for a proxy's own
//! applications has the name in its metadata, from which Envoy fills it in.

use ironmesh_catalog::ServiceAccount;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    DataSource, SubstitutionFormatString, data_source::Specifier,
    substitution_format_string::Format,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::Listener;
use ironmesh_xds_wire::pb::envoy::config::route::v3::{DirectResponseAction, route};
use ironmesh_xds_wire::pb::google::protobuf::value::Kind;

use crate::mesh_view::MeshView;
use crate::shape::own_metadata;

/// The caller, in the text of [`answer_naming_caller`]. The metadata has it as [`KEY`] of this namespace.
pub(crate) const CALLER: &str = "%METADATA(LISTENER:ironmesh:caller)%";

/// The key of the caller in the metadata of listeners.
const KEY: &str = "caller";

/// The listener for applications of a proxy that calls as `account`, with its name.
pub(crate) fn with_caller_name(
    listener: Listener,
    mesh: MeshView<'_>,
    account: &ServiceAccount,
) -> Listener {
    let name = mesh.trust_domain().workload(account).to_string();
    Listener { metadata: own_metadata(KEY, Kind::StringValue(name)), ..listener }
}

/// Answers with a text that may name the [`CALLER`]. Other text has no `%`: it consists of names and hosts.
pub(crate) fn answer_naming_caller(status: u32, text: String) -> route::Action {
    let text =
        DataSource { specifier: Some(Specifier::InlineString(text)), ..DataSource::default() };
    let format = SubstitutionFormatString {
        format: Some(Format::TextFormatSource(text)),
        ..SubstitutionFormatString::default()
    };
    route::Action::DirectResponse(DirectResponseAction {
        status,
        body_format: Some(format),
        ..DirectResponseAction::default()
    })
}
