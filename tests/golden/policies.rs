//! Every policy that the loader accepts, Envoy accepts: random policies at the limits of names,
//! ports and weights, compiled for a proxy of each service with all others as upstreams.

mod random;

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use fs_err as fs;
use ironmesh_config_language::{Document, load_documents};
use ironmesh_tests::programs::require_envoy;

use self::random::Policy;
use crate::case::{Case, CompiledProxy};
use crate::certificates::RealCertificates;
use crate::regexes::random::SeededRandom;
use crate::{envoy, rendering};

/// The number of policies that Envoy validates, and the number at a time.
const POLICIES: usize = 100;
const AT_ONCE: usize = 20;

#[test]
fn envoy_accepts_every_policy_the_loader_accepts() {
    let Some(program) = require_envoy() else { return };
    let certificates = RealCertificates::new();
    let mut generator = SeededRandom(0x90_11C1);
    let mut accepted: Vec<Policy> = Vec::new();
    let mut tried = 0;
    while accepted.len() < POLICIES {
        // In its own namespaces, because many are rendered together.
        let policy = generator.policy(tried);
        tried += 1;
        if load_documents([Document::new("p.toml", &*policy.text)]).specification.is_some() {
            accepted.push(policy);
        }
    }
    assert!(tried < 4 * POLICIES, "only {} of {tried} policies are accepted", accepted.len());
    let mut address = Ipv4Addr::new(127, 2, 0, 0);
    let compiled: Vec<(&Policy, Vec<CompiledProxy>)> =
        accepted.iter().map(|policy| (policy, compile(policy, &mut address))).collect();
    for some in compiled.chunks(AT_ONCE) {
        let all = some.iter().flat_map(|(_, proxies)| proxies).map(|one| &one.compiled);
        let bootstrap = rendering::bootstrap_of(all, &certificates);
        assert!(count(&bootstrap, "clusters") > 5 * AT_ONCE, "next to nothing is looked at");
        assert!(count(&bootstrap, "listeners") > 5 * AT_ONCE, "next to nothing is looked at");
        if envoy::validate(&program, &bootstrap).is_ok() {
            continue;
        }
        for (policy, proxies) in some {
            let bootstrap =
                rendering::bootstrap_of(proxies.iter().map(|one| &one.compiled), &certificates);
            if let Err(rejection) = envoy::validate(&program, &bootstrap) {
                panic!(
                    "{}\n\nis accepted by the loader, and rejected by Envoy:\n{rejection}",
                    policy.text
                );
            }
        }
        panic!("Envoy rejects policies together that it accepts one by one");
    }
}

/// Compiles the policy for a proxy of each service.
fn compile(policy: &Policy, address: &mut Ipv4Addr) -> Vec<CompiledProxy> {
    let upstreams = policy.ports.iter().zip(20_000..).map(|((service, port), local_port)| {
        format!("{{ service = \"{service}\", port = {port}, local_port = {local_port} }}")
    });
    let upstreams = upstreams.collect::<Vec<_>>().join(", ");
    let mut proxies = String::new();
    for (number, service) in policy.services.iter().enumerate() {
        *address = Ipv4Addr::from(u32::from(*address) + 1);
        write!(
            proxies,
            "[[proxy]]\nlabel = \"{number}\"\nid = \"00000000-0000-4000-8000-{number:012}\"\n\
             services = [\"{service}\"]\nmesh_address = \"{address}:15003\"\n\
             upstreams = [{upstreams}]\n"
        )
        .unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("policy")).unwrap();
    fs::write(folder.path().join("policy/p.toml"), &policy.text).unwrap();
    fs::write(folder.path().join("proxies.toml"), proxies).unwrap();
    Case::load(folder.path().to_owned()).compile()
}

fn count(bootstrap: &serde_json::Value, of: &str) -> usize {
    bootstrap["static_resources"][of].as_array().map_or(0, Vec::len)
}
