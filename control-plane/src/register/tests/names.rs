//! Names: no two proxies in use have one, whatever control planes do at the same moment.

use ironmesh_catalog::ProxyName;
use proptest::prelude::*;

use super::*;
use crate::proxy_names::{free_name, name_like, with_unnamed};

fn name(text: &str) -> ProxyName {
    text.parse().unwrap()
}

fn named(number: u8, text: &str, now: Timestamp) -> JoinRecord {
    JoinRecord { name: Some(name(text)), ..record(number, now) }
}

/// Control planes on one store.
fn registers<const N: usize>(now: Timestamp) -> (TempDir, Arc<Store>, [Register; N]) {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder);
    let open = |_| Register::open(Arc::<Store>::clone(&store), now).unwrap();
    let registers = std::array::from_fn(open);
    (folder, store, registers)
}

/// Enrolls a machine that chooses this name. Returns the name that it gets.
fn join(register: &Register, number: u8, wanted: &str, now: Timestamp) -> ProxyName {
    let mut given = None;
    let joined: Result<(), StoreError> = register.enroll(|present| {
        let name = name_like(&name(wanted), present, now);
        given = Some(name.clone());
        let new = JoinRecord { name: Some(name), ..record(number, now) };
        Ok(with_unnamed(vec![new], present, now))
    });
    joined.unwrap();
    given.unwrap()
}

/// The names of the stored proxies that are not revoked.
fn names(store: &Arc<Store>) -> Vec<String> {
    let records = stored(store).into_iter().map(|stored| stored.value);
    let records = records.filter(|record| record.revoked.is_none());
    let mut names: Vec<_> =
        records.filter_map(|record| record.name).map(|name| name.to_string()).collect();
    names.sort();
    names
}

fn name_records(store: &Arc<Store>) -> Vec<(String, u128)> {
    let all = RecordTable::<NamedProxy>::new(Arc::<Store>::clone(store)).list().unwrap();
    let one = |stored: Versioned<NamedProxy>| {
        (stored.value.name.to_string(), stored.value.proxy.0.as_u128())
    };
    all.into_iter().map(one).collect()
}

#[test]
fn machines_of_one_name_get_different_names_at_two_control_planes() {
    let now = Timestamp::now();
    let (_folder, store, [one, other]) = registers(now);
    for number in 1..=12 {
        join(&one, number, "vm1", now);
    }
    // It has followed nothing, and learns of all of them by the first conflict.
    assert!(other.all_records().is_empty());
    assert_eq!(join(&other, 20, "vm1", now), name("vm1-13"));
    assert_eq!(join(&other, 21, "vm2", now), name("vm2"));
    assert_eq!(names(&store).len(), 14);
}

#[test]
fn name_of_an_operator_is_an_error_at_the_second_control_plane() {
    let now = Timestamp::now();
    let (_folder, store, [one, other]) = registers(now);
    one.add(named(1, "vm1", now)).unwrap();
    let refused = other.enroll(|present| match free_name(&name("vm1"), present, now) {
        Ok(_) => Ok(vec![named(2, "vm1", now)]),
        Err(error) => Err(StoreError::new("name the proxy", std::io::Error::other(error))),
    });
    assert!(chain(&refused.unwrap_err()).contains("belongs to the proxy"));
    assert_eq!(names(&store), ["vm1"]);
}

#[test]
fn threads_of_two_control_planes_give_each_name_once() {
    const EACH: u8 = 20;
    let now = Timestamp::now();
    let (_folder, store, registers) = registers::<2>(now);
    std::thread::scope(|threads| {
        for (register, first) in registers.iter().zip([1, 101]) {
            threads.spawn(move || {
                for number in first..first + EACH {
                    join(register, number, "vm1", now);
                }
            });
        }
    });
    let mut names = names(&store);
    assert_eq!(names.len(), 2 * usize::from(EACH));
    names.dedup();
    assert_eq!(names.len(), 2 * usize::from(EACH));
}

#[test]
fn name_of_an_earlier_version_is_respected() {
    let now = Timestamp::now();
    let (folder, store) = {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        (folder, store)
    };
    let put = RecordChange::put(&named(1, "vm1", now), ExpectedVersion::Absent).unwrap();
    store.commit(&[put]).unwrap();
    let register = Register::open(Arc::<Store>::clone(&store), now).unwrap();
    assert_eq!(join(&register, 2, "vm1", now), name("vm1-2"));
    assert_eq!(name_records(&store), [("vm1-2".to_owned(), 2)]);
    drop(folder);
}

#[test]
fn name_of_a_revoked_proxy_is_given_again_and_ends_with_the_record() {
    let now = Timestamp::now();
    let (_folder, store, [one, other]) = registers(now);
    one.add(named(1, "vm1", now)).unwrap();
    one.revoke(&[record(1, now).id], &Revocation::by_operator(now, None)).unwrap();
    assert_eq!(join(&other, 2, "vm1", now), name("vm1"));
    assert_eq!(name_records(&store), [("vm1".to_owned(), 2)]);
    one.remove(&[record(1, now).id]).unwrap();
    assert_eq!(name_records(&store), [("vm1".to_owned(), 2)], "it is that of the second proxy");
    other.remove(&[record(2, now).id]).unwrap();
    assert_eq!((names(&store), name_records(&store)), (vec![], vec![]));
}

