//! The access matrix of random policies equals the verdicts of `policy explain`.

use std::collections::BTreeSet;

use ironmesh_analysis::Question;
use ironmesh_analysis::access::{PortAccess, allows_everything, granting_rules};
use ironmesh_analysis::difference::CallerGroup;
use ironmesh_analysis::verdict::{Answer, GrantingRule, VerdictBasis, verdict};
use ironmesh_catalog::{ServiceAccount, ServicePort, Snapshot};

use super::random::{self, CALLERS};
use super::{RandomMesh, rand_seed};

/// The number of policies.
const POLICIES: u64 = 8;

/// The number of requests of each caller to each port.
const REQUESTS: usize = 4;

/// What the matrix has for one caller and one port.
#[derive(Debug, PartialEq, Eq)]
struct Cell {
    is_allowed: bool,
    rules: Vec<GrantingRule>,
}

impl Cell {
    /// The cell of the port, and whether it allows all traffic.
    fn of(snapshot: &Snapshot, caller: &ServiceAccount, port: &ServicePort) -> (Self, bool) {
        let service = snapshot.service(&port.service).unwrap();
        let port = service.port(port.port).unwrap();
        let PortAccess { open_to, granted } = PortAccess::of(snapshot, service, port);
        let is_open = match open_to {
            Some(CallerGroup::All) => true,
            Some(CallerGroup::Namespace(namespace)) => caller.namespace == namespace,
            Some(CallerGroup::Account(_)) | None => false,
        };
        let grants = granted.get(caller).map_or(&[][..], Vec::as_slice);
        let rules = grants.iter().flat_map(|grant| granting_rules(snapshot, grant, port));
        let rules: Vec<_> = rules.collect();
        let all = is_open || grants.iter().any(|grant| allows_everything(snapshot, grant, port));
        (Self { is_allowed: is_open || !rules.is_empty(), rules }, all)
    }
}

#[test]
fn access_matrix_equals_explain_of_random_policies() {
    let seed = rand_seed();
    let mut seen = BTreeSet::new();
    for number in 0..POLICIES {
        let mut mesh = RandomMesh::new(seed.wrapping_add(number));
        // HTTP routes redirect and rewrite calls in the callers' sidecars, whatever policy allows.
        let snapshot = mesh.mesh_port_snapshot.clone();
        let services = snapshot.specification.services.values();
        let ports = services.flat_map(|service| service.service_ports());
        for (port, _) in ports {
            for caller in CALLERS {
                let caller = caller.parse().unwrap();
                mesh.compare(&snapshot, &caller, &port, &mut seen);
            }
        }
    }
    // Guards the test itself: the policies had all kinds of cells.
    let kinds = ["all", "allowed by mode", "denied", "some", "split"];
    assert_eq!(seen, BTreeSet::from(kinds), "seed {seed}");
}

impl RandomMesh {
    fn compare(
        &mut self,
        snapshot: &Snapshot,
        caller: &ServiceAccount,
        port: &ServicePort,
        seen: &mut BTreeSet<&'static str>,
    ) {
        let mut question = Question {
            caller: caller.clone(),
            service: port.service.clone(),
            port: Some(port.port),
            request: None,
        };
        let explained = verdict(snapshot, &question, VerdictBasis::Mesh).unwrap();
        let about = format!("seed {}: {caller} to {port}: {explained:#?}", self.seed);
        for destination in &explained.destinations {
            // A call of a subset is a call of its service.
            let (cell, is_all) =
                Cell::of(snapshot, caller, &snapshot.served_port(&destination.port));
            let expected = &destination.port_verdict;
            let expected = Cell { is_allowed: expected.allowed, rules: expected.by.clone() };
            assert_eq!(cell, expected, "{about}\n{}", self.policy);
            seen.insert(match (cell.is_allowed, cell.rules.is_empty(), is_all) {
                (false, _, _) => "denied",
                (true, true, _) => "allowed by mode",
                (true, false, true) => "all",
                (true, false, false) => "some",
            });
        }
        if !explained.splits.is_empty() {
            seen.insert("split");
            return;
        }
        let (cell, is_all) = Cell::of(snapshot, caller, &snapshot.served_port(port));
        let expected = explained.answer == Answer::Allowed;
        assert_eq!(cell.is_allowed, expected, "{about}\n{}", self.policy);
        if !explained.is_http {
            return;
        }
        for _ in 0..REQUESTS {
            let host = random::host(&mut self.generator, port.service.name.as_str());
            let request = random::request(&mut self.generator, &host, false);
            question.request = Some(request);
            // (A question may be impossible: some hosts are those of other services.)
            let Ok(explained) = verdict(snapshot, &question, VerdictBasis::Mesh) else { continue };
            for one in &explained.destinations {
                let expected = &one.port_verdict;
                let about = format!("seed {}: {explained:#?}\n{}", self.seed, self.policy);
                let is_listed = |rule: &GrantingRule| cell.rules.contains(rule);
                assert!(expected.by.iter().all(is_listed), "{about}");
                assert!(cell.is_allowed || !expected.allowed, "{about}");
                assert!(!is_all || expected.allowed || expected.rejected, "{about}");
            }
        }
    }
}
