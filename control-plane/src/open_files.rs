//! The open-files limit of this process: each connection of a proxy is one.

use ironmesh_xds_server::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most open files besides the connections of proxies: the store, listeners, watches and readers of the admin API.
const OTHERS: u64 = 256;

/// Raises the soft open-files limit to the hard one. The soft limit is 1,024 on most systems, for programs that use
/// `select`. Logs a warning if that is too low for the connection limit.
pub(super) fn raise_limit(limits: &Limits) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, "cannot raise the open-files limit to the hard limit");
    }
    // (None is no limit.)
    let Some(may) = getrlimit(Resource::Nofile).current else { return };
    if let Some(connections) = too_low(may, limits) {
        tracing::warn!(
            open_files = may,
            possible_connections = connections,
            connection_limit = limits.connections,
            action = "raise it: `LimitNOFILE=` in the systemd unit, or `ulimit -Hn` in a shell",
            "the open-files limit is too low for the connection limit"
        );
    }
}

/// How many connections the limit allows, if these are fewer than the connection limit.
fn too_low(may: u64, limits: &Limits) -> Option<u64> {
    let connections = may.saturating_sub(OTHERS);
    (connections < u64::try_from(limits.connections).unwrap_or(u64::MAX)).then_some(connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_limit_below_the_connection_limit_is_too_low() {
        let limits = Limits { connections: 1000, ..Limits::default() };
        assert_eq!(too_low(1256, &limits), None);
        assert_eq!(too_low(1255, &limits), Some(999));
        assert_eq!(too_low(100, &limits), Some(0));
    }
}
