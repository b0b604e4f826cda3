//! Reports of the ports that accept callers.

use ironmesh_catalog::Participation;
use ironmesh_config_language::{Document, load_documents};

use super::*;
use crate::register::AckedPorts;

const POLICY: &str = r#"
[[service]]
namespace = "shop"
name = "bookstore"
service_account = "store"
"#;

const NAME: &str = "80.bookstore.shop.mesh.internal";

#[test]
fn answer_states_whether_the_ports_are_recorded_and_the_account() {
    let mut world = world();
    let loaded = load_documents([Document::new("policy.toml", POLICY)]);
    let specification = loaded.specification;
    let state = PolicyState { specification, ..PolicyState::default() };
    let policy = watch::Sender::new(state).subscribe();
    let enroller = world.another_control_plane();
    world.enroller = Arc::new(MachineEnrollment { policy, ..enroller });
    let token = world.token_for(|_| {});
    let enrolled = world.join(&token, &request(), peer(5), AT_ONCE).unwrap();
    let proxy = verified(&enrolled.certificate);
    let report = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let ports = [("shop/store".parse().unwrap(), names)].into();
        world.enroller.record_serving_report(&proxy, ServingReport { ports }, peer(5), world.now)
    };
    let answer = report(&[]).unwrap();
    assert_eq!(answer, ServingAnswer { recorded: true, account: "shop/store".parse().ok() });
    assert!(!report(&[NAME]).unwrap().recorded, "the reconciler has not recorded it yet");
    let ports = Participation([("shop/bookstore".parse().unwrap(), 80)].into());
    let register = &world.enroller.register;
    register.record_progress([(enrolled.id, AckedPorts::Exactly(&ports).into())]).unwrap();
    assert!(report(&[NAME]).unwrap().recorded);
    assert!(!report(&[NAME, "81.bookstore.shop.mesh.internal"]).unwrap().recorded);

    let revocation = Revocation::by_operator(world.now, None);
    register.revoke(&[enrolled.id], &revocation).unwrap();
    let error = report(&[NAME]).unwrap_err();
    assert!(matches!(error, EnrollmentError::Revoked(_)), "{error:?}");
}
