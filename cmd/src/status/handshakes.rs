//! What the status says of TLS handshakes that failed. Often they are all that is seen of a proxy that cannot
//! connect.

use ironmesh_admin::{HandshakesView, ProxyView, RejectedAddress};
use ironmesh_catalog::text::escape_line;

use super::{NAMED, counted};

/// Addresses with failed handshakes in the last minutes: those of enrolled proxies that are not connected and try
/// again, each with what to do; and notes about all others.
pub(super) fn failed(
    handshakes: &HandshakesView,
    proxies: &[ProxyView],
) -> (Vec<String>, Vec<String>) {
    let (mut wrong, mut notes) = (Vec::new(), Vec::new());
    for one in &handshakes.recent {
        let RejectedAddress { address, count, reason, at } = one;
        let handshakes = counted(*count, "TLS handshake", "TLS handshakes");
        let reason = escape_line(reason);
        let words = format!("{handshakes} with {address} failed, the last at {at:.0}: {reason}");
        let is_cut_off = |proxy: &&ProxyView| {
            let record = &proxy.record;
            let is_there =
                record.mesh_address.ip() == *address || record.addresses.contains(address);
            is_there && matches!(&*proxy.state, "away" | "unclaimed" | "expired" | "forfeit")
        };
        match proxies.iter().find(is_cut_off) {
            Some(proxy) if *count > 1 => wrong.push(format!(
                "{words}\nproxy {} is enrolled at this address and is {}; the log of its Envoy has the error of its \
                 xDS connection",
                proxy.record.id, proxy.state
            )),
            _ => notes.push(words),
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
