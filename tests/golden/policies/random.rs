//! Random policies, the same in every run.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::regexes::random::SeededRandom;

/// A policy, with the services and ports that proxies need.
pub(super) struct Policy {
    pub(super) text: String,
    /// The services with their namespaces.
    pub(super) services: Vec<String>,
    /// The ports of the services.
    pub(super) ports: Vec<(String, u16)>,
}

/// A written service, for references to it.
struct Service {
    namespace: String,
    name: String,
    account: String,
    ports: Vec<u16>,
}

impl SeededRandom {
    /// The policy with this number. It is well-formed, with the words of the policy language; the
    /// loader decides whether it is consistent.
    pub(super) fn policy(&mut self, number: usize) -> Policy {
        let namespaces: Vec<String> =
            (0..=self.below(2)).map(|n| self.name(&format!("p{number}n{n}"))).collect();
        let mut text = String::new();
        let mut services: Vec<Service> = Vec::new();
        for n in 0..3 + self.below(4) {
            let service = self.service(n, &namespaces, &mut text);
            services.push(service);
        }
        for namespace in &namespaces {
            self.routes(namespace, &mut text);
            self.bindings(namespace, &services, &mut text);
            self.targets(namespace, &services, &mut text);
            self.split(namespace, &services, &mut text);
        }
        let full = |service: &Service| format!("{}/{}", service.namespace, service.name);
        let ports = services
            .iter()
            .flat_map(|service| service.ports.iter().map(move |port| (full(service), *port)));
        Policy { text, services: services.iter().map(full).collect(), ports: ports.collect() }
    }

