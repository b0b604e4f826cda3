//! The status of failed TLS handshakes. For a proxy that cannot connect they are often the only trace.

use ironmesh_api::{HandshakesView, ProxyView, RejectedAddress};
use ironmesh_catalog::codes;
use ironmesh_catalog::text::escape_line;

use super::silenced::Silenced;
use super::{NAMED, counted};
use crate::proxies::state_text;

/// Returns problems and notes about the recently failed handshakes of each address.
///
/// A problem is the address of an enrolled proxy that is not connected and has failed repeatedly. All others are
/// notes.
pub(super) fn failed(
    handshakes: &HandshakesView,
    proxies: &[ProxyView],
    silenced: &Silenced,
) -> (Vec<String>, Vec<String>) {
    let (mut wrong, mut notes) = (Vec::new(), Vec::new());
    for one in &handshakes.recent {
        let RejectedAddress { address, count, reason, at } = one;
        let handshakes = counted(*count, "TLS handshake", "TLS handshakes");
        let reason = escape_line(reason);
        let text = format!("{handshakes} with {address} failed, the last at {at:.0}: {reason}");
        match proxies.iter().find(|proxy| proxy.is_cut_off_at(*address)) {
            Some(proxy)
                if one.is_repeated()
                    && silenced.hides(codes::HANDSHAKES_FAIL, proxy.record.id) => {}
            Some(proxy) if one.is_repeated() => wrong.push(format!(
                "{text}\nproxy {} is enrolled at this address, in state {}; the log of its Envoy has the error of its \
                 xDS connection",
                proxy.record.name, state_text(&proxy.state)
            )),
            _ => notes.push(text),
        }
    }
    let more = notes.len().saturating_sub(NAMED);
    if more > 0 {
        notes.truncate(NAMED);
        let more = counted(more.try_into().unwrap_or(u64::MAX), "address", "addresses");
        notes.push(format!("TLS handshakes with {more} more failed"));
    }
    (wrong, notes)
}
