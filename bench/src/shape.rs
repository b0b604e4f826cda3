//! The shape of a realistic fleet, as figures and as policy files. It has fifty service accounts, authorization and
//! scopes. Bind address, upstreams and locality differ for each proxy.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::str::FromStr;

use serde_json::json;

/// The numbers of proxies and services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Shape {
    /// Proxies: a multiple of ten.
    pub proxies: usize,
    /// Services that all may call.
    pub services: usize,
    /// Endpoints of the changing service.
    pub endpoints: usize,
}

/// The number of proxies that serve the same services.
pub(crate) const GROUP: usize = 10;

/// The number of different contents of [`Shape::at_step`].
pub(crate) const STEPS: usize = 1 << (GROUP - 1);

/// The number of service accounts.
const ACCOUNTS: usize = 50;

/// The cluster that all may call and whose endpoints change.
pub(crate) const CHANGING: &str = "default/changing|80";
/// The service that later proxies serve, too, and its cluster.
pub(crate) const GROWING: (&str, &str) = ("service-0002", "default/service-0002|80");
/// The cluster that one account may call and whose endpoints change.
pub(crate) const PRIVATE: &str = "default/private|80";

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('x');
        let numbers = parts.and_then(|(n, s)| n.parse().ok().zip(s.parse().ok()));
        let (proxies, services) = numbers.ok_or("expected PROXIESxSERVICES, such as `1000x100`")?;
        if !(2 * GROUP..=20_000).contains(&proxies) || proxies % GROUP != 0 {
            return Err(format!("proxies are a multiple of {GROUP}, from {} to 20000", 2 * GROUP));
        }
        if !(4..=10_000).contains(&services) {
            return Err("services are 4 to 10000".to_owned());
        }
        Ok(Self::new(proxies, services))
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} proxies x {} services", self.proxies, self.services)?;
        if self.endpoints != Self::ENDPOINTS {
            write!(f, " x {} endpoints", self.endpoints)?;
        }
        Ok(())
    }
}

impl Shape {
    /// The usual number of endpoints of the changing service.
    pub(crate) const ENDPOINTS: usize = GROUP - 1;

    /// A fleet with the usual number of endpoints.
    pub(crate) const fn new(proxies: usize, services: usize) -> Self {
        Self { proxies, services, endpoints: Self::ENDPOINTS }
    }

    /// The number of groups, each of which serves the same services.
    pub(crate) fn groups(self) -> usize {
        self.proxies / GROUP
    }

    /// The services of a group. The first service determines the account of its proxies. The first groups also serve the
    /// changing service, and the first one the private service.
    pub(crate) fn services_of(self, group: usize) -> Vec<String> {
        let plain = self.services - 2;
        let own = (0..plain).filter(|service| service % self.groups() == group);
        let mut names: Vec<_> = own.map(name).collect();
        if names.is_empty() {
            names.push(name(group % plain));
        }
        if group * GROUP <= self.endpoints {
            names.push("changing".to_owned());
        }
        if group == 0 {
            names.push("private".to_owned());
        }
        names
    }

    /// The number of accounts that own a service.
    fn accounts(self) -> usize {
        ACCOUNTS.min(self.groups()).min(self.services - 2)
    }

    /// The account of a service: that of the group that serves it.
    fn owner(self, service: usize) -> usize {
        service % self.groups() % ACCOUNTS
    }

    /// The address of a proxy.
    pub(crate) fn address(proxy: usize) -> Ipv4Addr {
        let first = u32::from(Ipv4Addr::new(10, 0, 0, 1));
        (first + u32::try_from(proxy).unwrap_or(u32::MAX - first)).into()
    }

    /// The node metadata of a proxy, which differs for each.
    pub(crate) fn metadata(self, proxy: usize) -> serde_json::Value {
        let plain = self.services - 2;
        let upstreams = (0..UPSTREAMS.min(plain)).map(|number| {
            let service = (proxy * 7 + number * (plain / UPSTREAMS).max(1)) % plain;
            let local_port = 20_000 + (proxy * UPSTREAMS + number) % 40_000;
            json!({ "service": format!("default/{}", name(service)), "local_port": local_port })
        });
        json!({ "bind": Self::address(proxy).to_string(), "upstreams": upstreams.collect::<Vec<_>>() })
    }

    /// The number of proxies that may call the service `private`: those of one account.
    pub(crate) fn callers_of_private(self) -> usize {
        // The account of a proxy is that of its first service.
        let first = |group: usize| {
            let plain = self.services - 2;
            if group < plain { group } else { group % plain }
        };
        let groups = (0..self.groups()).filter(|group| self.owner(first(*group)) == PRIVATE_CALLER);
        groups.count() * GROUP
    }

