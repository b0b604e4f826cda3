//! The version of Envoy, as Envoy states it.

use ironmesh_sidecar::ProgramVersion;

/// The version in Envoy's long form, `HASH/1.40.0/Clean/RELEASE/BoringSSL`.
pub(crate) fn version_in_build(build: &str) -> Option<ProgramVersion> {
    let mut parts = build.trim().split('/');
    let hash = parts.next().filter(|hash| hash.bytes().all(|b| b.is_ascii_alphanumeric()))?;
    let version = parts.next()?.parse().ok()?;
    // Commit, version, state of the source, kind of build, TLS library.
    (!hash.is_empty() && parts.count() >= 2).then_some(version)
}

/// The version in the output of `envoy --version`; `None` if it is that of a different program.
pub(crate) fn version_in_output(output: &str) -> Option<ProgramVersion> {
    output.lines().find_map(|line| version_in_build(line.split_once(" version: ")?.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_envoys_output_only() {
        let read = |output: &str| version_in_output(output).map(|version| version.to_string());
        let hash = "9e5580933739775e8bce696a57a2e1bc99368f23";
        let of = |version| format!("\n/usr/bin/envoy  version: {hash}/{version}\n\n");
        assert_eq!(read(&of("1.40.0/Clean/RELEASE/BoringSSL")).as_deref(), Some("1.40.0"));
        assert_eq!(read(&of("1.41.0-dev/Modified/DEBUG/BoringSSL")).as_deref(), Some("1.41.0"));
        for other in ["", "bash, version 5.2.15", "nginx version: nginx/1.22.1"] {
            assert_eq!(read(other), None, "{other}");
        }
        assert_eq!(read(&of("1.40/Clean/RELEASE/BoringSSL")), None);
    }
}
