//! Whether the folder of a proxy is one of the mesh in the settings.

use ironmesh_enrollment::CaHash;
use ironmesh_sidecar::envoy;
use ironmesh_sidecar_folder::{ENROLLMENT, EnrollmentState};

use crate::error::AgentError;
use crate::settings::AgentSettings;

/// The hashes of these roots as text; none if they are unusable, which their users report.
pub(crate) fn ca_hashes(roots: &str) -> Vec<String> {
    let hashes = CaHash::of_roots(roots).unwrap_or_default();
    hashes.iter().map(ToString::to_string).collect()
}

/// Fails if the folder is of another mesh than the settings. The settings may have the hash of a CA that was replaced since
/// the enrollment.
pub(crate) fn check_mesh(settings: &AgentSettings) -> Result<(), AgentError> {
    let folder = &settings.folder;
    let Ok(roots) = fs_err::read_to_string(folder.join(envoy::ROOTS)) else { return Ok(()) };
    let state = fs_err::read_to_string(folder.join(ENROLLMENT)).ok();
    let state = state.and_then(|text| EnrollmentState::parse(&text).ok());
    let mut known = ca_hashes(&roots);
    known.extend(state.map(|state| state.ca_hashes).unwrap_or_default());
    let expected: Vec<_> = settings.ca_hashes.iter().map(ToString::to_string).collect();
    if expected.is_empty() || known.is_empty() || expected.iter().any(|hash| known.contains(hash)) {
        return Ok(());
    }
    known.sort();
    known.dedup();
    Err(AgentError::OtherMesh { folder: folder.clone(), known, expected })
}

#[cfg(test)]
mod tests {
    use fs_err as fs;

    use super::*;

    #[test]
    fn folder_is_of_the_mesh_if_the_settings_have_a_present_or_replaced_ca() {
        let root = tempfile::tempdir().unwrap();
        let hash = |digit: &str| format!("sha256:{}", digit.repeat(64));
        let text = format!("folder = {:?}\nca_hash = [{:?}]", root.path(), hash("a"));
        let settings = AgentSettings::parse(&text).unwrap();
        check_mesh(&settings).unwrap();
        fs::write(root.path().join(envoy::ROOTS), "").unwrap();
        for (stored, is_of_mesh) in [(hash("a"), true), (hash("b"), false)] {
            let state = EnrollmentState {
                ca_hashes: vec![stored, hash("c")],
                ..EnrollmentState::new(&[], None)
            };
            fs::write(root.path().join(ENROLLMENT), state.to_json()).unwrap();
            assert_eq!(check_mesh(&settings).is_ok(), is_of_mesh);
        }
    }
}