    /// Writes the policy, without the changing services.
    pub(crate) fn write_policy(self, folder: &Path) -> anyhow::Result<()> {
        let mut services = String::new();
        for service in 0..self.services - 2 {
            let (name, account) = (name(service), account(self.owner(service)));
            write!(
                services,
                "[[service]]\nname = \"{name}\"\nservice_account = \"{account}\"\n\
                 ports = [{{ name = \"web\", port = 80, protocol = \"http\" }}]\n\n"
            )?;
        }
        let accounts: Vec<_> = (0..self.accounts()).map(account).collect();
        let sources: Vec<_> =
            accounts.iter().map(|name| format!("{{ name = \"{name}\" }}")).collect();
        let mut targets = "[[http_route_group]]\nname = \"api\"\nmatches = [\n\
             { name = \"read\", path_regex = \"/api/.*\", methods = [\"GET\", \"HEAD\"] },\n\
             { name = \"write\", path_regex = \"/api/orders/[0-9]+\", methods = [\"POST\"] },\n\
             { name = \"health\", path_regex = \"/health\" },\n]\n\n"
            .to_owned();
        let private = (
            PRIVATE_OWNER.to_owned(),
            vec![sources.get(PRIVATE_CALLER).cloned().unwrap_or_default()],
        );
        let all = accounts.iter().map(|name| (name.clone(), sources.clone()));
        for (account, sources) in all.chain([private]) {
            let sources = sources.join(", ");
            write!(
                targets,
                "[[traffic_target]]\nname = \"to-{account}\"\n\
                 destination = {{ name = \"{account}\" }}\nsources = [{sources}]\n\
                 rules = [{{ kind = \"HTTPRouteGroup\", name = \"api\", matches = [\"read\", \"write\"] }}]\n\n"
            )?;
        }
        fs_err::write(folder.join("services.toml"), services)?;
        fs_err::write(folder.join("targets.toml"), targets)?;
        Ok(())
    }

    /// The changing service after this many steps, each of which adds or removes one of nine endpoints. The tenth, that of
    /// the first proxy, stays. Contents repeat after [`STEPS`].
    pub(crate) fn at_step(step: usize) -> String {
        let gray = gray(step % STEPS);
        let endpoints = (0..GROUP).filter(|proxy| *proxy == 0 || gray >> (proxy - 1) & 1 == 1);
        service("changing", &account(0), endpoints) + &Self::private(0)
    }

    /// The step with these endpoints, if it is one.
    pub(crate) fn step_of(addresses: &[Ipv4Addr]) -> Option<usize> {
        let has = |proxy: usize| addresses.contains(&Self::address(proxy));
        let bits: usize =
            (1..GROUP).filter(|proxy| has(*proxy)).map(|proxy| 1 << (proxy - 1)).sum();
        let step = (0..STEPS).find(|step| gray(*step) == bits);
        step.filter(|_| has(0))
    }

    /// The changing services after this many changes. Each has all endpoints of its proxies except one, and each change
    /// removes a different one.
    pub(crate) fn changing(endpoints: usize, changes: usize, private_changes: usize) -> String {
        let all = endpoints + 1;
        let endpoints = (0..all).filter(|proxy| *proxy != changes % all);
        service("changing", &account(0), endpoints) + &Self::private(private_changes)
    }

    fn private(changes: usize) -> String {
        let endpoints = (0..GROUP).filter(|proxy| *proxy != changes % GROUP);
        service("private", PRIVATE_OWNER, endpoints)
    }
}

/// A service with a static list of endpoints.
fn service(name: &str, account: &str, proxies: impl Iterator<Item = usize>) -> String {
    let endpoints: Vec<_> =
        proxies.map(|proxy| format!("{{ address = \"{}\" }}", Shape::address(proxy))).collect();
    format!(
        "[[service]]\nname = \"{name}\"\nservice_account = \"{account}\"\n\
         ports = [{{ name = \"web\", port = 80, protocol = \"http\" }}]\n\
         endpoints = {{ static = [{}] }}\n\n",
        endpoints.join(", ")
    )
}

/// The Gray code of a number: those of neighbors differ in one bit.
fn gray(number: usize) -> usize {
    number ^ (number >> 1)
}

fn name(service: usize) -> String {
    format!("service-{service:04}")
}

fn account(number: usize) -> String {
    format!("team-{number:02}")
}

const UPSTREAMS: usize = 3;
const PRIVATE_OWNER: &str = "private";
/// The account that may call `private`.
const PRIVATE_CALLER: usize = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_parses_and_assigns_services_to_proxies() {
        let shape: Shape = "1000x100".parse().unwrap();
        assert_eq!((shape.groups(), shape.callers_of_private()), (100, 30));
        assert_eq!(shape.services_of(0), ["service-0000", "changing", "private"]);
        assert_eq!(shape.services_of(99), ["service-0001"]);
        let shape: Shape = "500x1000".parse().unwrap();
        assert_eq!((shape.services_of(7).len(), shape.callers_of_private()), (20, 10));
        assert_ne!(shape.metadata(3), shape.metadata(4));
        let more_endpoints = Shape { endpoints: 19, ..shape };
        for (group, is_serving) in [(0, true), (1, true), (2, false)] {
            let services = more_endpoints.services_of(group);
            assert_eq!(services.contains(&"changing".to_owned()), is_serving, "{services:?}");
        }
        let fewer_services_than_groups: Shape = "200x20".parse().unwrap();
        assert_eq!(
            (fewer_services_than_groups.groups(), fewer_services_than_groups.accounts()),
            (20, 18)
        );
        for bad in ["1000", "15x10", "10x10", "20x3", "20010x10", "axb"] {
            assert!(bad.parse::<Shape>().is_err(), "{bad}");
        }
    }

    #[test]
    fn each_step_changes_one_endpoint_and_has_its_own_content() {
        let addresses = |step: usize| {
            let proxies = 0..GROUP;
            let text = Shape::at_step(step);
            let (changing, _) = text.split_once("\"private\"").unwrap();
            let has = |proxy: &usize| changing.contains(&format!("\"{}\"", Shape::address(*proxy)));
            proxies.filter(has).map(Shape::address).collect::<Vec<_>>()
        };
        for step in 0..STEPS {
            let (now, then) = (addresses(step), addresses(step + 1));
            assert_eq!(now.len().abs_diff(then.len()), 1, "{step}");
            assert_eq!(Shape::step_of(&now), Some(step));
        }
        assert_eq!(Shape::step_of(&addresses(3)[1..]), None);
    }
}
