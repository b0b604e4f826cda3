//! The renewal of the proxy's certificate because the settings name other addresses of the control plane.

use ironmesh_enrollment::ControlPlaneAddress;
use ironmesh_sidecar_folder::EnrollmentState;

use super::*;
use crate::{RenewOutcome, RenewWhen, renew};

#[tokio::test]
async fn renewal_stores_the_addresses_of_the_settings_once() {
    let control_plane = TestControlPlane::start(LONG).await;
    let folder = control_plane.folder();
    let run = async |addresses: &[ControlPlaneAddress]| {
        renew(folder, RenewWhen::Due, Timestamp::now(), addresses, |_, _| {}).await.unwrap()
    };
    let stored = || {
        let state = fs::read_to_string(folder.join("enrollment.json")).unwrap();
        serde_json::from_str::<EnrollmentState>(&state).unwrap().addresses
    };
    let certificate = || fs::read_to_string(folder.join("proxy.crt")).unwrap();
    let before = (certificate(), stored());
    let not_due = |outcome: &RenewOutcome| matches!(outcome, RenewOutcome::NotDue { .. });
    assert!(not_due(&run(&[control_plane.address()]).await), "the address is that of the folder");
    assert!(not_due(&run(&[]).await), "the settings name none");
    assert_eq!((certificate(), stored()), before);

    // A control plane was added.
    let added = ControlPlaneAddress { host: "10.0.0.2".to_owned(), port: 15129 };
    let both = [control_plane.address(), added];
    let renewed = run(&both).await;
    assert!(matches!(renewed, RenewOutcome::Renewed { .. }), "{renewed:?}");
    assert_ne!(certificate(), before.0);
    let given: Vec<_> = both.iter().map(|one| (one.host.clone(), one.port)).collect();
    assert_eq!(stored(), EnrollmentState::new(&given, None).addresses);
    assert!(not_due(&run(&both).await), "once");
}
