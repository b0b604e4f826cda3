//! The time from the swap to a large policy until callers have ACKed all its resources.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::ensure;

use crate::fleet::Fleet;
use crate::measure::arrival;
use crate::measure::{Scope, median};
use crate::measured_control_plane::MeasuredControlPlane;
use crate::report::{Row, count, milliseconds};

use super::RunOptions;

const SERVICES: usize = 1000;
const RULES_OF_EACH: usize = 5;
/// The number of proxies that call all services and serve the first.
const CALLERS: usize = 10;
const ROUNDS: usize = 5;
const GOAL: f64 = 400.0;
const PAUSE: Duration = Duration::from_millis(300);

pub(super) async fn measure(options: &RunOptions) -> anyhow::Result<Vec<Row>> {
    let mut subject = MeasuredControlPlane::prepare(&options.ironmesh)?;
    subject.swap("policy.toml", &policy(1)?)?;
    subject.run().await?;
    let services = ["caller".to_owned(), name(0)];
    let identities = subject.enroll_group(0, &services).await?;
    ensure!(identities.len() == CALLERS, "{} proxies are enrolled", identities.len());
    let fleet = Fleet::new(identities, options.variant, options.delay);
    fleet.connect(subject.xds(), true);
    fleet.all_configured(options.patience).await?;
    let large = policy(SERVICES)?;
    // The last pushed resource: endpoints are pushed in the order of their names.
    let last = format!("default/{}-v2|80", name(SERVICES - 1));
    let scope = Scope {
        cluster: &last,
        clients: CALLERS,
        among: CALLERS,
        pause: PAUSE,
        patience: options.patience,
    };
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        fleet.quiet(PAUSE, options.patience).await?;
        let watch = fleet.watch(&last);
        let begin = subject.swap("policy.toml", &large)?;
        times.push(arrival(&watch, scope).await?.last_acked - begin);
        fleet.quiet(PAUSE, options.patience).await?;
        subject.swap("policy.toml", &policy(1)?)?;
    }
    let work = "policy swap: to the last ACK of ten callers of all services, median";
    let row = Row::new(work, "ms", milliseconds(median(&times))).itself_at_most(GOAL);
    let bytes = count(u64::try_from(large.len())?) / 1e3;
    let size = Row::new("size of the policy document", "KB", bytes);
    Ok(vec![row, size])
}

/// A policy with this many services, each with its own account, a second version behind a split, and five rules that
/// allow the caller and four other services.
fn policy(services: usize) -> anyhow::Result<String> {
    let mut text = "[[service]]\nname = \"caller\"\n\n".to_owned();
    let ports = "ports = [{ name = \"web\", port = 80, protocol = \"http\" }]";
    for service in 0..services {
        let name = name(service);
        write!(
            text,
            "[[service]]\nname = \"{name}\"\n{ports}\n\n\
             [[service]]\nname = \"{name}-v2\"\nservice_account = \"{name}\"\n{ports}\n\n\
             [[traffic_split]]\nname = \"{name}\"\nservice = \"{name}\"\nbackends = [\
             {{ service = \"{name}\", weight = 9 }}, {{ service = \"{name}-v2\", weight = 1 }}]\n\n"
        )?;
        let (mut sources, mut rules) = (vec!["{ name = \"caller\" }".to_owned()], Vec::new());
        for number in 0..RULES_OF_EACH {
            let group = format!("{name}-{number}");
            write!(
                text,
                "[[http_route_group]]\nname = \"{group}\"\nmatches = [{{ name = \"read\", \
                 path_regex = \"/{number}/items/[0-9]+\", methods = [\"GET\"] }}]\n\n"
            )?;
            rules.push(format!("{{ kind = \"HTTPRouteGroup\", name = \"{group}\" }}"));
            let other = self::name((service + number + 1) % services);
            if number > 0 && !sources.iter().any(|known| known.contains(&other)) {
                sources.push(format!("{{ name = \"{other}\" }}"));
            }
        }
        write!(
            text,
            "[[traffic_target]]\nname = \"{name}\"\ndestination = {{ name = \"{name}\" }}\n\
             sources = [{}]\nrules = [{}]\n\n",
            sources.join(", "),
            rules.join(", ")
        )?;
    }
    Ok(text)
}

fn name(service: usize) -> String {
    format!("service-{service:04}")
}
