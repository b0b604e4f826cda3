//! The versions of the fleet, for people.

use std::fmt::Write as _;

use ironmesh_api::{ComponentVersions, VersionReport};
use ironmesh_catalog::text::escape_line;
use ironmesh_terminal::table::aligned;

/// A table of the versions with their counts, and the proxies below the minimum.
pub fn versions_text(report: &VersionReport) -> String {
    let VersionReport { envoy, agent, without_agent } = report;
    let mut rows = vec![["COMPONENT", "VERSION", "PROXIES", "NOTE"].map(str::to_owned)];
    rows.extend(component_rows("envoy", envoy));
    rows.extend(component_rows("agent", agent));
    if *without_agent > 0 {
        rows.push([
            "agent".to_owned(),
            "-".to_owned(),
            without_agent.to_string(),
            "without an agent".to_owned(),
        ]);
    }
    let mut text: String = aligned(&rows).into_iter().map(|line| line + "\n").collect();
    for (program, versions) in [("Envoy", envoy), ("agent", agent)] {
        write_outdated(&mut text, program, versions);
    }
    text
}

fn component_rows(component: &str, versions: &ComponentVersions) -> Vec<[String; 4]> {
    let note = |is_old: bool| if is_old { "below the minimum" } else { "" };
    let row = |one: &ironmesh_api::VersionCount| {
        let version = one.version.as_deref().map(|version| escape_line(version).into_owned());
        [
            component.to_owned(),
            version.unwrap_or_else(|| "unknown".to_owned()),
            one.count.to_string(),
            note(one.below_minimum).to_owned(),
        ]
    };
    versions.versions.iter().map(row).collect()
}

/// Appends the proxies below the minimum of a program.
fn write_outdated(text: &mut String, program: &str, versions: &ComponentVersions) {
    let ComponentVersions { minimum, below_minimum, outdated, .. } = versions;
    if *below_minimum == 0 {
        return;
    }
    // (Writing to a string does not fail.)
    let _ = writeln!(
        text,
        "\n{below_minimum} below the oldest supported {program}, {minimum} (`ironmesh explain IM0754`):"
    );
    for one in outdated {
        let _ = writeln!(text, "  {} ({}): {}", one.name, one.id, escape_line(&one.version));
    }
    if *below_minimum > outdated.len() {
        let _ = writeln!(text, "  and {} more", below_minimum - outdated.len());
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_api::{OutdatedProxy, VersionCount};

    use super::*;

    #[test]
    fn table_has_counts_and_names_of_old_proxies() {
        let count = |version: Option<&str>, count, below_minimum| VersionCount {
            version: version.map(str::to_owned),
            count,
            below_minimum,
        };
        let old = OutdatedProxy {
            id: "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap(),
            name: "till-1".parse().unwrap(),
            version: "1.30.0".to_owned(),
        };
        let envoy = ComponentVersions {
            minimum: "1.39.0".to_owned(),
            versions: vec![
                count(Some("1.40.0"), 3, false),
                count(Some("1.30.0"), 2, true),
                count(None, 1, false),
            ],
            below_minimum: 2,
            outdated: vec![old],
        };
        let agent = ComponentVersions {
            versions: vec![count(Some("0.2.0"), 4, false)],
            ..ComponentVersions::default()
        };
        let expected = "\
COMPONENT  VERSION  PROXIES  NOTE
envoy      1.40.0   3
envoy      1.30.0   2        below the minimum
envoy      unknown  1
agent      0.2.0    4
agent      -        2        without an agent

2 below the oldest supported Envoy, 1.39.0 (`ironmesh explain IM0754`):
  till-1 (6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f): 1.30.0
  and 1 more
";
        assert_eq!(versions_text(&VersionReport { envoy, agent, without_agent: 2 }), expected);
    }
}