    /// A name with this prefix: short, or of maximum length.
    fn name(&mut self, start: &str) -> String {
        match self.below(4) {
            0 => format!("{start:x<63}"),
            1 => format!("{start}--{}", self.below(100)),
            _ => start.to_owned(),
        }
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    fn service(&mut self, n: usize, namespaces: &[String], text: &mut String) -> Service {
        let namespace = self.pick(namespaces).clone();
        let name = self.name(&format!("{n}s"));
        let account = if self.below(3) == 0 { "shared".to_owned() } else { name.clone() };
        let numbers = [1, 80, 443, 3306, 8080, 15003, 15080, 65535];
        let mut ports: BTreeSet<u16> = (0..self.below(4)).map(|_| *self.pick(&numbers)).collect();
        if n == 0 {
            ports.insert(80);
        }
        writeln!(text, "[[service]]\nname = \"{name}\"\nnamespace = \"{namespace}\"").unwrap();
        writeln!(text, "service_account = \"{account}\"").unwrap();
        if let 0 = self.below(4) {
            writeln!(text, "mode = \"{}\"", self.choose(&["strict", "permissive", "audit"]))
                .unwrap();
        }
        let listed: Vec<String> = ports
            .iter()
            .map(|port| {
                let protocol = self.choose(&["http", "http", "http2", "grpc", "tcp"]);
                let target = self.pick(&numbers);
                let name = self.name(&format!("port-{port}"));
                format!("{{ name = \"{name}\", port = {port}, protocol = \"{protocol}\", target_port = {target} }}")
            })
            .collect();
        writeln!(text, "ports = [{}]", listed.join(", ")).unwrap();
        if self.below(3) == 0 && !ports.is_empty() {
            let weight = self.choose(&["1", "7", "4294967295"]);
            let label = self.choose(&["v1", "", "\u{fc}ber \u{2192} \u{1f980}", "a\\nb\\u0000"]);
            writeln!(
                text,
                "[service.endpoints]\nstatic = [{{ address = \"10.{n}.0.1\", weight = {weight}, \
                 labels = {{ version = \"{label}\", \"\u{fc} b\" = \"c\" }} }}, {{ address = \"fd00::{n}\" }}]"
            )
            .unwrap();
        }
        Service { namespace, name, account, ports: ports.into_iter().collect() }
    }

    fn routes(&mut self, namespace: &str, text: &mut String) {
        writeln!(text, "[[http_route_group]]\nname = \"ways\"\nnamespace = \"{namespace}\"")
            .unwrap();
        for n in 0..=self.below(3) {
            writeln!(text, "[[http_route_group.matches]]\nname = \"way-{n}\"").unwrap();
            if self.below(3) > 0 {
                let path = if self.below(2) == 0 {
                    format!("/{}", self.expression(2))
                } else {
                    self.choose(PATHS).to_owned()
                };
                writeln!(text, "path_regex = {}", toml::Value::String(path)).unwrap();
            }
            if self.below(2) == 0 {
                let methods =
                    self.some(2, |generator| format!("\"{}\"", generator.choose(METHODS)));
                writeln!(text, "methods = [{}]", methods.join(", ")).unwrap();
            }
            if self.below(2) == 0 {
                let names: BTreeSet<&str> = (0..2).map(|_| self.choose(HEADERS)).collect();
                let headers = names.into_iter().map(|name| {
                    let expression = format!("{}x?", self.expression(1));
                    format!("{} = {}", toml::Value::from(name), toml::Value::String(expression))
                });
                let headers: Vec<_> = headers.collect();
                writeln!(text, "headers = {{ {} }}", headers.join(", ")).unwrap();
            }
        }
        let ports = self.choose(&[
            "",
            "matches = { ports = [80, 443, 3306] }",
            "matches = { ports = [1] }",
        ]);
        writeln!(text, "[[tcp_route]]\nname = \"bytes\"\nnamespace = \"{namespace}\"\n{ports}")
            .unwrap();
    }

    fn bindings(&mut self, namespace: &str, services: &[Service], text: &mut String) {
        let Service { namespace: other, account, .. } = self.pick(services);
        let trust_domain = self.choose(&["mesh.internal", "elsewhere.example"]);
        writeln!(
            text,
            "[[identity_binding]]\nname = \"some\"\nnamespace = \"{namespace}\"\n\
             spiffe_identities = [\"spiffe://{trust_domain}/ns/{other}/sa/{account}\"]"
        )
        .unwrap();
        let labels = "{ version = \"v1\" }";
        writeln!(
            text,
            "[[identity_binding]]\nname = \"labelled\"\nnamespace = \"{namespace}\"\nendpoint_labels = {labels}"
        )
        .unwrap();
    }

    fn targets(&mut self, namespace: &str, services: &[Service], text: &mut String) {
        let here: Vec<_> = services.iter().filter(|one| one.namespace == namespace).collect();
        for n in 0..self.below(6) {
            if here.is_empty() {
                return;
            }
            let name = self.name(&format!("t{n}"));
            let destination = &self.pick(&here).account;
            let sources = self.some(2, |generator| match generator.below(6) {
                0 => "{ kind = \"IdentityBinding\", name = \"some\" }".to_owned(),
                1 => "{ kind = \"IdentityBinding\", name = \"labelled\" }".to_owned(),
                _ => {
                    let Service { namespace, account, .. } = generator.pick(services);
                    format!("{{ name = \"{account}\", namespace = \"{namespace}\" }}")
                }
            });
            let rules = self.some(1, |generator| {
                let rules = [
                    "{ kind = \"HTTPRouteGroup\", name = \"ways\" }",
                    "{ kind = \"HTTPRouteGroup\", name = \"ways\", matches = [\"way-0\"] }",
                    "{ kind = \"TCPRoute\", name = \"bytes\" }",
                ];
                generator.choose(&rules).to_owned()
            });
            writeln!(
                text,
                "[[traffic_target]]\nname = \"{name}\"\nnamespace = \"{namespace}\"\n\
                 destination = {{ name = \"{destination}\" }}\nsources = [{}]\nrules = [{}]",
                sources.join(", "),
                rules.join(", ")
            )
            .unwrap();
        }
    }

    /// At most one split per namespace, since a split service is not split again.
    fn split(&mut self, namespace: &str, services: &[Service], text: &mut String) {
        let here: Vec<_> = services.iter().filter(|one| one.namespace == namespace).collect();
        let [apex, ..] = here[..] else { return };
        let weights = self.pick(&[[1, 0], [1, 2], [0, u32::MAX], [u32::MAX - 7, 7]]);
        let backends = here.iter().zip(weights).map(|(service, weight)| {
            format!("{{ service = \"{}\", weight = {weight} }}", service.name)
        });
        let backends = backends.collect::<Vec<_>>().join(", ");
        let (name, apex) = (self.name("split"), &apex.name);
        writeln!(
            text,
            "[[traffic_split]]\nname = \"{name}\"\nnamespace = \"{namespace}\"\nservice = \"{apex}\"\n\
             backends = [{backends}]"
        )
        .unwrap();
    }
}

const METHODS: &[&str] = &["GET", "POST", "*", "M-SEARCH", "X!#$%&'*+-.^_`|~1", "CONNECT", "PRI"];
const HEADERS: &[&str] =
    &["host", "Host", "x-tier", "X_Y", "user-agent", "content-length", "te", "!#$%&'*+-.^_`|~1"];
const PATHS: &[&str] = &[
    "/",
    "/books/.*",
    "/a|/b",
    "^/v[0-9]+(?:/|$)",
    r"/\.\*",
    "/%C3%A9",
    r"/[\x00-\x7F]{1,9}",
    "/\"'\\\\",
    "/ ",
    "/users/[^/]{1,64}/orders$",
];
