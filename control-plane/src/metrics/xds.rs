//! The metrics of the xDS listener and its streams.

use ironmesh_xds_server::{CloseReason, ConnectionRejection, Counters};
use ironmesh_xds_wire::ResourceType;

use super::families::Families;

type Read = fn(&Counters, ResourceType) -> u64;

const COUNTERS: [(&str, &str, Read); 4] = [
    ("xds_pushes", "Responses sent", Counters::pushes),
    ("xds_acks", "Responses ACKed", Counters::acks),
    ("xds_nacks", "Responses NACKed", Counters::nacks),
    ("xds_late_answers", "Responses not answered in time", Counters::late),
];

pub(super) fn encode(
    families: &mut Families<'_>,
    counters: &Counters,
) -> Result<(), std::fmt::Error> {
    let help = "Resource sets that were published to proxies";
    families.counter("xds_sets", help, counters.sets())?;
    for (name, help, read) in COUNTERS {
        let of_type =
            |one: ResourceType| ([one.to_string().replace(' ', "_")], read(counters, one));
        families.counters(name, help, ["type"], ResourceType::ALL.map(of_type))?;
    }
    let rejected =
        ConnectionRejection::ALL.map(|why| ([why.word()], counters.connections_rejected(why)));
    let help = "Connections rejected, by reason";
    families.counters("xds_connections_rejected", help, ["reason"], rejected)?;
    let closed = CloseReason::ALL.map(|why| ([why.word()], counters.streams_closed(why)));
    let help = "Streams closed by the control plane, by reason";
    families.counters("xds_streams_closed", help, ["reason"], closed)
}
