//! How many files this process may have open: each connection of a proxy is one.

use ironmesh_xds_server::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many are open besides the connections of proxies: the store, listeners, watches, readers of the
/// admin API.
const OTHERS: u64 = 256;

/// Raises the limit of open files as far as this process may: to the hard one. The soft one is 1,024 on
/// most systems, for the sake of programs that use `select`. Says so where it is too low all the same.
pub(super) fn raise_limit(limits: &Limits) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, "cannot raise the limit of open files to the hard limit");
    }
    // (None is no limit.)
    let Some(may) = getrlimit(Resource::Nofile).current else { return };
    if let Some(connections) = too_low(may, limits) {
        tracing::warn!(
            limit = may,
            connections,
            most = limits.connections,
            "the limit of open files leaves room for fewer connections of proxies than there may be: \
             raise it (systemd: LimitNOFILE=, a shell: ulimit -Hn)"
        );
    }
}

/// How many connections there can be where that is less than there may be.
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