#[test]
fn renewed_proxy_lacks_a_name_given_to_another_proxy() {
    let now = Timestamp::now();
    let (_folder, store, [one, other]) = registers(now);
    one.add(named(1, "vm1", now)).unwrap();
    let later = now + SignedDuration::from_hours(24 * 366);
    assert_eq!(join(&other, 2, "vm1", later), name("vm1"));
    // The first control plane still shows the name: its renewal meets a conflict.
    let renewed: Result<(), StoreError> = one.enroll(|present| {
        let known = present.get(&record(1, now).id).unwrap();
        let certificate_expires_at = later + SignedDuration::from_hours(24);
        Ok(vec![JoinRecord { certificate_expires_at, ..(**known).clone() }])
    });
    renewed.unwrap();
    assert!(one.get(record(1, now).id).unwrap().is_in_use(later));
    assert_eq!(one.get(record(1, now).id).unwrap().name, None);
    assert_eq!(names(&store), ["vm1"]);
}

/// A step of one of the control planes.
#[derive(Debug, Clone)]
enum Step {
    /// A machine that wants this name joins, after the steps of others between its decision and its commit.
    Join {
        at: usize,
        wanted: usize,
        clock: i64,
        between: Vec<(usize, usize)>,
    },
    Revoke {
        at: usize,
        number: usize,
    },
    Renew {
        at: usize,
        number: usize,
        clock: i64,
    },
    Remove {
        at: usize,
        number: usize,
    },
    Follow {
        at: usize,
    },
}

const CONTROL_PLANES: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let at = 0..CONTROL_PLANES;
    let number = 0_usize..40;
    let clock = prop_oneof![Just(0_i64), Just(400), Just(800)];
    let between = prop::collection::vec((0..CONTROL_PLANES, 0_usize..3), 0..3);
    prop_oneof![
        4 => (at.clone(), 0_usize..3, clock.clone(), between)
            .prop_map(|(at, wanted, clock, between)| Step::Join { at, wanted, clock, between }),
        1 => (at.clone(), number.clone()).prop_map(|(at, number)| Step::Revoke { at, number }),
        1 => (at.clone(), number.clone(), clock)
            .prop_map(|(at, number, clock)| Step::Renew { at, number, clock }),
        1 => (at.clone(), number).prop_map(|(at, number)| Step::Remove { at, number }),
        1 => at.prop_map(|at| Step::Follow { at }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Also with clocks that differ by more than the lifetime of certificates.
    #[test]
    fn proxies_that_are_not_revoked_never_share_a_name(steps in prop::collection::vec(step(), 1..25)) {
        const WANTED: [&str; 3] = ["vm1", "vm2", "vm1-2"];
        let start = Timestamp::now();
        let (_folder, store, registers) = registers::<CONTROL_PLANES>(start);
        let days = |days: i64| start + SignedDuration::from_hours(24 * days);
        let mut next = 0;
        let mut new = || { next += 1; next };
        let id = |number: usize| record(u8::try_from(number).unwrap(), start).id;
        for step in steps {
            match step {
                Step::Join { at, wanted, clock, between } => {
                    let (number, now) = (new(), days(clock));
                    let mut between: Vec<_> =
                        between.into_iter().filter(|(other, _)| *other != at).map(|one| (one, new())).collect();
                    let joined: Result<(), StoreError> = registers[at].enroll(|present| {
                        let name = name_like(&name(WANTED[wanted]), present, now);
                        for ((other, wanted), number) in between.drain(..) {
                            join(&registers[other], number, WANTED[wanted], start);
                        }
                        let new = JoinRecord { name: Some(name), ..record(number, now) };
                        Ok(with_unnamed(vec![new], present, now))
                    });
                    joined.unwrap();
                }
                Step::Revoke { at, number } => {
                    let revocation = Revocation::by_operator(start, None);
                    registers[at].revoke(&[id(number)], &revocation).unwrap();
                }
                Step::Renew { at, number, clock } => {
                    let renewed: Result<(), StoreError> = registers[at].enroll(|present| {
                        let known = present.get(&id(number)).into_iter();
                        let certificate_expires_at = days(clock + 365);
                        Ok(known.map(|known| JoinRecord { certificate_expires_at, ..(**known).clone() }).collect())
                    });
                    renewed.unwrap();
                }
                Step::Remove { at, number } => {
                    if registers[at].get(id(number)).is_some() {
                        registers[at].remove(&[id(number)]).unwrap();
                    }
                }
                Step::Follow { at } => {
                    let known: Vec<_> = stored(&store).into_iter().map(|one| one.value.id).collect();
                    registers[at].reread(known).unwrap();
                }
            }
            let mut names = names(&store);
            let all = names.len();
            names.dedup();
            prop_assert_eq!(names.len(), all, "{:?}", names);
        }
    }
}
